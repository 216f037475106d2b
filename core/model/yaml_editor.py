"""Set one value in a rack file, or add entries to it, and keep every other byte of it.

A YAML writer would write the file with its own spaces and line breaks. So the parser only locates the value, and its
characters are replaced there; comments, order and alignment stay.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from core.model import yaml_reader
from core.model.errors import ConfigError, ConfigProblem, format_path
from core.model.errors import Path as Place
from core.util import regular_file
from core.util.atomic_file import rewrite_atomic

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
Scalar = str | bool | int | float
"""A value of YAML that is neither a list nor a mapping."""
_AGAIN = "look at it, then run again"


@dataclass(frozen=True)
class FileSnapshot:
    """A rack file as it was when `taken`; it is only written over while it still is that."""

    path: Path
    data: bytes

    def changed(self, place: Place, value: Scalar) -> FileSnapshot:
        """Return the snapshot with another value at `place`, and write nothing. Raises ConfigError as `put` does."""
        return FileSnapshot(self.path, self._replace_value(place, value))

    def with_value(self, place: Place, value: Scalar) -> FileSnapshot:
        """Return the snapshot with a value at `place`, which is replaced or added, and write nothing. Raises
        ConfigError as `put` and `with_entries` do.
        """
        node: Node | None = self._compose_nodes(self.data.decode())
        for key in place:
            node = _child_node(node, key) if node else None
        if node is not None:
            return self.changed(place, value)
        entries: Any = value
        for key in reversed(place):
            entries = {key: entries}
        return self.with_entries(entries)

    def put(self, place: Place, value: Scalar) -> FileSnapshot:
        """Set the value at `place`, one that is in the file, and give the new snapshot.

        The file is replaced as a whole or not at all, with its mode, and a symbolic link to it stays one.
        Raises ConfigError, with the line, when there is no such value, when it is no single word, or when the
        file is not what it was.
        """
        return self.write(self._replace_value(place, value))

    def write(self, changed: bytes) -> FileSnapshot:
        """Replace the whole file as `put` does, and give the new snapshot. Raises ConfigError."""
        with _raise_config_error(self.path):
            target = self.path.resolve(strict=True)
            now = regular_file.read_bytes(target)
            if now != self.data:
                self._refuse_changed_file(now)
            if changed != now:
                rewrite_atomic(target, changed)
        return FileSnapshot(self.path, changed)

    def with_entries(self, entries: Mapping[str, Any]) -> FileSnapshot:
        """Return the snapshot with more entries, and write nothing: a section that is not in the file is appended to
        it, one that is gets them before its first one. Raises ConfigError when an entry is there with another value,
        or when the file has a form that takes no further lines.
        """
        text = self.data.decode()
        node = self._compose_nodes(text)
        if node is None:
            raise self._edit_error(None, (), "is empty", "write it with sparkrack init")
        before = yaml_reader.parse(text).data
        added: list[tuple[int, str]] = []
        self._collect_entries(node, before, entries, (), added)
        new = text
        for at, lines in sorted(added, key=lambda one: one[0], reverse=True):
            new = new[:at] + lines + new[at:]
        after = yaml_reader.parse(new)
        if after.problems or after.data != _merge_entries(before, yaml_reader.parse(_format_block(entries, 0)).data):
            raise self._edit_error(None, (), "takes no further entries as it is written", "add them by hand")
        return FileSnapshot(self.path, new.encode())

    def _collect_entries(
        self, node: Node, data: Any, entries: Mapping[str, Any], place: Place, added: list[tuple[int, str]]
    ) -> None:
        """Append what to insert at which character, for the entries of a mapping."""
        if absent := {key: value for key, value in entries.items() if _child_node(node, key) is None}:
            self._insert_entries(node, absent, place, added)
        for key, value in entries.items():
            below, at = _child_node(node, key), (*place, key)
            if below is None:
                continue
            if isinstance(value, Mapping) and isinstance(below, MappingNode):
                self._collect_entries(below, data[key], value, at, added)
            elif isinstance(value, list) and isinstance(below, SequenceNode):
                if missing := [one for one in value if one not in data[key]]:
                    self._insert_entries(below, missing, at, added)
            elif data[key] != value:
                raise self._edit_error(
                    below.start_mark.line + 1, at, "is there with another value", "rename or remove one of the two"
                )

    def _insert_entries(self, node: Node, value: Any, place: Place, added: list[tuple[int, str]]) -> None:
        first = node.value[0] if isinstance(node.value, list) and node.value else None
        start = first[0].start_mark if isinstance(first, tuple) else first.start_mark if first else None
        if start is None or getattr(node, "flow_style", None):
            line = node.start_mark.line + 1
            raise self._edit_error(line, place, "takes no further lines as it is written", "write it as a block")
        if not place:  # at the end of the file
            text = self.data.decode()
            added.append((len(text), ("" if text.endswith("\n") else "\n") + _format_block(value, 0)))
            return
        begin = start.index - start.column
        # An item of a list begins behind its hyphen.
        column = start.column if isinstance(node, MappingNode) else node.start_mark.column
        added.append((begin, _format_block(value, column)))

    def _compose_nodes(self, text: str) -> Node | None:
        """Return the nodes of the file, None of an empty one. Raises ConfigError."""
        try:
            found: Node | None = YAML(typ="base", pure=True).compose(text)
        except YAMLError:
            raise self._edit_error(None, (), "is not sound YAML", "see the output of sparkrack check") from None
        return found

    def _replace_value(self, place: Place, value: Scalar) -> bytes:
        text = self.data.decode()
        node = self._find_scalar(text, place)
        start, end = node.start_mark.index, node.end_mark.index
        new = text[:start] + _format_scalar(node, value) + text[end:]
        # Checked against a second reading: nothing else may mean anything else now.
        before, after = yaml_reader.parse(text), yaml_reader.parse(new)
        _set_value(before.data, place, value)
        if after.problems or after.data != before.data:
            raise self._edit_error(
                node.start_mark.line + 1, place, "cannot be set without touching more", "set it by hand"
            )
        return new.encode()

    def _find_scalar(self, text: str, place: Place) -> ScalarNode:
        node, line = self._compose_nodes(text), 1
        for depth, key in enumerate(place):
            below = _child_node(node, key) if node else None
            if below is None:
                raise self._edit_error(line, place[: depth + 1], "is not in the file", "write it there with any value")
            node, line = below, below.start_mark.line + 1
        if not isinstance(node, ScalarNode) or "\n" in text[node.start_mark.index : node.end_mark.index]:
            raise self._edit_error(line, place, "is not a value on one line", "write it as one word")
        return node

    def _refuse_changed_file(self, now: bytes) -> None:
        pairs = zip_longest(self.data.splitlines(keepends=True), now.splitlines(keepends=True))
        line = next(number for number, (old, new) in enumerate(pairs, start=1) if old != new)
        raise self._edit_error(line, (), "was changed by another program during this run", _AGAIN)

    def _edit_error(self, line: int | None, place: Place, what: str, right: str) -> ConfigError:
        return ConfigError([ConfigProblem(str(self.path), line, format_path(place), what, right)])


def _format_block(value: Any, column: int) -> str:
    """Return a value as lines of YAML that begin at a column."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.sort_base_mapping_type_on_output = False, False  # type: ignore[assignment]
    yaml.width = 4096
    lines = StringIO()
    yaml.dump(value, lines)
    return "".join(f"{' ' * column}{line}" for line in lines.getvalue().splitlines(keepends=True))


