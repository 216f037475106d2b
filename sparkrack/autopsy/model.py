"""Content of `sparkrack autopsy`, as data; it is also its JSON. None is an unknown value."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from core.util.records import Record, Text
from sparkrack.autopsy.evidence import SourceState
from sparkrack.autopsy.verdict import Cause, Confidence


class SourceReport(Record):
    """A source of evidence. `skew`: seconds by which its clock is ahead of this machine's."""

    name: str
    state: SourceState
    detail: Text
    skew: float | None = None


class SignReport(Record):
    """A sign of a cause. `proof`: a record that names the cause; else a pattern of several sources."""

    cause: Cause
    proof: bool
    source: str
    text: Text


class TimelineEntry(Record):
    """One event, at the time of this machine's clock."""

    at: AwareDatetime
    source: str
    text: Text


class UnitAfter(Record):
    """A unit that spans nodes; all of them are to be rebooted before its next start."""

    unit: str
    nodes: tuple[str, ...]


class AutopsyReport(Record):
    """Why the latest boot of a node ended. `boot`: the boot that ended. `alive`: the node answers now. `last_sign`: of
    that boot, and its source. `against`: signs of other causes.
    """

    schema_: Literal["sparkrack.autopsy/1"] = Field("sparkrack.autopsy/1", alias="schema", serialization_alias="schema")
    rack: str
    node: str
    made: AwareDatetime
    verdict: Cause
    confidence: Confidence | None
    reason: Text
    alive: bool
    boot: str | None
    last_sign: AwareDatetime | None
    last_source: str | None
    signs: tuple[SignReport, ...]
    against: tuple[SignReport, ...]
    remarks: tuple[Text, ...]
    units: tuple[UnitAfter, ...]
    sources: tuple[SourceReport, ...]
    timeline: tuple[TimelineEntry, ...]

    @property
    def code(self) -> int:
        """The exit code: 0 for a planned end, 2 for any other known one, 1 when the cause is unknown."""
        return {Cause.PLANNED: 0, Cause.UNKNOWN: 1}.get(self.verdict, 2)
