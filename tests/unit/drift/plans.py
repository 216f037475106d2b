"""Plans to read as drift."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from sparkrack.drift.units import Timer
from sparkrack.fleet.selection import ROLES
from sparkrack.ops.account import Sort
from sparkrack.run.plan import CHANGES, Machine, Plan, Said, Standing, Step

MADE = datetime(2026, 11, 20, 8, 30, 5, 123_456, tzinfo=UTC)

Told = tuple[str, Sort, str] | tuple[str, Sort, str, tuple[str, ...]]
"""Role, sort, text; the differences of a file."""


def plan(*machines: Machine, roles: Iterable[str] = ROLES, made: datetime = MADE) -> Plan:
    return Plan(
        rack="lab",
        file="group_data/rack.yaml",
        revision="0123456789ab",
        made=made,
        roles=tuple(sorted(roles)),
        machines=machines,
    )


def machine(name: str, *told: Told, kind: Literal["node", "switch"] = "node") -> Machine:
    """A machine that was reached; it stands as what is told of it."""
    steps = tuple(_step(*one) for one in told)
    sorts = {said.sort for step in steps for said in step.said}
    standing = Standing.CHANGES if sorts & CHANGES else Standing.IN_SYNC
    if Sort.REFUSED in sorts:
        standing = Standing.REFUSED
    if Sort.UNKNOWN in sorts:
        standing = Standing.UNKNOWN
    return Machine(name=name, kind=kind, standing=standing, steps=steps)


def _step(role: str, sort: Sort, text: str, diff: tuple[str, ...] = ()) -> Step:
    said = Said(sort=sort, text=text, diff=diff)
    return Step(role=role, title="a sentence", commands=1 if sort in CHANGES else 0, said=(said,))


def unreachable(name: str, why: str = "no route to host", kind: Literal["node", "switch"] = "node") -> Machine:
    return Machine(name=name, kind=kind, standing=Standing.UNREACHABLE, why=why)


MIXED = plan(
    machine(
        "spark1",
        ("preflight", Sort.FLEET, "preflight: BIOS 5.36_0ACUM018, and 5.36_0ACUM023 on spark2"),
        ("access", Sort.FILE, "modify /etc/hosts", ("@@ -1,2 +1,1 @@", " ::1 localhost", "-10.77.0.9 spark9")),
        ("memory", Sort.CHANGE, "vm.min_free_kbytes: 45155 -> 1572864"),
        ("memory", Sort.NOTE, "docker.memory: 100G is more than this node has"),
        ("docker", Sort.UNMANAGED, "container old runs outside of sparkrack.slice"),
        ("fabric", Sort.FAULT, "fabric: enp1s0f1np1 has no carrier"),
    ),
    machine("spark2", ("rdma", Sort.REFUSED, "rdma: /etc/nccl.conf turns RDMA off")),
    unreachable("spark3"),
    machine(
        "crs812",
        ("switch", Sort.EFFECT, "identity: disturbs nothing"),
        ("switch", Sort.CHANGE, "~ /system/identity: name MikroTik -> crs812"),
        ("switch", Sort.UNMANAGED, "/user admin"),
        kind="switch",
    ),
)
"""Something of every kind."""

HOSTILE = "a\nb \"q\" 'q' ]]> </failure> <script> \x1b[31m | ``` @team {} %h \\ \udc80 \u202e é"
"""What a machine may say to break a report."""

TIMER = Timer(
    rack="lab",
    program=Path("/home/ops/sparkrack/.venv/bin/sparkrack"),
    file=Path("/home/ops/rack.yaml"),
    user="ops",
    every="1h",
    state=Path("/home/ops/.local/state"),
    prom=Path("/var/lib/prometheus/node-exporter/sparkrack.prom"),
)
"""What looks regularly, as the document shows it."""

EVIL = plan(
    machine(
        "spark1",
        *[(role, sort, HOSTILE) for role, sort in zip(ROLES, Sort, strict=False) if role != "switch"],
        ("access", Sort.FILE, f"modify /etc/{HOSTILE}", (f"+{HOSTILE}", " ```")),
        ("images", Sort.FAULT, HOSTILE),
        ("images", Sort.REFUSED, HOSTILE),
        ("images", Sort.UNKNOWN, HOSTILE),
        ("images", Sort.UNMANAGED, HOSTILE),
    ),
    unreachable("spark2", HOSTILE),
)
