"""What came and what went between two runs."""

from __future__ import annotations

import pytest

from sparkrack.fleet.selection import ROLES
from sparkrack.ops.account import Sort
from sparkrack.run.drift import of
from sparkrack.run.plan import Plan
from sparkrack.run.since import since

from .plans import machine, plan, unreachable

MTU = ("fabric", Sort.CHANGE, "mtu 1500 -> 9000")
SWAP = ("memory", Sort.CHANGE, "swapoff /swap.img")
DEAF = ("preflight", Sort.UNKNOWN, "the node's answer ends too early")
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
        plan(machine("spark1", (MTU[0], Sort.FAULT, MTU[2]))),
        ["fabric mtu 1500 -> 9000"],
        ["fabric mtu 1500 -> 9000"],
        [],
    ),
    "a run that refuses what it would have done is the same finding": (
        plan(machine("spark1", MTU)),
        plan(machine("spark1", (MTU[0], Sort.REFUSED, MTU[2]))),
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
    "told twice, came once": (IN_SYNC, plan(machine("spark1", MTU, MTU)), ["fabric mtu 1500 -> 9000"], [], []),
    "nobody could look now: nothing went": (
        plan(machine("spark1", MTU)),
        AWAY,
        [" no route to host"],
        [],
        ["spark1"],
    ),
    "nobody could look then: nothing came": (
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
    found = since(of(then), of(now), "a run")
    assert [f"{one.role} {one.text}" for one in found.came] == came
    assert [f"{one.role} {one.text}" for one in found.went] == went
    assert sorted(found.uncompared) == sorted(uncompared)
    assert found.run == "a run"
    assert found.made == then.made
