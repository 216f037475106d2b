"""What a recipe does in the container before its engine, as a folder beside rack.yaml: mods, commands, and a script."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkrack.serving.recipe_registry import RecipeSource, file_beside, find_mod
from sparkrack.serving.recipe_text import RecipeError

INSIDE_RECIPE = "/workspace/recipe"
"""Place in the container of the folder; read-only."""
INSIDE_MODS = "/workspace/mods"
"""Place in the container to which sparkrun and eugr copy mods, which write into their own folder."""
SCRIPT = "before.sh"

_NETWORK = re.compile(
    r"\b(curl|wget|git\s+(clone|fetch|pull)|apt(-get)?\s+(update|install)|hf\s+download|huggingface-cli)\b"
    r"|\bpip3?\s+(install|download)\b|\buv\s+(pip|add)\b"
)
_LOCAL_INSTALL = re.compile(r"--no-index|\.whl\b|\s\./|\s-e\s+\.")
_NODE = re.compile(
    r">\s*/(?:proc/)?sys/|(?:^|[;&|]\s*|sudo\s+)(?:sysctl|modprobe)\b|\bnvidia-smi\s.*-(?:lgc|lmc|rgc|pm|pl|r)\b"
)


@dataclass
class BeforeEngine:
    """Files for the folder beside rack.yaml by their path in it, and the lines of the script that uses them."""

    files: dict[str, bytes] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    title: str = ""

    @property
    def script(self) -> str:
        """The script: it ends at the first step that fails, as sparkrun does."""
        lines = [
            "#!/bin/bash",
            f"# Before the engine, in the container of each rank: what {self.title} does there.",
            "set -e",
            'export WORKSPACE_DIR="$PWD"',
            *self.steps,
        ]
        return "\n".join(lines) + "\n"

    def content(self) -> dict[str, bytes]:
        """Return all files of the folder; none when the recipe brings none."""
        return {**self.files, **({SCRIPT: self.script.encode()} if self.steps else {})}

    def brings(self, place: str) -> str:
        """Return which part puts a file into the container by its path there; empty when none names it."""
        name = place.rpartition("/")[2].encode()
        for path, content in self.files.items():
            part = "/".join(path.split("/")[:2])
            if path.endswith("/" + name.decode()) or (path.endswith(".sh") and name in content):
                return part
        return "pre_exec" if any(name in step.encode() for step in self.steps) else ""


def before_engine(
    mods: Sequence[object], commands: Sequence[object], filled: Any, source: RecipeSource
) -> BeforeEngine:
    """Return what a recipe does before its engine: its commands (`pre_exec`), then its mods.

    Args:
        mods: the names of the mods.
        commands: command lines, or mappings with `copy` and `dest`.
        filled: replaces the placeholders of a text.
        source: where the recipe stands, and where mods are looked for.
    """
    found = BeforeEngine(title=source.title)
    for command in commands:
        if isinstance(command, Mapping):
            _add_copy(found, {key: filled(str(value)) for key, value in command.items()}, source)
        else:
            text = filled(str(command)).strip()
            found.problems += _list_impossible_steps("pre_exec", text)
            # Each command has a shell of its own; its folder and its variables end with it.
            found.steps.append(f"bash -c {shlex.quote(text)}")
    for mod in mods:
        _add_mod(found, str(mod), source)
    return found


def _add_copy(found: BeforeEngine, entry: Mapping[str, str], source: RecipeSource) -> None:
    path, target = entry.get("copy", ""), entry.get("dest", "")
    content = file_beside(path, source) if path and not path.startswith(("/", "~")) else None
    if content is None or not target.startswith("/"):
        found.problems.append(f"pre_exec: copy {path}: is not a file beside the recipe; put it there")
        return
    found.files[f"copies/{path}"] = content
    parent = target.rpartition("/")[0] or "/"
    found.steps.append(f"mkdir -p {shlex.quote(parent)}")
    found.steps.append(f"cp {shlex.quote(f'{INSIDE_RECIPE}/copies/{path}')} {shlex.quote(target)}")


def _add_mod(found: BeforeEngine, reference: str, source: RecipeSource) -> None:
    try:
        known = find_mod(reference, source)
    except RecipeError as error:
        found.problems += error.problems
        return
    if known is None:
        where = ", ".join(one.name for one in source.registries)
        what = f"is not in {where}" if where else "is not beside the recipe"
        found.problems.append(f"mods: {reference}: {what}; name a registry that has it with --registry")
        return
    name, files = known
    below = {f"mods/{name}/{path}": content for path, content in files.items()}
    if any(found.files.get(path, content) != content for path, content in below.items()):
        found.problems.append(f"mods: two of them are called {name}; rename one in a copy of the recipe")
        return
    for path, content in files.items():
        if path.endswith(".sh"):
            found.problems += _list_impossible_steps(f"mods: {name}", content.decode(errors="replace"))
    found.files |= below
    inside = shlex.quote(f"{INSIDE_MODS}/{name}")
    found.steps += [
        f"mkdir -p {INSIDE_MODS}",
        f"cp -R {shlex.quote(f'{INSIDE_RECIPE}/mods/{name}')} {INSIDE_MODS}/",
        f"(cd {inside} && chmod +x run.sh && ./run.sh)",
    ]


def _list_impossible_steps(where: str, script: str) -> Iterator[str]:
    """Yield what a script cannot do in the container of a unit, which has no network and no rights over its node."""
    lines = [line.strip() for line in re.sub(r"\\\n", " ", script).splitlines() if not line.lstrip().startswith("#")]
    done = [line for line in lines if not re.match(r"(echo|printf)\b", line)]
    for line in done:
        if (wanted := _NETWORK.search(line)) and not _LOCAL_INSTALL.search(line):
            yield (
                f"{where}: loads from the network ({wanted[0]}), which a unit does not have; give an --image that has "
                "it, and remove this from a copy of the recipe"
            )
            break
    for line in lines:
        if wanted := _NODE.search(line):
            yield (
                f"{where}: changes the node ({wanted[0].strip()}), which a unit cannot; remove it from a copy of the "
                "recipe"
            )
            break
