"""Changes of a run, as data: what `plan`, `drift` and `apply` show, keep and compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from typing import Literal, Self

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from core.util.event import Action, Event, EventData, EventKind
from core.util.records import Record, Text

CHANGES = frozenset({EventKind.CHANGE, EventKind.FILE, EventKind.RESTART})
"""Event kinds that change a host."""
NO_OTHER_FIELDS = ConfigDict(extra="forbid")
"""The configuration of each record of an event: like a Record it accepts no unknown fields."""


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_FIELDS)
class EventRecord(EventData):
    """The data of an event in a report. `message`: all of it as one sentence."""

    message: str


@dataclass(frozen=True, kw_only=True, config=NO_OTHER_FIELDS)
class Message(EventRecord):
    """One thing that an operation reports of a machine. `diff`: lines of a unified diff, when it is about a file."""

    kind: EventKind
    diff: tuple[str, ...] = ()

    @classmethod
    def of(cls, event: Event) -> Self:
        """The record of an event. Its role is that of the operation."""
        return cls(**{field.name: getattr(event, field.name) for field in fields(cls)})


class OperationPlan(Record):
    """One operation on one machine. `commands`: how many it would send; 0 for one that only reports something."""

    role: str
    title: str
    commands: int
    events: tuple[Message, ...]


class HostState(StrEnum):
    """How a machine stands to its declaration."""

    IN_SYNC = "in sync"
    CHANGES = "changes"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"


class HostPlan(Record):
    """One node or switch. `reason`: why it cannot be reached. `operations`: only those that report or do anything."""

    name: str
    kind: Literal["node", "switch"]
    state: HostState
    reason: str = ""
    operations: tuple[OperationPlan, ...] = ()

    def events(self, *kinds: EventKind) -> Iterator[tuple[OperationPlan, Message]]:
        """What was reported of these kinds, with the operation that reported it."""
        for operation in self.operations:
            yield from ((operation, event) for event in operation.events if event.kind in kinds)

    @property
    def changes(self) -> int:
        """How many things a run would change."""
        return sum(1 for _ in self.events(*CHANGES))


class SavedPlan(Record):
    """What was found out about a rack and is kept or printed: its JSON begins with these. `file`: the rack file;
    `made`: when."""

    schema_: str = Field(alias="schema")
    rack: str
    file: Text
    revision: str
    made: datetime


class Plan(SavedPlan):
    """What a run of deploy.py would do to these machines.

    `roles`: those that were evaluated. `revision`: the git revision of the rack file's folder, with `+` when something
    there is not committed; empty outside git.
    """

    schema_: Literal["sparkrack.plan/2"] = Field("sparkrack.plan/2", alias="schema", serialization_alias="schema")
    roles: tuple[str, ...]
    hosts: tuple[HostPlan, ...]

    @property
    def changes(self) -> int:
        """How many things a run would change, on all machines."""
        return sum(machine.changes for machine in self.hosts)

    @property
    def unknown_hosts(self) -> tuple[HostPlan, ...]:
        """Hosts of which nothing reliable is known, or that a run would refuse."""
        return tuple(m for m in self.hosts if m.state not in (HostState.IN_SYNC, HostState.CHANGES))

    @property
    def upgrades(self) -> int:
        """How many reasons there are to upgrade the software of a machine, which no run does."""
        found = (event for machine in self.hosts for _, event in machine.events(EventKind.BROKEN))
        return sum(event.action is Action.UPGRADE for event in found)

    @property
    def code(self) -> int:
        """What a run would do: 1 when any machine is unknown or refused, 2 for changes, 0 nothing."""
        if self.unknown_hosts:
            return 1
        return 2 if any(machine.state is HostState.CHANGES for machine in self.hosts) else 0

    @property
    def fingerprint(self) -> str:
        """The same for two plans that would do the same: what is only worth knowing does not count."""
        acts = CHANGES | {EventKind.EFFECT, EventKind.REFUSED, EventKind.UNKNOWN}
        heart = [
            (machine.name, machine.state, step.role, step.title, step.commands, event.kind, event.message, event.diff)
            for machine in self.hosts
            for step, event in machine.events(*acts)
        ]
        names = [(machine.name, machine.state) for machine in self.hosts]
        return hashlib.sha256(json.dumps([self.roles, names, heart]).encode()).hexdigest()[:16]
