"""Set one value in a rack file and keep every other byte of it.

A YAML writer would write the file with its own spaces and line breaks. So the parser only locates the value, and its
characters are replaced there; comments, order and alignment stay.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_AGAIN = "look at it, then run again"


@dataclass(frozen=True)
class FileSnapshot:
    """A rack file as it was when `taken`; it is only written over while it still is that."""

    path: Path
    data: bytes

    def changed(self, place: Place, value: str) -> FileSnapshot:
        """Return the snapshot with another text at `place`, and write nothing. Raises ConfigError as `put` does."""
        return FileSnapshot(self.path, self._changed(place, value))

    def put(self, place: Place, value: str) -> FileSnapshot:
        """Set the text at `place`, a value that is in the file, and give the new snapshot.

        The file is replaced as a whole or not at all, with its mode, and a symbolic link to it stays one.
        Raises ConfigError, with the line, when there is no such value, when it is no single word, or when the
        file is not what it was.
        """
        changed = self._changed(place, value)
        with _readable(self.path):
            target = self.path.resolve(strict=True)
            now = regular_file.read_bytes(target)
            if now != self.data:
                self._meanwhile(now)
            if changed != now:
                self._write_file(target, changed)
        return FileSnapshot(self.path, changed)

    def _changed(self, place: Place, value: str) -> bytes:
        text = self.data.decode()
        node = self._find_scalar(text, place)
        start, end = node.start_mark.index, node.end_mark.index
        new = text[:start] + _spelled(node, value) + text[end:]
        # Checked against a second reading: nothing else may mean anything else now.
        before, after = yaml_reader.parse(text), yaml_reader.parse(new)
        _set_value(before.data, place, value)
        if after.problems or after.data != before.data:
            raise self._edit_error(
                node.start_mark.line + 1, place, "cannot be set without touching more", "set it by hand"
            )
        return new.encode()

    def _find_scalar(self, text: str, place: Place) -> ScalarNode:
        try:
            node = YAML(typ="base", pure=True).compose(text)
        except YAMLError:
            raise self._edit_error(None, (), "is not sound YAML", "see the output of sparkrack check") from None
        line = 1
        for depth, key in enumerate(place):
            below = _child_node(node, key)
            if below is None:
                raise self._edit_error(line, place[: depth + 1], "is not in the file", "write it there with any value")
            node, line = below, below.start_mark.line + 1
        if not isinstance(node, ScalarNode) or "\n" in text[node.start_mark.index : node.end_mark.index]:
            raise self._edit_error(line, place, "is not a value on one line", "write it as one word")
        return node

    def _meanwhile(self, now: bytes) -> None:
        pairs = zip_longest(self.data.splitlines(keepends=True), now.splitlines(keepends=True))
        line = next(number for number, (old, new) in enumerate(pairs, start=1) if old != new)
        raise self._edit_error(line, (), "was changed by another program during this run", _AGAIN)

    def _write_file(self, target: Path, data: bytes) -> None:
        was = target.stat()
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                with suppress(PermissionError):  # only root gives files away
                    os.fchown(file.fileno(), was.st_uid, was.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(was.st_mode))
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _edit_error(self, line: int | None, place: Place, what: str, right: str) -> ConfigError:
        return ConfigError([ConfigProblem(str(self.path), line, format_path(place), what, right)])


def snapshot(path: str | os.PathLike[str]) -> FileSnapshot:
    """The file as it is now. Raises ConfigError when it cannot be read."""
    found = Path(path)
    with _readable(found):
        data = regular_file.read_bytes(found)
    try:
        data.decode()
    except UnicodeDecodeError:
        raise ConfigError(
            [ConfigProblem(str(found), None, "", "is not UTF-8 text", "save the file as UTF-8")]
        ) from None
    return FileSnapshot(found, data)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
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


def _spelled(node: ScalarNode, value: str) -> str:
    """`value` in the quotes that were there, or in such as it needs."""
    if node.style is None and _PLAIN.fullmatch(value) and yaml_reader.plain(value) == value:
        return value
    if node.style == "'" and value.isprintable():
        return "'" + value.replace("'", "''") + "'"
    # A string of JSON is a double-quoted scalar of YAML.
    return json.dumps(value, ensure_ascii=False)


def _set_value(data: Any, place: Place, value: str) -> None:
    for key in place[:-1]:
        data = data[key]
    data[place[-1]] = value
