"""What a check says besides that it passed or failed: several faults at once, values, or what is worth knowing."""

from __future__ import annotations

from collections.abc import Iterable

from sparkrack.proof.found import Bandwidth, Reach

FAULT, UNKNOWN, NOTE, MEASURED, ENDED = "fault", "unknown", "note", "measured", "ended"
"""Names of a test's properties; a JUnit report shows them as they are. ENDED: by an exception that is no finding."""


class UnknownError(Exception):
    """What a check is about could not be learnt, so nothing is proven either way. The text is one line."""


class Told:
    """The words of one check, kept among its test's properties."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def note(self, text: str) -> None:
        """Tell something that is no fault, in one line."""
        self._properties.append((NOTE, text))

    def measured(self, value: Reach | Bandwidth) -> None:
        """Tell a value, whatever is judged of it."""
        self._properties.append((MEASURED, value.model_dump_json()))

    def judge(self, faults: Iterable[str], unknown: Iterable[str] = ()) -> None:
        """Fail if there is any fault, or anything that could not be learnt; each, in one line, becomes a failure of
        its own in the report.

        Raises AssertionError for faults, UnknownError when there is none and something is unknown.
        """
        found, dark = tuple(faults), tuple(unknown)
        self._properties.extend((FAULT, text) for text in found)
        self._properties.extend((UNKNOWN, text) for text in dark)
        if found:
            raise AssertionError("; ".join((*found, *dark)))
        if dark:
            raise UnknownError("; ".join(dark))


def of(properties: Iterable[tuple[str, object]], name: str) -> tuple[str, ...]:
    """What was told under one of the names."""
    return tuple(str(text) for told, text in properties if told == name)
