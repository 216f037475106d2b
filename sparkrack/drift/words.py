"""What findings are called, the same in every format."""

from __future__ import annotations

from collections.abc import Mapping

from sparkrack.fleet.errors import one_line
from sparkrack.ops.account import Sort
from sparkrack.run.drift import Difference, Drift, Finding, Kind

TITLES: Mapping[Kind, str] = {
    Kind.DECLARED: "Not as declared (seen -> declared)",
    Kind.RUNTIME: "Configured as declared, and does not work",
    Kind.FLEET: "Unlike the other nodes",
    Kind.UNMANAGED: "Not managed, and left alone (no drift)",
    Kind.UNKNOWN: "Could not be told",
}
"""The heading of each kind, in the order of a report."""

_FILES = {"create": "is missing", "modify": "differs", "remove": "is there, and should not be"}
_VERDICTS = {0: "in sync", 1: "cannot be told", 2: "drift"}


def sentence(finding: Finding) -> str:
    """One printable line about a finding."""
    return _said(finding.sort, finding.text)


def _said(sort: Sort, raw: str) -> str:
    text = one_line(raw)
    if sort is Sort.REFUSED:
        return f"a person must mend this: {text}"
    if sort is Sort.FILE:
        verb, _, path = text.partition(" ")
        return f"{path} {_FILES[verb]}" if verb in _FILES else text
    return text


def difference(one: Difference) -> str:
    """One printable line about what came or went."""
    where = f"{one.machine} {one.role}" if one.role else f"{one.machine} unreachable"
    return f"{where} ({one.kind}): {_said(one.sort, one.text)}"


def total(drift: Drift) -> str:
    """The last line: the verdict, how much of each kind, how many machines could not be told."""
    counts = ", ".join(f"{drift.counts[kind]} {kind}" for kind in Kind if kind is not Kind.UNKNOWN)
    return f"{_VERDICTS[drift.code]}: {counts}; {len(drift.untold)} of {len(drift.machines)} machines unknown"
