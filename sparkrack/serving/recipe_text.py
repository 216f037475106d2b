"""The text of a recipe, read as sparkrun and eugr/spark-vllm-docker read it: YAML 1.1, placeholders, a command line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import VersionedResolver

from core.model.yaml_reader import explain

_PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SHELL = re.compile(r"&&|\|\||[;|<>`]|\$[({A-Za-z_]")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")
_TEXT_TO_PYYAML = re.compile(r"[yYnN]|[-+]?[0-9][0-9_]*([.][0-9_]*)?[eE][0-9]+|[-+]?[0-9][0-9_]*[eE][-+][0-9]+")
"""Words and numbers of YAML 1.1 that PyYAML takes for text: `y`, and an exponent without a dot or without a sign."""
_NESTED = 8
"""Values that name a placeholder are replaced so many times; sparkrun goes on until nothing changes."""


class RecipeError(Exception):
    """A recipe that does not come over whole. `problems`: each thing that is missing, with what to do, a line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass
class RecipeNotes:
    """What is found on the way, a line each, without repeats.

    `warnings`: what stands elsewhere than in the recipe, or is set by sparkrack. `problems`: what does not come over.
    """

    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def warn(self, line: str) -> None:
        """Add a warning."""
        if line not in self.warnings:
            self.warnings.append(line)

    def missing(self, line: str) -> None:
        """Add what does not come over; the reading goes on, so that all of it is reported at once."""
        if line not in self.problems:
            self.problems.append(line)


def entries(value: object) -> list[Any]:
    """Return the entries of a key that has a list, or one value."""
    return value if isinstance(value, list) else [value] if value else []


def json_or_text(value: str) -> Any:
    """Return what a text is as JSON, else the text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def read_recipe(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the keys of a recipe, and warnings: a line for each key that is written twice. Raises RecipeError.

    PyYAML, which sparkrun and eugr use, reads YAML 1.1 (`yes` and `on` are true) and takes the last of equal keys.
    """
    yaml = YAML(typ="safe", pure=True)
    repeated: list[str] = []

    class LastKeyConstructor(SafeConstructor):
        def check_mapping_key(self, node: Any, key_node: Any, mapping: Any, key: Any, value: Any) -> bool:
            """Return whether a key counts: each does, and takes the place of an equal one."""
            del node
            if key in mapping:
                values = "with the same value" if mapping[key] == value else "with two values"
                line = key_node.start_mark.line + 1
                repeated.append(f"{key}: is written twice {values}; the last one, on line {line}, counts")
            return True

    yaml.Constructor = LastKeyConstructor
    yaml.Resolver = _PlainResolver
    yaml.version = (1, 1)
    yaml.allow_duplicate_keys = True
    try:
        found = yaml.load(text)
    except YAMLError as error:
        line, what, right = explain(error, text)
        raise RecipeError(f"line {line}: {what}; {right}") from None
    except (RecursionError, ValueError, TypeError):
        raise RecipeError("is not YAML that can be read; give a recipe") from None
    if not isinstance(found, dict):
        raise RecipeError("is not a mapping; give a recipe of sparkrun or of spark-vllm-docker")
    return {str(key): value for key, value in found.items()}, tuple(repeated)


class _PlainResolver(VersionedResolver):
    """Reads as text what PyYAML does, and YAML 1.1 as such does not."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Return the tag of a node."""
        if kind is ScalarNode and implicit[0] and _TEXT_TO_PYYAML.fullmatch(value):
            return self.DEFAULT_SCALAR_TAG
        return super().resolve(kind, value, implicit)


def filled(command: str, values: Mapping[str, Any], missing: Callable[[str], None]) -> str:
    """Return a command with its placeholders replaced, also those in the values. `missing` gets names without one."""

    def value_of(found: re.Match[str]) -> str:
        value = values.get(found[1])
        if value is None:
            missing(found[1])
            return ""
        return json.dumps(value) if isinstance(value, dict | list) else str(value)

    for _ in range(_NESTED):
        replaced = _PLACEHOLDER.sub(value_of, command)
        if replaced == command:
            break
        command = replaced
    return command


def single_braces(word: str) -> str:
    """Return a word whose braces eugr's format doubles with single ones; JSON that needs its braces stays."""
    if ("{{" not in word and "}}" not in word) or _is_json(word):
        return word
    single = word.replace("{{", "{").replace("}}", "}")
    value = single.partition("=")[2] if single.startswith("--") else single
    return single if _is_json(value) or not _is_json(word.partition("=")[2]) else word


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@dataclass
class CommandWords:
    """The words of the one line that starts the engine, and the variables that are set before it.

    `problems`: lines of a shell script, which no unit has.
    """

    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def command_words(command: str) -> CommandWords:
    """Return the words of a command without placeholders. Raises RecipeError when quotes are not closed."""
    found = CommandWords()
    for line in re.sub(r"\\[ \t]*\n", " ", command).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise RecipeError(f"command: is not a command line: {error}; correct the recipe") from None
        if shell := _SHELL.search(re.sub(r"""'[^']*'|"[^"$`]*\"""", "", line)):
            found.problems.append(_shell_problem(line, shell[0]))
        elif words[:1] == ["export"]:
            _assign_variables(found.environment, words[1:])
        elif words and found.words:
            found.problems.append("command: has more than one line; leave only the line of the engine")
        else:
            found.words = words
    while found.words and (found.words[0] == "exec" or _ASSIGNMENT.fullmatch(found.words[0])):
        _assign_variables(found.environment, found.words[:1])
        del found.words[0]
    found.words = [single_braces(word) for word in found.words]
    return found


def _shell_problem(line: str, sign: str) -> str:
    if sign.startswith("$") and not sign.startswith("$(") and (variable := _VARIABLE.search(line)):
        return (
            f"command: ${{{variable[1]}}} is a shell variable, whose value only the container knows; write its value "
            "into a copy of the recipe"
        )
    return f"command: is a shell script ({sign}); leave only the line of the engine in a copy of the recipe"


def _assign_variables(environment: dict[str, str], words: Sequence[str]) -> None:
    for word in words:
        if found := _ASSIGNMENT.fullmatch(word):
            environment[found[1]] = found[2]
