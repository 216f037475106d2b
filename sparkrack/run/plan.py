"""What a run would do, as data: what `plan`, `drift` and `apply` show, keep and compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from sparkrack.fleet.record import Record, Text
from sparkrack.ops.account import Sort

CHANGES = frozenset({Sort.CHANGE, Sort.FILE, Sort.RESTART})
"""What a run would do to a machine."""


class Said(Record):
    """One thing that an operation says of a machine. `diff`: lines of a unified diff, when it is about a file."""

    sort: Sort
    text: str
    diff: tuple[str, ...] = ()


class Step(Record):
    """One operation on one machine. `commands`: how many it would send; 0 for one that only says something."""

    role: str
    title: str
    commands: int
    said: tuple[Said, ...]


class Standing(StrEnum):
    """How a machine stands to its declaration."""

    IN_SYNC = "in sync"
    CHANGES = "changes"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"


class Machine(Record):
    """One node or switch. `why`: the reason when it cannot be reached. `steps`: only those that say or do anything."""

    name: str
    kind: Literal["node", "switch"]
    standing: Standing
    why: str = ""
    steps: tuple[Step, ...] = ()

    def said(self, *sorts: Sort) -> Iterator[tuple[Step, Said]]:
        """What was said of these kinds, with the operation that said it."""
        for step in self.steps:
            yield from ((step, said) for said in step.said if said.sort in sorts)

    @property
    def changes(self) -> int:
        """How many things a run would change."""
        return sum(1 for _ in self.said(*CHANGES))


class Document(Record):
    """What was found out about a rack and is kept or printed: its JSON begins with these. `file`: the rack file;
    `made`: when."""

    schema_: str = Field(alias="schema")
    rack: str
    file: Text
    revision: str
    made: datetime


class Plan(Document):
    """What a run of deploy.py would do to these machines.

    `roles`: those that were evaluated. `revision`: the git revision of the rack file's folder, with `+` when something
    there is not committed; empty outside git.
    """

    schema_: Literal["sparkrack.plan/1"] = Field("sparkrack.plan/1", alias="schema", serialization_alias="schema")
    roles: tuple[str, ...]
    machines: tuple[Machine, ...]

    @property
    def changes(self) -> int:
        """How many things a run would change, on all machines."""
        return sum(machine.changes for machine in self.machines)

    @property
    def untold(self) -> tuple[Machine, ...]:
        """Machines of which nothing reliable can be said, or that a run would refuse."""
        return tuple(m for m in self.machines if m.standing not in (Standing.IN_SYNC, Standing.CHANGES))

    @property
    def code(self) -> int:
        """The exit code: 1 when any machine could not be told or is refused, 2 for changes, 0 in sync."""
        if self.untold:
            return 1
        return 2 if any(machine.standing is Standing.CHANGES for machine in self.machines) else 0

    @property
    def fingerprint(self) -> str:
        """The same for two plans that would do the same: what is only worth knowing does not count."""
        acts = CHANGES | {Sort.EFFECT, Sort.REFUSED, Sort.UNKNOWN}
        heart = [
            (machine.name, machine.standing, step.role, step.title, step.commands, said.sort, said.text, said.diff)
            for machine in self.machines
            for step, said in machine.said(*acts)
        ]
        names = [(machine.name, machine.standing) for machine in self.machines]
        return hashlib.sha256(json.dumps([self.roles, names, heart]).encode()).hexdigest()[:16]
