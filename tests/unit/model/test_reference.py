"""examples/rack.yaml shows every key of a rack file with its default; the JSON schema is that of the model."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from io import StringIO
from typing import Any

import jsonschema
import pytest
from pydantic.json_schema import GenerateJsonSchema
from ruamel.yaml import YAML

from core.model.fields import FrozenDict
from core.model.schema import rack_model
from tests.generated import REPOSITORY
from tests.unit.model.racks import VALID, changed, faults

EXAMPLE = REPOSITORY / "examples/rack.yaml"
TEXT = EXAMPLE.read_text()
FILE = REPOSITORY / "docs/reference/schemas/rack.json"
OPTIONAL = re.compile(r"^( *)# ([a-z_0-9]+): (\S.*)$", re.MULTILINE)
"""A key that may be left out: its line without the `# ` is a line of the file."""

Place = tuple[str, ...]


NAMED_SECTIONS = ("Node", "Switch", "CageSpec", "Model", "ServedUnit")
"""Sections whose name is the key that they stand under."""


class _Schema(GenerateJsonSchema):
    """As the model has it; a default that cannot change is shown like any other."""

    def encode_default(self, dft: Any) -> Any:
        return super().encode_default(dict(dft) if isinstance(dft, FrozenDict) else dft)


def schema() -> dict[str, Any]:
    """The JSON schema of a rack file: that of the model, without what the loader adds and without null, which no key
    takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = rack_model().model_json_schema(schema_generator=_Schema)
    for part in (whole, *whole["$defs"].values()):
        added = {"source"} if part is whole else {"name"} if part["title"] in NAMED_SECTIONS else set()
        part["properties"] = {key: _remove_null(kind) for key, kind in part["properties"].items() if key not in added}
        if "required" in part:
            part["required"] = [key for key in part["required"] if key not in added]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "title": "rack.yaml of sparkrack",
        "$defs": whole["$defs"],
    }


def _remove_null(kind: dict[str, Any]) -> dict[str, Any]:
    """A key as it is written."""
    if {"type": "null"} not in kind.get("anyOf", []):
        return kind
    kinds = [one for one in kind["anyOf"] if one != {"type": "null"}]
    rest = {key: value for key, value in kind.items() if key not in ("anyOf", "default")}
    return {**rest, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}


def test_the_schema_is_that_of_the_model() -> None:
    text = json.dumps(schema(), indent=1) + "\n"
    if os.environ.get("UPDATE_DOCS"):
        FILE.write_text(text)
    assert FILE.read_text() == text, "UPDATE_DOCS=1 renews it"


def data(text: str) -> Any:
    """A YAML text as JSON has it: keys are texts."""
    return json.loads(json.dumps(YAML(typ="safe", pure=True).load(StringIO(text))))


def problems(text: str) -> list[str]:
    """What an editor with the schema says of a file."""
    validator = jsonschema.Draft202012Validator(json.loads(FILE.read_text()))
    return [error.message for error in validator.iter_errors(data(text))]


@pytest.mark.parametrize("file", [EXAMPLE, *sorted(VALID.glob("*.yaml"))], ids=lambda file: file.stem)
def test_an_editor_takes_what_is_valid(file: Any) -> None:
    assert problems(file.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  overcommit_memory: 0 ", "  overcommit: 0 "),
        ("    address: 10.77.0.11 ", "    # "),
        ("  swap: false ", "  swap: 3 "),
        ("  log_files: 5 ", "  log_files: 0 "),
        ("lossless: none ", "lossless: some "),
        ("vendor: asus  ", "vendor: acme  "),
        ("    identity: crs812 ", "    identity: null "),
    ],
)
def test_an_editor_marks_what_is_not(old: str, new: str) -> None:
    assert len(problems(re.sub(re.escape(old), new, TEXT, count=1))) == 1


def test_the_example_names_its_schema() -> None:
    name = TEXT.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (EXAMPLE.parent / name).resolve() == FILE


def variants() -> Iterator[tuple[str, str]]:
    """The example with each key that it shows as a comment, one at a time; and that line."""
    for found in OPTIONAL.finditer(TEXT):
        indent, key, rest = found.groups()
        text = changed(TEXT, (found[0], f"{indent}{key}: {rest}"))
        if instead := re.search(r"# instead of (\w+)", rest):
            text = re.sub(rf"^{indent}{instead[1]}: .*\n", "", text, flags=re.MULTILINE)
        yield f"{key}: {rest}", text


