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

from sparkrack.fleet.selection import ROLES as ALL
from sparkrack.fleet.selection import Selection
from sparkrack.ops import account
from sparkrack.ops.account import Entry, Sort
from sparkrack.run.carry import Shown
from sparkrack.run.drift import of as drift_of
from sparkrack.run.evaluate import SENDS, evaluate
from sparkrack.run.plan import CHANGES, Machine, Plan, Standing
from sparkrack.run.session import Session, title
from sparkrack.run.session import machine as machine_of
from tests.unit.ops.fakenode import Answers, answer
from tests.unit.roles.cases import OPERATIONS, ROLES, matches, rack_of, read, role_file

from .fakerack import FILE, node_in, planned, prepared, spoken, usual

CASES = sorted(OPERATIONS.glob("*/*.yaml"))
STANDINGS = {
    "right": {Standing.IN_SYNC},
    "changed": {Standing.CHANGES},
    "failed": {Standing.CHANGES},  # which shows only when it is done
    "refused": {Standing.REFUSED, Standing.UNKNOWN},
}


def evaluated(role: str, case: dict[str, Any]) -> Iterator[tuple[Session, Plan, Answers]]:
    """One role alone: whether its case pleases the gates is not asked."""
    rack = rack_of(case)
    name = next(iter(rack.nodes))
    answers = Answers(node_in(role, case), fails=case.get("fails"), refuses=case.get("connection") == "refused")
    with prepared(rack, {name: answers}, Selection((name,), frozenset({role}))) as session:
        yield session, evaluate(session, FILE), answers


def listening(session: Session, plan: Plan) -> list[Entry]:
    """What operations say from now on that the plan does not show."""
    shown, unshown = Shown(plan), list[Entry]()

    def hear(host: Host, entry: Entry) -> None:
        op_hash = host.current_op_hash or ""
        where = (machine_of(host), *title(session.state, op_hash))
        if not account.is_open(host, op_hash) and not shown.has(*where, entry):
            unshown.append(entry)

    account.listen(session.state, hear)
    return unshown


def untold(machine: Machine) -> list[str]:
    return [step.title for step, said in machine.said(*CHANGES) if said.text == SENDS]


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_case(path: Path) -> None:
    role, case = path.parent.name, read(path)
    for session, plan, answers in evaluated(role, case):
        (machine,) = plan.machines
        assert machine.standing in STANDINGS[case["ends"]], plan
        assert answers.sent == []
        assert answers.probes <= 1
        assert untold(machine) == []
        assert {step.role for step in machine.steps} <= {role}
        if case["ends"] in ("right", "refused"):
            assert plan.code == (0 if case["ends"] == "right" else 1)
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
        (machine,) = plan.machines
        assert [said.text for _, said in machine.said(Sort.CHANGE)] == [
            "scitrera/x:1: cannot be told before docker runs"
        ]
        (host,) = session.active
        assert any(account.is_open(host, op_hash) for op_hash in host.op_hash_order)


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
    assert (plan.code, plan.changes, plan.untold) == (0, 0, ()), plan


def test_what_is_left_alone_is_told_and_is_no_part_of_the_plan() -> None:
    rack = rack_of({"rack": [["rack: two", "rack: two\nleave: [memory, docker]"]]})
    factory = node_in("memory", read(OPERATIONS / "memory" / f"{role_file('memory')['differs']}.yaml"))
    plan = planned(rack, {"spark1": Answers(usual("memory") | factory)})
    assert plan.code == 0, plan
    assert plan.roles == tuple(sorted(set(ALL) - {"memory", "docker"}))
    (machine,) = plan.machines
    told = [said.text for _, said in machine.said(Sort.UNMANAGED)]
    assert told == ["preflight: roles memory, docker, as leave in the rack file says"]
    (looked,) = drift_of(plan).machines
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
