"""A rack file before it is text: its data, notes for some of its lines, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.model.errors import Path, format_path, printable_line


@dataclass(frozen=True)
class Gap:
    """A place of the file, and what it cannot express, or why its value is unknown."""

    place: Path
    why: str

    def __str__(self) -> str:
        return f"{format_path(self.place)}: {printable_line(self.why)}"


@dataclass
class RackDraft:
    """`data`: the file's keys in their order. `notes`: what stands behind the line of a key, without `#`.

    `heads`: lines of comment above a key, or above all for (). `missing`: what was not found, so that the file is not
    ready. `unrepresentable`: what exists and no key can express. `compact`: a line for each section, without heads.
    """

    data: dict[str, Any] = field(default_factory=dict)
    notes: dict[Path, str] = field(default_factory=dict)
    heads: dict[Path, list[str]] = field(default_factory=dict)
    missing: list[Gap] = field(default_factory=list)
    unrepresentable: list[Gap] = field(default_factory=list)
    compact: bool = False

    def note(self, place: Path, text: str) -> None:
        """Put a note behind a line; a second one goes after the first."""
        self.notes[place] = "; ".join(filter(None, (self.notes.get(place), printable_line(text))))

    def add_missing(self, place: Path, why: str) -> None:
        """Add a value that is required and unknown. Its line gets a note, too."""
        self.missing.append(Gap(place, why))
        self.note(place, f"NOT FOUND: {why}")

    def add_gap(self, gaps: Iterable[Gap]) -> None:
        """Add what exists and has no key."""
        self.unrepresentable.extend(gaps)

    def section(self, *path: str) -> dict[str, Any]:
        """The mapping at a place, made when it is not there."""
        found: Any = self.data
        for key in path:
            found = found.setdefault(key, {})
        if not isinstance(found, dict):
            raise TypeError(f"{path} is not a section")
        return found


def majority(values: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the value that most have (the first of equals), and the others by name. Raises KeyError for no values."""
    counts: dict[Any, int] = {}
    for value in values.values():
        counts[value] = counts.get(value, 0) + 1
    if not counts:
        raise KeyError("no values")
    common = max(counts, key=lambda value: counts[value])
    return common, {name: value for name, value in values.items() if value != common}
