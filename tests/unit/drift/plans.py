"""Plans for drift."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from core.model.selection import ROLES
from core.util.event import Action, Event, EventKind, FieldValue, value_change
from sparkrack.drift.systemd_timer import SystemdTimer
from sparkrack.engine.plan import CHANGES, HostPlan, HostState, Message, OperationPlan, Plan

MADE = datetime(2026, 11, 20, 8, 30, 5, 123_456, tzinfo=UTC)

PrintedEvent = tuple[str, EventKind, str] | tuple[str, Event]
"""Role, kind and detail of an event; or role and event."""


def plan(*machines: HostPlan, roles: Iterable[str] = ROLES, made: datetime = MADE) -> Plan:
    return Plan(
        rack="lab",
        file="rack.yaml",
        revision="0123456789ab",
        made=made,
        roles=tuple(sorted(roles)),
        hosts=machines,
    )


def machine(name: str, *printed: PrintedEvent, kind: Literal["node", "switch"] = "node") -> HostPlan:
    """Return the plan of a reached host; its state follows from its events."""
    steps = tuple(_make_step(*one) for one in printed)
    sorts = {reported.kind for step in steps for reported in step.events}
    standing = HostState.CHANGES if sorts & CHANGES else HostState.IN_SYNC
    if EventKind.REFUSED in sorts:
        standing = HostState.REFUSED
    if EventKind.UNKNOWN in sorts:
        standing = HostState.UNKNOWN
    return HostPlan(name=name, kind=kind, state=standing, operations=steps)


def modified(path: str, *diff: str) -> Event:
    """A file that a run would change."""
    return Event(EventKind.FILE, path=path, action=Action.MODIFY, diff=diff)


def _make_step(role: str, event: EventKind | Event, text: str = "") -> OperationPlan:
    reported = Message.of(event if isinstance(event, Event) else Event(event, detail=text))
    return OperationPlan(
        role=role, title="a sentence", commands=1 if reported.kind in CHANGES else 0, events=(reported,)
    )


def unreachable(name: str, why: str = "no route to host", kind: Literal["node", "switch"] = "node") -> HostPlan:
    return HostPlan(name=name, kind=kind, state=HostState.UNREACHABLE, reason=why)


MIXED = plan(
    machine(
        "spark1",
        ("preflight", EventKind.OUTLIER, "BIOS 5.36_0ACUM018, and 5.36_0ACUM023 on spark2"),
        ("access", modified("/etc/hosts", "@@ -1,2 +1,1 @@", " ::1 localhost", "-10.77.0.9 spark9")),
        ("memory", value_change("vm.min_free_kbytes", 45155, 1572864)),
        ("memory", EventKind.NOTE, "docker.memory: 100G is more than this node has"),
        ("docker", EventKind.UNMANAGED, "container old runs outside of sparkrack.slice"),
        ("fabric", EventKind.BROKEN, "enp1s0f1np1 has no carrier"),
    ),
    machine("spark2", ("rdma", EventKind.REFUSED, "/etc/nccl.conf turns RDMA off")),
    unreachable("spark3"),
    machine(
        "crs812",
        ("switch", Event(EventKind.EFFECT, subject="identity", detail="disturbs nothing")),
        (
            "switch",
            Event(
                EventKind.CHANGE,
                fields=(FieldValue("name", "MikroTik", "crs812"),),
                menu="/system/identity",
                action=Action.MODIFY,
            ),
        ),
        ("switch", Event(EventKind.UNMANAGED, subject="admin", menu="/user")),
        kind="switch",
    ),
)
"""A plan with every kind of finding."""

HOSTILE = "a\nb \"q\" 'q' ]]> </failure> <script> \x1b[31m | ``` @team {} %h \\ \udc80 \u202e é"
"""Output of a host that could break a report."""

TIMER = SystemdTimer(
    rack="lab",
    program=Path("/home/ops/sparkrack/.venv/bin/sparkrack"),
    file=Path("/home/ops/rack.yaml"),
    user="ops",
    every="1h",
    state=Path("/home/ops/.local/state"),
    prom=Path("/var/lib/prometheus/node-exporter/sparkrack.prom"),
)
"""The units in the document."""

EVIL = plan(
    machine(
        "spark1",
        *[(role, sort, HOSTILE) for role, sort in zip(ROLES, EventKind, strict=False) if role != "switch"],
        ("access", modified(f"/etc/{HOSTILE}", f"+{HOSTILE}", " ```")),
        ("images", EventKind.BROKEN, HOSTILE),
        ("images", EventKind.REFUSED, HOSTILE),
        ("images", EventKind.UNKNOWN, HOSTILE),
        ("images", EventKind.UNMANAGED, HOSTILE),
    ),
    unreachable("spark2", HOSTILE),
)
