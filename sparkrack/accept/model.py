"""The result of `sparkrack accept`, as data; it is also its JSON."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from pydantic import ConfigDict, Field

from core.util.provenance import Origin
from core.util.records import Record, Text

Level = Literal["look", "change", "load"]
RunLevel = Literal["look", "change"]
"""The levels that a run observes."""
Result = Literal["refuted", "observed", "not observed"]


class MachineResult(Record):
    """What one host shows of a claim. `unknown`: it was asked and gave no answer that is understood."""

    host: str
    result: Result
    evidence: Text = Field(description="one line of at most 400 characters, without secrets")
    unknown: bool = False


class ClaimResult(Record):
    """One claim, and what the rack shows of it."""

    id: str
    level: Level = Field(description="what an observation does to the rack")
    claim: Text
    result: Result
    reason: Text = Field(description="why it is not observed; else empty")
    observe: Text = Field(description="the reading that settles it")
    refutes: Text = Field(description="the observation that refutes it")
    matters: Text = Field(description="what it means when it is refuted")
    hosts: tuple[MachineResult, ...]

    @property
    def unknown(self) -> bool:
        """Whether a host could not be read."""
        return any(one.unknown for one in self.hosts)


class HostReading(Record):
    """Whether a host answered at all, and why not."""

    host: str
    answered: bool
    reason: Text = ""


class AcceptReport(Record):
    """The claims of this project, and what one rack shows of each."""

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["sparkrack.accept/2"] = Field("sparkrack.accept/2", alias="schema")
    rack: str = Field(description="the name of the rack")
    origin: Origin
    level: RunLevel = Field(description="the level of this run; `change` includes `look`")
    hosts: tuple[HostReading, ...]
    claims: tuple[ClaimResult, ...] = Field(description="refuted ones first")

    @property
    def counts(self) -> Counter[Result]:
        """The number of claims by result."""
        return Counter(one.result for one in self.claims)

    @property
    def exit(self) -> int:
        """The exit code: 1 when no host could be read, 2 when a claim is refuted, else 0."""
        settled = self.counts["refuted"] + self.counts["observed"]
        if not settled and not any(host.answered for host in self.hosts):
            return 1
        return 2 if self.counts["refuted"] else 0

    def to_json(self) -> str:
        """The record as text, with its schema's name first."""
        return self.model_dump_json(by_alias=True, indent=2)
