"""Results of a check beyond passed or failed: several problems at once, values, and notes."""

from __future__ import annotations

from collections.abc import Iterable

from core.probes.protocol import UnknownError
from core.verify.measurements import Measured

FAULT, UNKNOWN, NOTE, MEASURED, ENDED = "fault", "unknown", "note", "measured", "ended"
"""Names of a test's properties; a JUnit report shows them as they are. ENDED: by an exception that is not a finding."""


class CheckReporter:
    """The words of one check, kept among its test's properties."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties

    def note(self, text: str) -> None:
        """Report a note, in one line; it is not a problem."""
        self._properties.append((NOTE, text))

    def measured(self, value: Measured) -> None:
        """Report a measured value, regardless of its verdict."""
        self._properties.append((MEASURED, value.model_dump_json()))

    def judge(self, faults: Iterable[str], unknown: Iterable[str] = ()) -> None:
        """Fail if there is any problem, or anything unknown; each, in one line, becomes a separate failure in the
        report.

        Raises AssertionError for problems, UnknownError when there is none and something is unknown.
        """
        found, dark = tuple(faults), tuple(unknown)
        self._properties.extend((FAULT, text) for text in found)
        self._properties.extend((UNKNOWN, text) for text in dark)
        if found:
            raise AssertionError("; ".join((*found, *dark)))
        if dark:
            raise UnknownError("; ".join(dark))


def properties_named(properties: Iterable[tuple[str, object]], name: str) -> tuple[str, ...]:
    """Return the values that were reported under one of the names."""
    return tuple(str(text) for kept, text in properties if kept == name)
