"""What a plan shows, and that it leaves nothing behind. tests/unit/roles/test_operations.py plans each case."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage

from core.model import load
from core.model.selection import ROLES as ALL
from core.model.selection import Selection, select
from core.ops import events
from core.util.event import Event, EventKind
from sparkrack.drift.findings import drift_of
from sparkrack.engine import evaluate as engine_evaluate
from sparkrack.engine.apply_result import ApplyResult
from sparkrack.engine.evaluate import evaluate
from sparkrack.engine.plan import HostPlan, HostState, Message, OperationPlan, Plan
from sparkrack.engine.session import RunSession
from tests.unit.engine.fake_rack import FILE, node_in, planned, prepared, spoken, usual
from tests.unit.engine.operation_cases import evaluated
from tests.unit.model.racks import SWITCH
from tests.unit.ops.fakenode import Answers, answer
from tests.unit.probe_output import decode_answers
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
    assert decode_answers("\n".join(spoken(node))) == decode_answers("\n".join(answer(node)))


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
    printed = [reported.message for _, reported in machine.events(EventKind.UNMANAGED)]
    assert printed == ["roles memory, docker, as leave in the rack file says"]
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


def host(state: HostState, *reported: Event, name: str = "a", commands: int = 1) -> HostPlan:
    step = OperationPlan(role="memory", title="x", commands=commands, events=tuple(map(Message.of, reported)))
    return HostPlan(name=name, kind="node", state=state, operations=(step,) if reported else ())


def of(*hosts: HostPlan, roles: tuple[str, ...] = ("memory",), made: int = 0) -> Plan:
    time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=made)
    return Plan(rack="two", file="f", revision="", made=time, roles=roles, hosts=hosts)


CHANGE, NOTE = Event(EventKind.CHANGE, detail="x"), Event(EventKind.NOTE, detail="y")


@pytest.mark.parametrize(
    ("states", "code", "unknown"),
    [
        ((), 0, []),
        ((HostState.IN_SYNC,), 0, []),
        ((HostState.IN_SYNC, HostState.CHANGES), 2, []),
        ((HostState.CHANGES, HostState.REFUSED), 1, ["1"]),
        ((HostState.UNKNOWN, HostState.IN_SYNC), 1, ["0"]),
        ((HostState.UNREACHABLE,), 1, ["0"]),
    ],
)
def test_a_plan_is_as_certain_as_its_least_known_host(
    states: tuple[HostState, ...], code: int, unknown: list[str]
) -> None:
    plan = of(*(host(state, name=str(number)) for number, state in enumerate(states)))
    assert (plan.code, [one.name for one in plan.unknown_hosts]) == (code, unknown)


def test_changes_are_counted_and_notes_are_not() -> None:
    restart, file = Event(EventKind.RESTART, detail="z"), Event(EventKind.FILE, path="/a")
    plan = of(host(HostState.CHANGES, CHANGE, NOTE, restart), host(HostState.CHANGES, file, name="b"))
    assert (plan.changes, [one.changes for one in plan.hosts]) == (3, [2, 1])
    assert [event.kind for _, event in plan.hosts[0].events(EventKind.NOTE, EventKind.RESTART)] == ["note", "restart"]


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (of(host(HostState.CHANGES, CHANGE), made=7), True),
        (of(host(HostState.CHANGES, CHANGE, NOTE)), True),
        (of(host(HostState.CHANGES, CHANGE, Event(EventKind.BROKEN, detail="z"))), True),
        (of(host(HostState.CHANGES, CHANGE, commands=2)), False),
        (of(host(HostState.CHANGES, CHANGE, name="b")), False),
        (of(host(HostState.REFUSED, CHANGE)), False),
        (of(host(HostState.CHANGES, CHANGE), roles=("memory", "access")), False),
        (of(host(HostState.CHANGES, CHANGE), host(HostState.IN_SYNC, name="b")), False),
        *(
            (of(host(HostState.CHANGES, CHANGE, Event(kind, detail="z"))), False)
            for kind in (EventKind.EFFECT, EventKind.REFUSED, EventKind.UNKNOWN, EventKind.CHANGE, EventKind.RESTART)
        ),
        (of(host(HostState.CHANGES, replace(CHANGE, detail="other"))), False),
    ],
)
def test_the_fingerprint_is_that_of_what_a_run_would_do(other: Plan, alike: bool) -> None:
    own = of(host(HostState.CHANGES, CHANGE)).fingerprint
    assert len(own) == 16
    assert (other.fingerprint == own) is alike


def test_the_diff_of_a_file_is_part_of_the_fingerprint() -> None:
    one, other = (of(host(HostState.CHANGES, Event(EventKind.FILE, path="/a", diff=(row,)))) for row in ("+x", "+y"))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("result", "faults", "code"),
    [
        ("done", (), 0),
        ("nothing to do", (), 0),
        ("done", ("the lock was gone",), 1),
        ("failed", (), 1),
        ("stopped", (), 1),
        ("interrupted", (), 1),
    ],
)
def test_a_run_ends_with_0_only_if_all_is_done_and_nothing_is_wrong(
    result: Any, faults: tuple[str, ...], code: int
) -> None:
    assert ApplyResult(result=result, faults=faults).code == code


@pytest.mark.parametrize(
    ("reported", "commands", "state"),
    [
        ((), 0, HostState.IN_SYNC),
        ((NOTE,), 0, HostState.IN_SYNC),
        ((NOTE,), 1, HostState.CHANGES),
        ((CHANGE,), 1, HostState.CHANGES),
        ((CHANGE, Event(EventKind.REFUSED, detail="z")), 1, HostState.REFUSED),
        ((Event(EventKind.REFUSED, detail="z"), Event(EventKind.UNKNOWN, detail="z")), 1, HostState.UNKNOWN),
    ],
)
def test_a_host_stands_as_what_its_operations_report(
    reported: tuple[Event, ...], commands: int, state: HostState
) -> None:
    assert (
        engine_evaluate._state_of_steps(host(HostState.UNREACHABLE, *reported, commands=commands).operations) is state
    )


def test_what_stands_in_the_way_of_all_roles_is_reported_once() -> None:
    known: set[Event] = set()
    for kind, again in ((EventKind.UNKNOWN, True), (EventKind.REFUSED, True), (EventKind.CHANGE, False)):
        entries = [Event(kind, role, detail="x") for role in ("memory", "docker")]
        assert [engine_evaluate._is_repeated(entry, known) for entry in entries] == [False, again]
        assert not engine_evaluate._is_repeated(Event(kind, "memory", detail="y"), known)


def test_a_host_that_was_not_reached_is_in_the_plan_as_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(SWITCH)
    rack = load(file)
    session = RunSession(rack, file, select(rack))
    try:
        session.unreachable = {"spark1": "No route to host", "crs812": "timed out"}
        found = [engine_evaluate._make_host_plan(session, name, {}, {}) for name in session.unreachable]
    finally:
        session.close()
    assert [(one.name, one.kind, one.state, one.reason) for one in found] == [
        ("spark1", "node", HostState.UNREACHABLE, "No route to host"),
        ("crs812", "switch", HostState.UNREACHABLE, "timed out"),
    ]
