"""Every case in tests/cases/operations as a plan: all of it in words, nothing sent, and the run after it the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage

from core.model.selection import ROLES as ALL
from core.model.selection import Selection
from core.ops import events
from core.util.event import Event, EventKind
from sparkrack.drift.findings import drift_of
from sparkrack.engine.evaluate import SENDS, evaluate
from sparkrack.engine.execute import ShownPlan
from sparkrack.engine.plan import CHANGES, HostPlan, HostState, Plan
from sparkrack.engine.session import RunSession
from sparkrack.engine.session import machine as machine_of
from tests.unit.engine.fake_rack import FILE, node_in, planned, prepared, spoken, usual
from tests.unit.ops.fakenode import Answers, answer
from tests.unit.roles.cases import OPERATIONS, ROLES, matches, rack_of, read, role_file

CASES = sorted(OPERATIONS.glob("*/*.yaml"))
STANDINGS = {
    "right": {HostState.IN_SYNC},
    "changed": {HostState.CHANGES},
    "failed": {HostState.CHANGES},  # which shows only when it is done
    "refused": {HostState.REFUSED, HostState.UNKNOWN},
}


def evaluated(role: str, case: dict[str, Any]) -> Iterator[tuple[RunSession, Plan, Answers]]:
    """One role alone: whether its case pleases the gates is not asked."""
    rack = rack_of(case)
    name = next(iter(rack.nodes))
    answers = Answers(node_in(role, case), fails=case.get("fails"), refuses=case.get("connection") == "refused")
    with prepared(rack, {name: answers}, Selection((name,), frozenset({role}))) as session:
        yield session, evaluate(session, FILE), answers


def listening(session: RunSession, plan: Plan) -> list[Event]:
    """What operations say from now on that the plan does not show."""
    shown, unshown = ShownPlan(plan), list[Event]()

    def hear(host: Host, entry: Event) -> None:
        op_hash = host.current_op_hash or ""
        where = (machine_of(host), *events.operation_title(session.state, op_hash))
        if not events.is_open(host, op_hash) and not shown.has(*where, entry):
            unshown.append(entry)

    events.subscribe(session.state, hear)
    return unshown


def unknown_texts(machine: HostPlan) -> list[str]:
    return [step.title for step, reported in machine.events(*CHANGES) if reported.message == SENDS.message]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_case(path: Path) -> None:
    role, case = path.parent.name, read(path)
    for session, plan, answers in evaluated(role, case):
        (machine,) = plan.hosts
        # Alone: with the roles images and models a plan waits for what they record.
        ends = "refused" if (role, path.stem) == ("serving", "not-locked") else case["ends"]
        assert machine.state in STANDINGS[ends], plan
        assert answers.sent == []
        assert answers.probes <= 1
        assert unknown_texts(machine) == []
        assert {step.role for step in machine.operations} <= {role}
        if ends in ("right", "refused"):
            assert plan.code == (0 if ends == "right" else 1)
            continue
        assert plan.code == 2
        assert machine.changes
        # The plan has left nothing behind that would lead the run astray.
        unshown = listening(session, plan)
        session.state.set_stage(StateStage.Execute)
        with suppress(PyinfraError):  # that no host is left
            run_ops(session.state)
        assert unshown == [], "a run would stop before it is sent"
        assert len(answers.sent) == len(case["sent"]), answers.sent
        for sent, command in zip(answers.sent, case["sent"], strict=True):
            assert matches(sent, command), (sent, command)
        assert (session.state.failed_hosts != set()) == (case["ends"] == "failed")


def test_what_hangs_on_docker_is_not_compared_with_the_plan() -> None:
    for session, plan, _ in evaluated("images", read(OPERATIONS / "images/no-engine.yaml")):
        (machine,) = plan.hosts
        assert [reported.message for _, reported in machine.events(EventKind.CHANGE)] == [
            "scitrera/x:1: unknown before docker runs"
        ]
        (host,) = session.active
        assert any(events.is_open(host, op_hash) for op_hash in host.op_hash_order)


def test_a_change_that_hangs_on_nothing_is_compared_with_the_plan() -> None:
    for session, plan, _ in evaluated("memory", read(OPERATIONS / f"memory/{role_file('memory')['differs']}.yaml")):
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
