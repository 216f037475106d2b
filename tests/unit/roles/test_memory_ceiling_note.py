"""A ceiling above what a node has is worth a note, and no change: it neither counts nor makes a node differ."""

from __future__ import annotations

import pytest

from sparkrack.ops.account import Sort
from sparkrack.run.drift import of
from sparkrack.run.plan import CHANGES, Plan, Standing
from tests.unit.ops.fakenode import Answers
from tests.unit.run.fakerack import node_in, planned

from .cases import OPERATIONS, rack_of, read

NOTE = "docker.memory: 100G is more than this node's 65536M: it bounds nothing here"
START = "start sparkrack.slice with MemoryMax 100G, MemorySwapMax 0"


def plan(name: str) -> Plan:
    case = read(OPERATIONS / f"memory/{name}.yaml")
    return planned(rack_of(case), {"spark1": Answers(node_in("memory", case))}, "memory")


@pytest.mark.parametrize(
    ("name", "standing", "changes", "code"),
    [
        ("ceiling-above-memory", Standing.IN_SYNC, [], 0),
        ("ceiling-above-memory-not-there", Standing.CHANGES, [START], 2),
    ],
)
def test_it_is_a_note(name: str, standing: Standing, changes: list[str], code: int) -> None:
    found = plan(name)
    (machine,) = found.machines
    assert [said.text for _, said in machine.said(Sort.NOTE)] == [NOTE]
    assert [said.text for _, said in machine.said(*CHANGES)] == changes
    assert (machine.standing, found.changes, found.code) == (standing, len(changes), code)
    assert (of(found).code, sum(of(found).counts.values())) == (code, len(changes))
