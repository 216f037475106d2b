"""A plan too long for one safe mode: released in portions, and still all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.routeros.menus import ETHERNET
from switch.transaction import MOST_WRITES
from tests.emulator.conftest import MakeSwitch
from tests.emulator.transactions import WHOLE, Operator

CAGES = {
    **{f"qsfp56-dd-{number}": {"split": "4x100G"} for number in (1, 2)},
    "qsfp56-1": {"split": "4x50G"},
    "qsfp56-2": {"split": "2x100G"},
    **{f"sfp56-{number}": {"split": "1x50G"} for number in range(1, 9)},
}
FUSE = 60.0


@pytest.fixture
def operator(make_switch: MakeSwitch, tmp_path: Path) -> Operator:
    """Every cage of the unit declared, and every key: more rows than one safe mode may hold."""
    return Operator(tmp_path, make_switch(settle=0.0), {**WHOLE, "cages": CAGES})


def test_a_long_plan_is_released_in_portions(operator: Operator) -> None:
    goal = operator.goal()
    before = operator.reading(goal)
    plan = goal.plan(before)
    assert len(plan.changes) > MOST_WRITES
    assert len(plan.portions(MOST_WRITES)) == 2
    ended, _ = operator.run(goal, fuse=FUSE)
    assert ended.done, ended.text
    assert goal.plan(operator.reading(goal)).changes == ()
    tables = operator.emulator.state()["tables"]
    assert tables["/system/scheduler"] == tables["/system/script"] == []


@pytest.mark.parametrize("fault", [{"kind": "trap"}, {"kind": "drop", "executed": True}])
def test_a_fault_in_the_second_portion_undoes_the_first(operator: Operator, fault: dict[str, object]) -> None:
    """The first portion was released: safe mode cannot bring it back, the rollback timer does, at once."""
    goal = operator.goal()
    before = operator.reading(goal)
    operator.emulator.control({"op": "fault", "match": "/tool/bandwidth-server/set", **fault})
    ended, _ = operator.run(goal, fuse=FUSE)
    assert not ended.done
    assert "looked again: the switch is as it was before the run" in ended.text
    assert "the changes that were already released are reverted by the rollback timer now" in operator.reported
    assert operator.reading(goal).same(before, goal.menus)
    tables = operator.emulator.state()["tables"]
    assert tables["/system/scheduler"] == tables["/system/script"] == []
    assert {row["l2mtu"] for row in tables[ETHERNET.path]} == {"1584"}
