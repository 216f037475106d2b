"""A rack file before it is text: its data, a note for some of its lines, and what it does not say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkrack.fleet.errors import Path, dotted, one_line


@dataclass(frozen=True)
class Gap:
    """A place of the file, and in words what it cannot say, or what nobody could tell."""

    place: Path
    why: str

    def __str__(self) -> str:
        return f"{dotted(self.place)}: {one_line(self.why)}"


@dataclass
class Sheet:
    """`data`: the file's keys in their order. `notes`: what stands behind the line of a key, without `#`.

    `heads`: lines of comment above a key, or above all for (). `missing`: what was not found, so that the file is not
    ready. `beyond`: what is there and no key can say.
    """

    data: dict[str, Any] = field(default_factory=dict)
    notes: dict[Path, str] = field(default_factory=dict)
    heads: dict[Path, list[str]] = field(default_factory=dict)
    missing: list[Gap] = field(default_factory=list)
    beyond: list[Gap] = field(default_factory=list)

    def note(self, place: Path, text: str) -> None:
        """Put a note behind a line; a second one goes after the first."""
        self.notes[place] = "; ".join(filter(None, (self.notes.get(place), one_line(text))))

    def lack(self, place: Path, why: str) -> None:
        """Something that must be known and is not. Its line says so, too."""
        self.missing.append(Gap(place, why))
        self.note(place, f"NOT FOUND: {why}")

    def lose(self, gaps: Iterable[Gap]) -> None:
        """What is there and has no key."""
        self.beyond.extend(gaps)

    def section(self, *path: str) -> dict[str, Any]:
        """The mapping at a place, made when it is not there."""
        found: Any = self.data
        for key in path:
            found = found.setdefault(key, {})
        if not isinstance(found, dict):
            raise TypeError(f"{path} is no section")
        return found


def most(values: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The value that most of these have - of equals the first one's - and who has another. KeyError for none."""
    counts: dict[Any, int] = {}
    for value in values.values():
        counts[value] = counts.get(value, 0) + 1
    if not counts:
        raise KeyError("no values")
    common = max(counts, key=lambda value: counts[value])
    return common, {name: value for name, value in values.items() if value != common}
