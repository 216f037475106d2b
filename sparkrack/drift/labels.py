"""Labels of findings, the same in every format."""

from __future__ import annotations

from collections.abc import Mapping

from core.model.errors import printable_line
from core.util.event import Action, EventKind
from sparkrack.drift.findings import Difference, Drift, DriftFinding, FindingKind

TITLES: Mapping[FindingKind, str] = {
    FindingKind.DECLARED: "Not as declared (actual -> declared)",
    FindingKind.BROKEN: "Configured correctly but not working",
    FindingKind.OUTLIER: "Unlike the other nodes",
    FindingKind.UNMANAGED: "Not managed, and left alone (no drift)",
    FindingKind.UNKNOWN: "Unknown",
}
"""The heading of each kind, in the order of a report."""

_FILES = {
    Action.CREATE: "is missing",
    Action.MODIFY: "differs",
    Action.REMOVE: "should not exist",
}
_IMAGES = (Action.COPY, Action.PULL, Action.NAME)
"""What a run does about an image that a node does not have under its name."""
_VERDICTS = {0: "in sync", 1: "unknown", 2: "drift"}


def sentence(finding: DriftFinding | Difference) -> str:
    """One printable line about a finding."""
    if finding.event_kind is EventKind.FILE and finding.path is not None and finding.action in _FILES:
        return f"{printable_line(finding.path)} {_FILES[finding.action]}"
    text = printable_line(finding.message)
    if finding.action in _IMAGES:
        image = finding.detail if finding.action is Action.NAME else finding.subject
        return f"image {printable_line(image or '')} is missing; a run would {text}"
    return f"manual fix required: {text}" if finding.event_kind is EventKind.REFUSED else text


def difference(one: Difference) -> str:
    """One printable line about a finding that appeared or was resolved."""
    where = f"{one.host} {one.role}" if one.role else f"{one.host} unreachable"
    return f"{where} ({one.kind}): {sentence(one)}"


def total(drift: Drift) -> str:
    """The last line: the verdict, how much of each kind, how many machines are unknown."""
    counts = ", ".join(f"{drift.counts[kind]} {kind}" for kind in FindingKind if kind is not FindingKind.UNKNOWN)
    return f"{_VERDICTS[drift.code]}: {counts}; {len(drift.unknown_hosts)} of {len(drift.hosts)} machines unknown"
