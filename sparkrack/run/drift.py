"""How a rack differs from its declaration, as data: a plan, read by somebody who does not want to change anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from sparkrack.fleet.record import Record
from sparkrack.fleet.selection import ROLES
from sparkrack.ops.account import Sort
from sparkrack.run.plan import Document, Machine, Plan, Standing


class Kind(StrEnum):
    """What kind of finding it is. The values stand in JSON, metrics and history, and never change their meaning."""

    DECLARED = "declared"
    """A declared value that differs. A run mends it, or refuses, and then a person must."""
    RUNTIME = "runtime"
    """Configured as declared, and does not work. No run mends it."""
    FLEET = "fleet"
    """A node is unlike the others."""
    UNMANAGED = "unmanaged"
    """There, and not declared. Told, and no drift: what rack.yaml does not name is none of its business."""
    UNKNOWN = "unknown"
    """Could not be told, which is never "in sync"."""


KINDS: Mapping[Sort, Kind] = {
    Sort.CHANGE: Kind.DECLARED,
    Sort.FILE: Kind.DECLARED,
    Sort.RESTART: Kind.DECLARED,
    Sort.REFUSED: Kind.DECLARED,
    Sort.FAULT: Kind.RUNTIME,
    Sort.FLEET: Kind.FLEET,
    Sort.UNMANAGED: Kind.UNMANAGED,
    Sort.UNKNOWN: Kind.UNKNOWN,
}
"""The kind of what a plan says. Notes, and whom a change would disturb, are no findings."""

DRIFT = (Kind.DECLARED, Kind.RUNTIME, Kind.FLEET)
"""What makes the exit code 2."""


class Finding(Record):
    """One thing that was found. `sort`: how the plan says it; a file's text is `create|modify|remove PATH`, and its
    `diff` the lines of a unified diff from what is there to what is declared."""

    kind: Kind
    sort: Sort
    text: str
    diff: tuple[str, ...] = ()


class Looked(Record):
    """One role on one machine, and what it found there."""

    role: str
    findings: tuple[Finding, ...] = ()


class Compared(Record):
    """One node or switch.

    `told`: whether all of it could be told. If not, a role without findings is not in sync but unknown. `why`: the
    reason when the machine cannot be reached. `roles`: all that were looked at, in the order of deploy.py.
    """

    name: str
    kind: Literal["node", "switch"]
    told: bool
    why: str = ""
    roles: tuple[Looked, ...]

    def found(self, *kinds: Kind) -> Iterator[tuple[str, Finding]]:
        """What was found of these kinds, with its role."""
        for looked in self.roles:
            yield from ((looked.role, finding) for finding in looked.findings if finding.kind in kinds)


class Difference(Record):
    """A finding that came or went between two runs. `role` is empty for a machine that cannot be reached."""

    machine: str
    role: str
    kind: Kind
    sort: Sort
    text: str


class Since(Record):
    """What came and what went since an earlier run.

    `uncompared`: machines and roles of this run that the earlier one did not look at or could not tell, or the other
    way round, as `MACHINE` or `MACHINE ROLE`; of those it cannot be said what came or what went.
    """

    run: str
    made: datetime
    came: tuple[Difference, ...]
    went: tuple[Difference, ...]
    uncompared: tuple[str, ...]


class Drift(Document):
    """How these machines differ from their declaration.

    `revision`: the git revision of the rack file's folder, with `+` when something there is not committed; empty
    outside git. `since` is there when it was asked for; it is not kept.
    """

    schema_: Literal["sparkrack.drift/1"] = Field("sparkrack.drift/1", alias="schema", serialization_alias="schema")
    machines: tuple[Compared, ...]
    since: Since | None = None

    @property
    def counts(self) -> Counter[Kind]:
        """How many findings there are of each kind. A machine that cannot be reached has none."""
        return Counter(finding.kind for machine in self.machines for _, finding in machine.found(*Kind))

    @property
    def untold(self) -> tuple[Compared, ...]:
        """Machines of which not all could be told."""
        return tuple(machine for machine in self.machines if not machine.told)

    @property
    def code(self) -> int:
        """The exit code: 1 when anything could not be told or nothing was looked at, 2 for drift, 0 in sync."""
        if self.untold or not self.machines:
            return 1
        return 2 if any(self.counts[kind] for kind in DRIFT) else 0


def of(plan: Plan) -> Drift:
    """What a plan says about the rack as it is. A machine on which no role was evaluated is left out, if it was
    reached: nothing is known of it, and nothing was asked."""
    machines = (_compared(machine, plan.roles) for machine in plan.machines)
    return Drift(
        rack=plan.rack,
        file=plan.file,
        revision=plan.revision,
        made=plan.made,
        machines=tuple(machine for machine in machines if machine.roles or not machine.told),
    )


def _compared(machine: Machine, asked: Iterable[str]) -> Compared:
    found: dict[str, list[Finding]] = {
        role: [] for role in ROLES if role in asked and (role == "switch") == (machine.kind == "switch")
    }
    for step, said in machine.said(*KINDS):
        finding = Finding(
            kind=KINDS[said.sort],
            sort=said.sort,
            text=_utf8(said.text.removeprefix(f"{step.role}: ")),
            diff=tuple(map(_utf8, said.diff)),
        )
        found.setdefault(step.role, []).append(finding)
    roles = tuple(Looked(role=role, findings=tuple(findings)) for role, findings in found.items())
    unknown = any(finding.kind is Kind.UNKNOWN for looked in roles for finding in looked.findings)
    told = not unknown and machine.standing not in (Standing.UNKNOWN, Standing.UNREACHABLE)
    return Compared(name=machine.name, kind=machine.kind, told=told, why=_utf8(machine.why), roles=roles)


def _utf8(text: str) -> str:
    """Text that can be written: bytes of a machine that are no UTF-8 may have become half characters."""
    return text.encode("utf-8", "backslashreplace").decode()
