"""The keys of rack.yaml are the same on the page of keys, in the JSON schema, and in the messages of `check`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import ConfigError, load
from core.model.errors import ConfigProblem
from tests.generated import REPOSITORY
from tests.unit.model.test_reference import NAMED, TEXT, Place, below, variants

PAGE = REPOSITORY / "docs/reference/rack-keys.md"
SCHEMA = REPOSITORY / "docs/reference/schemas/rack.json"
STRANGE = "zzqx"
"""A key that is near no other, so that the message lists those that are known."""
WRONG: list[object] = [[[]]]
"""A value that no key takes."""
SECRET = {"env", "file", "command"}


def keys_of_the_page() -> set[str]:
    return set(re.findall(r"^\| `([a-z_0-9.*]+)` \|", PAGE.read_text(), re.MULTILINE))


def keys_of_the_schema() -> set[str]:
    whole = json.loads(SCHEMA.read_text())

    def walked(part: Mapping[str, Any], place: str) -> Iterator[str]:
        if "$ref" in part:
            part = whole["$defs"][part["$ref"].rpartition("/")[2]]
        for one in (*part.get("anyOf", ()), *part.get("oneOf", ())):
            yield from walked(one, place)
        for key, inner in part.get("properties", {}).items():
            yield f"{place}{key}"
            yield from walked(inner, f"{place}{key}.")
        named = part.get("additionalProperties")
        if isinstance(named, dict):
            yield from walked(named, f"{place}*.")

    return set(walked(whole, ""))


def places(text: str) -> dict[Place, tuple[str, ...]]:
    """Each key that a file shows as the page names it, and the first path of the file that leads there."""
    found: dict[Place, tuple[str, ...]] = {}

    def collect(value: Any, place: Place, path: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                here = below(place, str(key))
                found.setdefault(here, (*path, key))
                collect(inner, here, (*path, key))

    collect(YAML(typ="safe", pure=True).load(text), (), ())
    return found


def refused(text: str, path: tuple[str, ...], value: object, folder: Path) -> list[ConfigProblem]:
    """What `check` says of a file with another value at a path."""
    yaml = YAML(typ="safe", pure=True)
    data = yaml.load(text)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    out = StringIO()
    yaml.dump(data, out)
    file = folder / "rack.yaml"
    file.write_text(out.getvalue())
    try:
        load(file)
    except ConfigError as error:
        return list(error.faults)
    return []


@cache
def shown_places() -> dict[Place, tuple[str, tuple[str, ...]]]:
    """Each key of the page with a file that has it, and its path there."""
    found: dict[Place, tuple[str, tuple[str, ...]]] = {}
    for text in (TEXT, *(text for _, text in variants())):
        for place, path in places(text).items():
            found.setdefault(place, (text, path))
    return found


SECTIONS = sorted({tuple(key.split(".")[:-1]) for key in keys_of_the_page()} - {()})


def test_the_page_and_the_schema_have_the_same_keys() -> None:
    page, schema = keys_of_the_page(), keys_of_the_schema()
    assert len(page) > 150
    assert page == schema


@pytest.mark.parametrize("section", [(), *SECTIONS], ids=lambda place: ".".join(place) or "the file")
def test_check_lists_the_keys_of_each_section_as_the_page_does(section: Place, tmp_path: Path) -> None:
    """In the message on a key that is not one of them."""
    known = {key.rpartition(".")[2] for key in keys_of_the_page() if key.rpartition(".")[0] == ".".join(section)}
    names = section[:-1] if section and section[-1] == "*" else section
    shown = shown_places()
    text, path = (TEXT, ()) if not section else shown[section if section in shown else names]
    found = refused(text, (*path, STRANGE), 1, tmp_path)
    if known == SECRET:  # a reference to a secret, which is one of three
        (listed,) = [one.right for one in found if one.path == ".".join(path)]
        assert set(re.findall(r"\{(\w+):", listed)) == known
        return
    (listed,) = [one.right for one in found if one.what == "unknown key" and STRANGE in one.path]
    assert set(listed.removeprefix("known keys are ").split(", ")) == known


@pytest.mark.parametrize("key", sorted(keys_of_the_page()))
def test_check_names_each_key_of_the_page_whose_value_is_wrong(key: str, tmp_path: Path) -> None:
    place = tuple(key.split("."))
    shown = shown_places()
    if place not in shown and place[-1] in SECRET:
        place = place[:-1]  # of the three forms of a secret the example shows one
    text, path = shown[place]
    paths = [one.path for one in refused(text, path, WRONG, tmp_path)]
    assert any(one == ".".join(path) or one.startswith(f"{'.'.join(path)}.") for one in paths), paths


def test_names_are_not_keys() -> None:
    assert {".".join(place) for place in NAMED} <= keys_of_the_page()
