"""Keys of the rack file that have another place than in the version before: each is read, and one line names both."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from core.model.errors import Path, RuleViolation, format_path
from core.model.yaml_reader import YamlDocument

ANY = "*"
"""Stands for the name of a node, switch or cage in a path."""


@dataclass(frozen=True)
class MovedKey:
    """A key that moved. `old`, `new`: paths from the top of the file; each ANY of `new` is that of `old`, in order.
    `since`: the version that has it at the new place."""

    old: Path
    new: Path
    since: str


MOVED: tuple[MovedKey, ...] = ()
"""The keys that moved since the version before; docs/releasing.md says when an entry is removed. 0.1.0 is the first
version, so it has none."""

_reported: set[str] = set()


def move(document: YamlDocument, file: str, moved: Iterable[MovedKey]) -> list[tuple[int, RuleViolation]]:
    """Put each moved key of a document at its new place, and print one line for each. Returns the keys that are at
    both places, with their lines: which one counts is unknown."""
    problems: list[tuple[int, RuleViolation]] = []
    for entry in moved:
        for old, new in list(_places(document.data, entry)):
            line = document.line(old)
            if not _fits(document.data, new):
                continue  # it is reported as an unknown key
            if _has(document.data, new):
                what = f"moved to {format_path(new)}, which is there, too"
                problems.append((line, RuleViolation(old, what, "remove one of the two")))
                continue
            _put(document.data, new, _take(document.data, old))
            for known in (document.lines, document.spelling):
                _rename(known, old, new)
            _report(
                f"{file}:{line}: {format_path(old)} moved to {format_path(new)} in {entry.since}; "
                "it is read there; write it there"
            )
    return problems


def _report(text: str) -> None:
    """Print a line once for a process; never while a shell completes a command line."""
    if text not in _reported and "_SPARKRACK_COMPLETE" not in os.environ:
        print(text, file=sys.stderr)
    _reported.add(text)


def _places(data: Any, entry: MovedKey) -> Iterator[tuple[Path, Path]]:
    """The old and the new path of each value that stands at the old place."""

    def below(value: Any, rest: Path, at: Path, names: Path) -> Iterator[tuple[Path, Path]]:
        if not rest:
            found = iter(names)
            yield at, tuple(next(found) if part == ANY else part for part in entry.new)
        elif isinstance(value, dict):
            for key in list(value) if rest[0] == ANY else [rest[0]] if rest[0] in value else []:
                yield from below(value[key], rest[1:], (*at, key), (*names, key) if rest[0] == ANY else names)

    yield from below(data, entry.old, (), ())


def _has(data: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


def _fits(data: Any, path: Path) -> bool:
    """Whether every section on the way to a path is a mapping, or missing."""
    for part in path[:-1]:
        if not isinstance(data, dict):
            return False
        data = data.get(part, {})
    return isinstance(data, dict)


def _take(data: Any, path: Path) -> Any:
    """Remove a value and return it; sections that it leaves empty go, too."""
    value = data[path[0]]
    if len(path) == 1:
        return data.pop(path[0])
    taken = _take(value, path[1:])
    if not value:
        del data[path[0]]
    return taken


def _put(data: Any, path: Path, value: Any) -> None:
    for part in path[:-1]:
        data = data.setdefault(part, {})
    data[path[-1]] = value


def _rename(known: dict[Path, Any], old: Path, new: Path) -> None:
    for path in [path for path in known if path[: len(old)] == old]:
        known[(*new, *path[len(old) :])] = known.pop(path)
