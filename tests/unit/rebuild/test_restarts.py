"""Which nodes are to be restarted, by what status and plan print."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sparkrack.ops.account import Sort
from sparkrack.rebuild.restarts import UntoldError, reasons
from sparkrack.run.plan import Machine, Plan, Said, Standing, Step
from sparkrack.status.model import Images, Lock, NodeStatus, Status

NOW = datetime(2026, 3, 14, tzinfo=UTC)


def status(**asked: bool | None) -> bytes:
    nodes = tuple(
        NodeStatus(name=name, reachable=True, images=Images(declared=0), reboot=yes) for name, yes in asked.items()
    )
    whole = Status(rack="two", file="f", made=NOW, nodes=nodes, switches=(), lock=Lock(told=True))
    return whole.json_text().encode()


def plan(standing: Standing = Standing.IN_SYNC, *said: str) -> bytes:
    steps = (Step(role="driver", title="x", commands=0, said=tuple(Said(sort=Sort.NOTE, text=text) for text in said)),)
    machine = Machine(name="a", kind="node", standing=standing, steps=steps)
    whole = Plan(rack="two", file="f", revision="", made=NOW, roles=("driver",), machines=(machine,))
    return whole.model_dump_json(by_alias=True).encode()


def test_a_package_asks_for_it() -> None:
    assert reasons(["a", "b"], status(a=True, b=False), None) == {"a": "a package or a new machine ID asks for it"}


def test_the_driver_asks_for_it() -> None:
    said = "reboot required: kernel 6.14 runs, 6.17 is declared"
    assert reasons(["a"], status(a=False), plan(Standing.IN_SYNC, said)) == {"a": "kernel 6.14 runs, 6.17 is declared"}


def test_other_notes_do_not() -> None:
    assert reasons(["a"], status(a=False), plan(Standing.CHANGES, "another version is held")) == {}


@pytest.mark.parametrize(
    ("said", "planned"),
    [
        (status(a=None), None),
        (status(b=True), None),
        (b"", None),
        (b"{}", None),
        (status(a=False), b"not json"),
        (status(a=False), plan(Standing.UNKNOWN)),
        (status(a=False), plan(Standing.UNREACHABLE)),
        (status(a=False), plan(Standing.REFUSED)),
    ],
)
def test_what_is_not_told_is_no_no(said: bytes, planned: bytes | None) -> None:
    with pytest.raises(UntoldError):
        reasons(["a"], said, planned)
