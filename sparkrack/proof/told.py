"""What a check says besides that it passed or failed: several faults at once, or what is worth knowing anyway."""

from __future__ import annotations

from collections.abc import Iterable

FAULT, NOTE = "fault", "note"
"""Names of a test's properties; a JUnit report shows them as they are."""


class Told:
    """The words of one check, kept among its test's properties."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def note(self, text: str) -> None:
        """Tell something that is no fault, in one line."""
        self._properties.append((NOTE, text))

    def judge(self, faults: Iterable[str]) -> None:
        """Fail if there is any fault; each, in one line, becomes a failure of its own in the report."""
        found = tuple(faults)
        self._properties.extend((FAULT, text) for text in found)
        if found:
            raise AssertionError("; ".join(found))


def of(properties: Iterable[tuple[str, object]], name: str) -> tuple[str, ...]:
    """What was told under one of the names."""
    return tuple(str(text) for told, text in properties if told == name)
