"""What came and what went between two runs."""

from __future__ import annotations

import pytest

from core.model.selection import ROLES
from core.util.event import EventKind
from sparkrack.drift.compare import compare_runs
from sparkrack.drift.findings import drift_of
from sparkrack.engine.plan import Plan
from tests.unit.drift.plans import machine, plan, unreachable

MTU = ("fabric", EventKind.CHANGE, "mtu 1500 -> 9000")
SWAP = ("memory", EventKind.CHANGE, "swapoff /swap.img")
DEAF = ("preflight", EventKind.UNKNOWN, "the node's answer ends too early")
FEW = {"preflight", "memory"}
IN_SYNC = plan(machine("spark1"))
AWAY = plan(unreachable("spark1"))

CASES: dict[str, tuple[Plan, Plan, list[str], list[str], list[str]]] = {
    "nothing": (IN_SYNC, IN_SYNC, [], [], []),
    "the same": (plan(machine("spark1", MTU)), plan(machine("spark1", MTU)), [], [], []),
    "it came": (IN_SYNC, plan(machine("spark1", MTU)), ["fabric mtu 1500 -> 9000"], [], []),
    "it went": (plan(machine("spark1", MTU)), IN_SYNC, [], ["fabric mtu 1500 -> 9000"], []),
    "another kind is another finding": (
        plan(machine("spark1", MTU)),
        plan(machine("spark1", (MTU[0], EventKind.BROKEN, MTU[2]))),
        ["fabric mtu 1500 -> 9000"],
        ["fabric mtu 1500 -> 9000"],
        [],
    ),
    "a run that refuses what it would have done is the same finding": (
        plan(machine("spark1", MTU)),
        plan(machine("spark1", (MTU[0], EventKind.REFUSED, MTU[2]))),
        [],
        [],
        [],
    ),
    "another node's": (
        plan(machine("spark1", MTU), machine("spark2")),
        plan(machine("spark1"), machine("spark2", MTU)),
        ["fabric mtu 1500 -> 9000"],
        ["fabric mtu 1500 -> 9000"],
        [],
    ),
    "reported twice, came once": (IN_SYNC, plan(machine("spark1", MTU, MTU)), ["fabric mtu 1500 -> 9000"], [], []),
    "no one could look now: nothing went": (
        plan(machine("spark1", MTU)),
        AWAY,
        [" no route to host"],
        [],
        ["spark1"],
    ),
    "no one could look then: nothing came": (
        AWAY,
        plan(machine("spark1", MTU)),
        [],
        [" no route to host"],
        ["spark1"],
    ),
    "still away, for another reason": (AWAY, plan(unreachable("spark1", "timed out")), [], [], ["spark1"]),
    "half known now: what is new did come": (
        plan(machine("spark1", MTU)),
        plan(machine("spark1", SWAP, DEAF)),
        ["preflight the node's answer ends too early", "memory swapoff /swap.img"],
        [],
        ["spark1"],
    ),
    "half known then: what went is known": (
        plan(machine("spark1", MTU, DEAF)),
        plan(machine("spark1", SWAP)),
        [],
        ["preflight the node's answer ends too early", "fabric mtu 1500 -> 9000"],
        ["spark1"],
    ),
    "fewer roles now": (
        plan(machine("spark1", MTU)),
        plan(machine("spark1", SWAP), roles=FEW),
        ["memory swapoff /swap.img"],
        [],
        [f"spark1 {role}" for role in ROLES if role not in FEW and role != "switch"],
    ),
    "fewer roles then": (
        plan(machine("spark1"), roles=FEW),
        plan(machine("spark1", SWAP, MTU)),
        ["memory swapoff /swap.img"],
        [],
        [f"spark1 {role}" for role in ROLES if role not in FEW and role != "switch"],
    ),
    "a node that was not looked at then": (
        IN_SYNC,
        plan(machine("spark1"), machine("spark2", MTU)),
        [],
        [],
        ["spark2"],
    ),
    "a node that is not looked at now": (
        plan(machine("spark1"), machine("spark2", MTU)),
        IN_SYNC,
        [],
        [],
        ["spark2"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_since(name: str) -> None:
    then, now, came, went, uncompared = CASES[name]
    found = compare_runs(drift_of(then), drift_of(now), "a run")
    assert [f"{one.role} {one.message}" for one in found.appeared] == came
    assert [f"{one.role} {one.message}" for one in found.resolved] == went
    assert sorted(found.uncompared) == sorted(uncompared)
    assert found.run == "a run"
    assert found.made == then.made
