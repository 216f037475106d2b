"""A ceiling above what a node has is worth a note, and no change: it neither counts nor makes a node differ."""

from __future__ import annotations

import pytest

from core.util.event import EventKind
from sparkrack.drift.findings import drift_of
from sparkrack.engine.plan import CHANGES, HostState, Plan
from tests.unit.engine.fake_rack import node_in, planned
from tests.unit.ops.fakenode import Answers
from tests.unit.roles.cases import OPERATIONS, rack_of, read

NOTE = "docker.memory: 100G is more than this node's 65536M: it bounds nothing here"
START = "start sparkrack.slice: MemoryMax 100G, MemorySwapMax 0"


def plan(name: str) -> Plan:
    case = read(OPERATIONS / f"memory/{name}.yaml")
    return planned(rack_of(case), {"spark1": Answers(node_in("memory", case))}, "memory")


@pytest.mark.parametrize(
    ("name", "standing", "changes", "code"),
    [
        ("ceiling-above-memory", HostState.IN_SYNC, [], 0),
        ("ceiling-above-memory-not-there", HostState.CHANGES, [START], 2),
    ],
)
def test_it_is_a_note(name: str, standing: HostState, changes: list[str], code: int) -> None:
    found = plan(name)
    (machine,) = found.hosts
    assert [reported.message for _, reported in machine.events(EventKind.NOTE)] == [NOTE]
    assert [reported.message for _, reported in machine.events(*CHANGES)] == changes
    assert (machine.state, found.changes, found.code) == (standing, len(changes), code)
    assert (drift_of(found).code, sum(drift_of(found).counts.values())) == (code, len(changes))


def test_what_a_crash_kernel_has_is_taken_off_once() -> None:
    """MemTotal is without it already."""
    (machine,) = plan("crash-kernel-has-its-memory").hosts
    assert list(machine.events(EventKind.NOTE)) == []
