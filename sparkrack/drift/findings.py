"""Differences of a rack from its declaration, as data: another view of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from core.model.role import roles
from core.util.event import EventKind
from core.util.records import Record
from sparkrack.engine.plan import NO_OTHER_FIELDS, EventRecord, HostPlan, HostState, Plan, SavedPlan


class FindingKind(StrEnum):
    """What kind of finding it is. The values stand in JSON, metrics and history, and never change their meaning."""

    DECLARED = "declared"
    """A declared value that differs. A run fixes it, or refuses, and then the operator must."""
    BROKEN = "broken"
    """Configured as declared, but not working. No run fixes it."""
    OUTLIER = "outlier"
    """A node differs from the others."""
    UNMANAGED = "unmanaged"
    """Exists, but not declared. Reported, but not drift: rack.yaml makes no statement about it."""
    UNKNOWN = "unknown"
    """Unknown, which is never "in sync"."""


KINDS: Mapping[EventKind, FindingKind] = {
    EventKind.CHANGE: FindingKind.DECLARED,
    EventKind.FILE: FindingKind.DECLARED,
    EventKind.RESTART: FindingKind.DECLARED,
    EventKind.REFUSED: FindingKind.DECLARED,
    EventKind.BROKEN: FindingKind.BROKEN,
    EventKind.OUTLIER: FindingKind.OUTLIER,
    EventKind.UNMANAGED: FindingKind.UNMANAGED,
    EventKind.UNKNOWN: FindingKind.UNKNOWN,
}
"""Finding kind of each event kind of a plan. Notes, and effects of a change, are not findings."""

SCHEMA: Literal["sparkrack.drift/2"] = "sparkrack.drift/2"

DRIFT = (FindingKind.DECLARED, FindingKind.BROKEN, FindingKind.OUTLIER)
"""The kinds with exit code 2."""


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_FIELDS)
class DriftFinding(EventRecord):
    """One thing that was found. `event_kind`: as the plan reports it; of a file `diff` holds the lines of a unified
    diff from what is there to what is declared."""

    kind: FindingKind
    event_kind: EventKind
    diff: tuple[str, ...] = ()


class RolesChecked(Record):
    """One role on one machine, and what it found there."""

    role: str
    findings: tuple[DriftFinding, ...] = ()


class Comparison(Record):
    """One node or switch.

    `complete`: whether all of it could be read. If not, a role without findings is not in sync but unknown. `reason`:
    why the machine cannot be reached. `roles`: all that were checked, in the order of deploy.py.
    """

    name: str
    kind: Literal["node", "switch"]
    complete: bool
    reason: str = ""
    roles: tuple[RolesChecked, ...]

    def found(self, *kinds: FindingKind) -> Iterator[tuple[str, DriftFinding]]:
        """Yield the findings of these kinds, each with its role."""
        for looked in self.roles:
            yield from ((looked.role, finding) for finding in looked.findings if finding.kind in kinds)


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_FIELDS)
class Difference(EventRecord):
    """A finding that appeared or was resolved between two runs. `role` is empty for an unreachable machine."""

    host: str
    role: str
    kind: FindingKind
    event_kind: EventKind


class Since(Record):
    """Findings that appeared or were resolved since an earlier run.

    `uncompared`: machines and roles of this run that the earlier one did not check or could not read, or the other
    way round, as `MACHINE` or `MACHINE ROLE`; of those it is unknown what appeared or was resolved.
    """

    run: str
    made: datetime
    appeared: tuple[Difference, ...]
    resolved: tuple[Difference, ...]
    uncompared: tuple[str, ...]


class Drift(SavedPlan):
    """How these machines differ from their declaration.

    `revision`: the git revision of the rack file's folder, with `+` when something there is not committed; empty
    outside git. `since` is there when it was asked for; it is not kept.
    """

    schema_: Literal["sparkrack.drift/2"] = Field(SCHEMA, alias="schema", serialization_alias="schema")
    hosts: tuple[Comparison, ...]
    since: Since | None = None

    @property
    def counts(self) -> Counter[FindingKind]:
        """How many findings there are of each kind. A machine that cannot be reached has none."""
        return Counter(finding.kind for machine in self.hosts for _, finding in machine.found(*FindingKind))

    @property
    def unknown_hosts(self) -> tuple[Comparison, ...]:
        """Hosts of which not all could be read."""
        return tuple(machine for machine in self.hosts if not machine.complete)

    @property
    def code(self) -> int:
        """The exit code: 1 when anything is unknown or nothing was checked, 2 for drift, 0 in sync."""
        if self.unknown_hosts or not self.hosts:
            return 1
        return 2 if any(self.counts[kind] for kind in DRIFT) else 0


def drift_of(plan: Plan) -> Drift:
    """Derive the drift of the rack from a plan. A reached host on which no role was evaluated is left out: nothing is
    known of it, and nothing was read.
    """
    machines = (_compare_machine(machine, plan.roles) for machine in plan.hosts)
    return Drift(
        rack=plan.rack,
        file=plan.file,
        revision=plan.revision,
        made=plan.made,
        hosts=tuple(machine for machine in machines if machine.roles or not machine.complete),
    )


def _compare_machine(machine: HostPlan, asked: Iterable[str]) -> Comparison:
    found: dict[str, list[DriftFinding]] = {
        role.key: [] for role in roles() if role.key in asked and role.machine == machine.kind
    }
    for step, event in machine.events(*KINDS):
        record = _utf8_values(asdict(event)) | {"kind": KINDS[event.kind], "event_kind": event.kind}
        found.setdefault(step.role, []).append(DriftFinding(**record))
    checked = tuple(RolesChecked(role=role, findings=tuple(findings)) for role, findings in found.items())
    unknown = any(finding.kind is FindingKind.UNKNOWN for looked in checked for finding in looked.findings)
    complete = not unknown and machine.state not in (HostState.UNKNOWN, HostState.UNREACHABLE)
    return Comparison(
        name=machine.name, kind=machine.kind, complete=complete, reason=_writable_text(machine.reason), roles=checked
    )


def _utf8_values(value: Any) -> Any:
    """A value with all texts in it so that they can be written."""
    if isinstance(value, str):
        return _writable_text(value)
    if isinstance(value, Mapping):
        return {name: _utf8_values(one) for name, one in value.items()}
    return tuple(map(_utf8_values, value)) if isinstance(value, tuple | list) else value


def _writable_text(text: str) -> str:
    """Text that can be written: bytes of a machine that are not UTF-8 may have become half characters."""
    return text.encode("utf-8", "backslashreplace").decode()