@pytest.mark.parametrize("line", [line for line, _ in variants()])
def test_every_key_that_is_shown_as_a_comment_is_sound(line: str) -> None:
    text = dict(variants())[line]
    assert problems(text) == []
    # For a ring, and for other engines than SGLang; for a second model, and files beside it.
    if not line.startswith(("pool:", "kv:", "also:", "files: {", "before:", "gguf:", "custom:")):
        assert faults(text) == []


@dataclass(frozen=True)
class Key:
    """What the schema says of a key. `default` None: there is none. `kind`: its part of the schema."""

    required: bool
    default: object
    kind: Mapping[str, Any]


def keys(whole: Mapping[str, Any], part: Mapping[str, Any], place: Place = ()) -> Iterator[tuple[Place, Key]]:
    """Every key of the schema below a place; the name of a machine or a cage is `*`."""
    for key, kind in part.get("properties", {}).items():
        yield (*place, key), Key(key in part.get("required", ()), kind.get("default"), kind)
        for inner in _list_kinds(whole, kind):
            named = inner.get("additionalProperties")
            if isinstance(named, dict) and "$ref" in named:
                yield from keys(whole, _resolve_reference(whole, named), (*place, key, "*"))
            else:
                yield from keys(whole, inner, (*place, key))


def _list_kinds(whole: Mapping[str, Any], kind: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    kind = _resolve_reference(whole, kind)
    yield kind
    for one in (*kind.get("anyOf", ()), *kind.get("oneOf", ())):
        yield from _list_kinds(whole, one)


def _resolve_reference(whole: Mapping[str, Any], kind: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = whole["$defs"][kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind
    return found


KEYS = dict(keys(schema(), schema()))
NAMED = {place[:-2] for place in KEYS if place[-2:-1] == ("*",)}
"""Where names are keys."""
REFERENCE = ("env", "file", "command")
"""The forms of a reference to a secret, of which one is written."""


def refers(place: Place) -> bool:
    """Whether a key is one of the forms of a reference to a secret; `env` of a unit is a mapping, and `command` of a
    custom engine that of its ranks."""
    return place[-1] in REFERENCE and KEYS[place].kind.get("type") != "object" and place[-2] != "custom"


def below(place: Place, key: str) -> Place:
    return (*place, "*" if place in NAMED else key)


@cache
def shown() -> dict[Place, list[object]]:
    """The values that the example shows for each key."""
    found: dict[Place, list[object]] = {}

    def collect(value: Mapping[str, Any], place: Place) -> None:
        for key, inner in value.items():
            here = below(place, key)
            found.setdefault(here, []).append(inner)
            if isinstance(inner, dict):
                collect(inner, here)

    for text in (TEXT, *(text for _, text in variants())):
        collect(data(text), ())
    return found


@cache
def explained() -> dict[Place, str]:
    """What the comments say of each key that has a line: on it, and above it."""
    found: dict[Place, str] = {}
    above: list[str] = []
    places: dict[int, Place] = {-1: ()}
    for line in TEXT.splitlines():
        match = OPTIONAL.match(line) or re.match(r"^( *)([\w-]+):(.*)$", line)
        if match:
            indent = len(match[1])
            places = {depth: place for depth, place in places.items() if depth < indent}
            places[indent] = below(places[max(places)], match[2])
            lines, own = " ".join(above).strip(), match[3].partition("#")[2].strip()
            between = "" if not (lines and own) else " " if lines.endswith(".") else "; "
            found.setdefault(places[indent], f"{lines}{between}{own}")
        above = [*above, line.strip(" #")] if line.lstrip().startswith("# ") and not match else []
    return found


@pytest.mark.parametrize("place", [place for place in KEYS if not refers(place)], ids=".".join)
def test_every_key_is_shown_and_explained(place: Place) -> None:
    key, values = KEYS[place], shown().get(place)
    assert values, "is not in examples/rack.yaml"
    comments = explained()
    # What stands in the braces of a line is explained there.
    comment = next(comments[place[:end]] for end in range(len(place), 0, -1) if place[:end] in comments)
    assert comment.strip(), "has no comment"
    if key.required:
        assert "required" in comment, "is not said to be required"
    elif key.default is None or key.default == {}:
        assert "absent" in comment, "what applies without it is not said"
    elif isinstance(key.default, dict) and "$ref" in key.kind:
        return  # the defaults of its keys, each of which is looked at
    else:
        assert key.default in values or f"default: {json.dumps(key.default)}" in comment, f"default: {key.default}"


def test_every_form_of_a_reference_is_named() -> None:
    assert {place[-1] for place in KEYS} > set(REFERENCE)
    assert "{env: CRS812_PASSWORD}" in TEXT
    assert "{file: path} or {command: [program, argument]}" in TEXT
