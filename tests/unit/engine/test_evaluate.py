"""What a plan shows, and that it leaves nothing behind. tests/unit/roles/test_operations.py plans each case."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage

from core.model.selection import ROLES as ALL
from core.model.selection import Selection
from core.ops import events
from core.util.event import EventKind
from sparkrack.drift.findings import drift_of
from sparkrack.engine.evaluate import evaluate
from tests.unit.engine.evaluated_cases import evaluated
from tests.unit.engine.fake_rack import FILE, node_in, planned, prepared, spoken, usual
from tests.unit.ops.fakenode import Answers, answer
from tests.unit.roles.cases import OPERATIONS, ROLES, rack_of, read, role_file


def test_what_hangs_on_docker_is_not_compared_with_the_plan() -> None:
    case = read(OPERATIONS / "images/no-engine.yaml")
    for session, plan, _ in evaluated("images", case, rack_of(case)):
        (machine,) = plan.hosts
        assert [reported.message for _, reported in machine.events(EventKind.CHANGE)] == [
            "scitrera/x:1: unknown before docker runs"
        ]
        (host,) = session.active
        assert any(events.is_open(host, op_hash) for op_hash in host.op_hash_order)


def test_a_change_that_hangs_on_nothing_is_compared_with_the_plan() -> None:
    case = read(OPERATIONS / f"memory/{role_file('memory')['differs']}.yaml")
    for session, plan, _ in evaluated("memory", case, rack_of(case)):
        assert plan.code == 2
        (host,) = session.active
        assert not any(events.is_open(host, op_hash) for op_hash in host.op_hash_order)


def test_an_answer_is_spoken_as_the_script_prints_it() -> None:
    node = usual("memory") | {
        "/etc/fstab": {"exit": 3},
        "/proc/meminfo": {"garbled": "%"},
        "fabric-links": {"exit": 127},
        "memory-live": {"garbled": "%"},
        "sysctl-settings": {"silent": True},
        "images-stock": b"\xff\n",
    }
    assert sorted(spoken(node)) == sorted(answer(node))


def test_a_sound_node_is_in_sync_with_every_role() -> None:
    plan = planned(rack_of({}), {"spark1": Answers(usual("memory"))})
    assert (plan.code, plan.changes, plan.unknown_hosts) == (0, 0, ()), plan


def test_what_is_left_alone_is_reported_and_is_no_part_of_the_plan() -> None:
    rack = rack_of({"rack": [["rack: two", "rack: two\nleave: [memory, docker]"]]})
    factory = node_in("memory", read(OPERATIONS / "memory" / f"{role_file('memory')['differs']}.yaml"))
    plan = planned(rack, {"spark1": Answers(usual("memory") | factory)})
    assert plan.code == 0, plan
    assert plan.roles == tuple(sorted(set(ALL) - {"memory", "docker"}))
    (machine,) = plan.hosts
    told = [reported.message for _, reported in machine.events(EventKind.UNMANAGED)]
    assert told == ["roles memory, docker, as leave in the rack file says"]
    (looked,) = drift_of(plan).hosts
    assert {one.role for one in looked.roles}.isdisjoint({"memory", "docker"})
    assert drift_of(plan).code == 0
    whole = planned(rack_of({}), {"spark1": Answers(usual("memory") | factory)})
    assert whole.changes, "this node has nothing to be left alone"


def both(role: str) -> Mapping[str, Answers]:
    """Two nodes with the same to do; each has a name of its own."""
    node = node_in(role, read(OPERATIONS / role / f"{role_file(role)['differs']}.yaml"))
    names = ("spark1", "spark2")
    return {name: Answers(node | {"/etc/hosts": node["/etc/hosts"].replace("spark1", name)}) for name in names}


def run(role: str, nodes: Mapping[str, Answers], *, plan: bool) -> dict[str, list[str]]:
    """What each node is sent in a run, after a plan or without."""
    case = read(OPERATIONS / role / f"{role_file(role)['differs']}.yaml")
    rack = rack_of({"rack": role_file(role)["rack"]} | case)
    with prepared(rack, nodes, Selection(tuple(nodes), frozenset({role}))) as session:
        if plan:
            evaluate(session, FILE)
            assert [one.sent for one in nodes.values()] == [[], []]
        session.state.set_stage(StateStage.Execute)
        with suppress(PyinfraError):
            run_ops(session.state)
    return {name: [text for text, _ in answers.sent] for name, answers in nodes.items()}


@pytest.mark.parametrize("role", [role for role in ROLES if role_file(role)["changes"] and role != "fabric"])
def test_two_nodes_are_brought_there_as_without_a_plan(role: str) -> None:
    assert run(role, both(role), plan=True) == run(role, both(role), plan=False)


def test_of_two_nodes_the_first_is_still_proven_alone() -> None:
    """What a plan goes through proves nothing: no node counts as a peer because of it. Which is the first varies."""
    sent = run("fabric", both("fabric"), plan=True)
    proofs = [text for texts in sent.values() for text in texts if "faults() {" in text]
    assert sorted("ping" in text for text in proofs) == [False, True]