def _merge_entries(before: Any, entries: Any) -> Any:
    if isinstance(before, dict) and isinstance(entries, dict):
        same = {key: _merge_entries(before[key], value) if key in before else value for key, value in entries.items()}
        return {**before, **same}
    if isinstance(before, list) and isinstance(entries, list):
        return [*(one for one in entries if one not in before), *before]
    return entries


def snapshot(path: str | os.PathLike[str]) -> FileSnapshot:
    """The file as it is now. Raises ConfigError when it cannot be read."""
    found = Path(path)
    with _raise_config_error(found):
        data = regular_file.read_bytes(found)
    try:
        data.decode()
    except UnicodeDecodeError:
        raise ConfigError(
            [ConfigProblem(str(found), None, "", "is not UTF-8 text", "save the file as UTF-8")]
        ) from None
    return FileSnapshot(found, data)


@contextmanager
def _raise_config_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"cannot be read or written: {error.strerror}"
        raise ConfigError([ConfigProblem(str(path), None, "", what, "check the file and its folder")]) from None


def _child_node(node: Node, key: object) -> Node | None:
    if isinstance(node, MappingNode):
        return next((value for name, value in node.value if _key_value(name) == key), None)
    if isinstance(node, SequenceNode) and isinstance(key, int):
        entries: list[Node] = node.value
        return entries[key] if 0 <= key < len(entries) else None
    return None


def _key_value(node: Node) -> Any:
    """A key as a reading of the file has it: a bare 1 is a number."""
    return yaml_reader.plain(node.value) if isinstance(node, ScalarNode) and node.style is None else node.value


def _format_scalar(node: ScalarNode, value: Scalar) -> str:
    """`value` as YAML has it, a text in the quotes that were there, or in such as it needs."""
    if not isinstance(value, str):
        return json.dumps(value)
    if node.style is None and _PLAIN.fullmatch(value) and yaml_reader.plain(value) == value:
        return value
    if node.style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    # A string of JSON is a double-quoted scalar of YAML.
    return json.dumps(value, ensure_ascii=False)


def _set_value(data: Any, place: Place, value: Scalar) -> None:
    for key in place[:-1]:
        data = data[key]
    data[place[-1]] = value
