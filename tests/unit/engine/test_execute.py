"""How a run goes on: the order of hosts, what the first failure ends, and the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import gevent
import pytest

from core.util.event import Action, Event, EventKind, FieldValue, value_change
from sparkrack.engine import execute
from sparkrack.engine.execute import RISKY
from sparkrack.engine.plan import HostPlan, HostState, Message, OperationPlan, Plan
from tests.unit.engine.fake_run import Small, change_in
from tests.unit.roles.cases import ROLES

RACK = ("spark1", "spark2", "spark3", "spark4")
CHANGE = ("wait",)
Words = Mapping[str, Sequence[str]]


def small(words: Words, role: str = "RDMA", *, serial: bool = False, then: Words | None = None) -> Small:
    """One operation of a role, and `then` another."""
    steps = [(f"{role} | first", words, serial)]
    return Small(RACK, *steps, *([("RDMA | second", then, False)] if then else []))


def every(*words: str, **other: Sequence[str]) -> Words:
    return dict.fromkeys(RACK, words) | other


def waves(run: Small) -> list[set[str]]:
    """Who was in an operation at the same time."""
    found: list[set[str]] = []
    busy: set[str] = set()
    for what, name, _ in (event for event in run.events if event[0] in ("sent", "did")):
        if what == "sent":
            if not busy:
                found.append(set())
            busy.add(name)
            found[-1].add(name)
        else:
            busy.remove(name)
    return found


@pytest.mark.parametrize(
    ("role", "serial", "words", "expected"),
    [
        pytest.param("RDMA", False, every("wait"), [set(RACK)], id="others together"),
        pytest.param("RDMA", True, every("wait"), [{name} for name in RACK], id="serial one by one"),
        pytest.param("Fabric", True, every("wait"), [{name} for name in RACK], id="serial and risky"),
        pytest.param("Memory", False, every("wait"), [{"spark1"}, set(RACK[1:])], id="risky: the first alone"),
        pytest.param(
            "Memory",
            False,
            every("wait", spark1=(), spark2=()),
            [{"spark3"}, {"spark4"}],
            id="risky: the first that changes, alone",
        ),
        pytest.param("Memory", False, every("wait", spark1=()), [{"spark2"}, {"spark3", "spark4"}], id="not the head"),
    ],
)
def test_who_goes_when(role: str, serial: bool, words: Words, expected: list[set[str]]) -> None:
    run = small(words, role, serial=serial)
    assert run.carrying.run()
    assert waves(run) == expected
    firsts = [name for name, _ in run.sent]
    assert firsts == sorted(firsts), "in the order of the rack"


def test_an_operation_ends_everywhere_before_the_next_begins() -> None:
    run = small(every("wait"), then=every("wait"))
    assert run.carrying.run()
    assert waves(run) == [set(RACK), set(RACK)]
    assert [event[1:] for event in run.events if event[0] == "begins"] == [
        ("rdma", "first", "1/2"),
        ("rdma", "second", "2/2"),
    ]


@pytest.mark.parametrize("fault", ["fail", "lost", "bug", "refuse"])
@pytest.mark.parametrize(
    ("role", "serial", "untouched"),
    [("Memory", False, {"spark2", "spark3", "spark4"}), ("Driver", True, {"spark2", "spark3", "spark4"})],
)
def test_a_canary_that_fails_is_the_only_one(role: str, serial: bool, untouched: set[str], fault: str) -> None:
    run = small(every("wait", spark1=(fault,)), role, serial=serial, then=every("wait"))
    assert not run.carrying.run()
    assert not untouched & {name for name, _ in run.sent}
    assert run.carrying.failed == {"spark1": f"{role.lower()}: first"}
    assert run.carrying.in_progress == {}
    assert run.results == {"spark1 first": "failed"}


@pytest.mark.parametrize("fault", ["fail", "lost", "bug", "refuse"])
def test_the_others_of_its_wave_end_their_operation(fault: str) -> None:
    run = small(every("wait", "wait", spark2=(fault,)), then=every("wait"))
    assert not run.carrying.run()
    ended = {"spark1 first": "changed", "spark3 first": "changed", "spark4 first": "changed", "spark2 first": "failed"}
    assert run.results == ended, "and no host has begun the second operation"
    assert run.carrying.failed == {"spark2": "rdma: first"}


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (("wait",), "changed"),
        ((), "no change"),
        (("wait", "fail", "wait"), "failed"),
        (("refuse",), "failed"),
        (("lost",), "failed"),
        (("bug",), "failed"),
    ],
)
def test_results(words: Sequence[str], result: str) -> None:
    run = small({"spark1": words})
    assert run.carrying.run() == (result != "failed")
    (step,) = [step for step in run.steps if step.machine == "spark1"]
    assert (step.role, step.title, step.number, step.total, step.result) == ("rdma", "first", 1, 1, result)


def test_seconds() -> None:
    run = small({"spark1": ("wait", "wait")})
    run.carrying.run()
    (step,) = [step for step in run.steps if step.machine == "spark1"]
    assert 0.04 <= step.seconds < 5
    assert step.seconds == round(step.seconds, 3)


def test_what_operations_say_is_heard() -> None:
    run = small({"spark3": ("refuse",)})
    run.carrying.run()
    assert [(name, entry.kind, entry.message) for name, entry in run.noted.reported] == [
        ("spark3", "refused", "it is in the way")
    ]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("lost", "the connection was lost: LostError"),
        ("bug", "a fault of this program, please report it: ZeroDivisionError: no one foresaw this (fake_run.py:"),
    ],
)
def test_what_no_one_foresaw_is_one_line(fault: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    run = small({"spark2": (fault,)})
    assert not run.carrying.run()
    ((name, why),) = run.broken
    assert name == "spark2"
    assert why.startswith(words)
    assert "\n" not in why
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fault", ["fail", "lost"])
def test_an_operation_that_fails_sees_its_end(fault: str) -> None:
    run = small({"spark1": ("undo", fault, "keep")})
    assert not run.carrying.run()
    assert ("undone", "spark1") in run.events


def test_asked_to_stop_it_ends_the_wave_at_hand() -> None:
    run = small(every("wait"), "Driver", serial=True, then=every("wait"))
    run.carrying.stopping = lambda: len(run.sent) == 2
    assert not run.carrying.run()
    assert run.results == {"spark1 first": "changed", "spark2 first": "changed"}
    assert (run.carrying.failed, run.carrying.in_progress) == ({}, {})


def test_asked_before_it_begins_it_does_nothing() -> None:
    run = small(every("wait"))
    run.carrying.stopping = lambda: True
    assert not run.carrying.run()
    assert (run.sent, run.steps) == ([], [])


def cut(run: Small) -> None:
    """What a second Ctrl-C does."""
    main = gevent.getcurrent()
    gevent.spawn_later(0.1, lambda: gevent.get_hub().loop.run_callback(main.throw, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.carrying.run()


def test_cut_off_it_says_who_is_in_the_middle_of_what() -> None:
    run = small(every("undo", "hang", "keep", spark2=("wait",)), then=every("wait"))
    cut(run)
    assert run.carrying.in_progress == dict.fromkeys(("spark1", "spark3", "spark4"), "rdma: first")
    assert run.results == {f"{name} first": "interrupted" for name in RACK} | {"spark2 first": "changed"}
    undone = {event[1] for event in run.events if event[0] == "undone"}
    assert undone == {"spark1", "spark3", "spark4"}, "what can be taken back is"


def test_one_that_cannot_be_cut_off_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "CUT_SECONDS", 0.005)
    run = small({"spark1": ("undo", "hang")})
    cut(run)
    assert run.carrying.in_progress == {"spark1": "rdma: first"}


def test_the_roles_that_are_tried_alone_exist() -> None:
    assert {*ROLES, "switch"} >= RISKY
    assert RISKY.isdisjoint({"preflight", "images", "rdma"})


def test_nothing_is_sent_once_the_lock_is_lost() -> None:
    run = small(every("wait", "wait"))
    run.carrying.lost = lambda: "the lock is gone" if len(run.sent) > 2 else ""
    assert not run.carrying.run()
    assert len(run.sent) <= len(RACK)
    assert {why for _, why in run.broken} == {"the lock is gone; nothing more was sent"}


def test_no_operation_begins_once_the_lock_is_lost() -> None:
    run = small(every("wait"))
    run.carrying.lost = lambda: "the lock is gone"
    assert not run.carrying.run()
    assert run.sent == []


def test_what_was_not_shown_is_not_sent() -> None:
    run = small(every("say a: 1 -> 2", "wait"), then=every("wait"))
    shown = planned(*(("spark1", "a: 1 -> 2"), ("spark2", "a: 3 -> 2"), ("spark3", "a: 1 -> 4")))
    run.carrying.shown = execute.ShownPlan(shown)
    assert not run.carrying.run()
    done = {"spark1": "changed", "spark2": "changed", "spark3": "failed", "spark4": "failed"}
    assert {f"{name} first": result for name, result in done.items()}.items() <= run.results.items()
    assert {name for name, word in run.sent if word == "wait"} == {"spark1", "spark2"}
    assert run.results["spark1 second"] == "changed"
    assert "spark3 second" not in run.results
    assert list(run.carrying.failed) == ["spark3", "spark4"]


def planned(*reported: tuple[str, str]) -> Plan:
    """A plan in which the first operation says that of each machine."""
    machines = tuple(
        HostPlan(
            name=name,
            kind="node",
            state=HostState.CHANGES,
            operations=(OperationPlan(role="rdma", title="first", commands=1, events=(Message.of(change_in(text)),)),),
        )
        for name, text in reported
    )
    return Plan(rack="ring", file="", revision="", made=datetime.now(UTC), roles=("rdma",), hosts=machines)


NODE, CRS = ("spark1", "node"), ("crs812", "switch")
FIELDS = Event(
    EventKind.CHANGE,
    subject="eth0",
    fields=(FieldValue("mtu", "1500", "9000"),),
    menu="/interface",
    action=Action.MODIFY,
)


@pytest.mark.parametrize("machine", [NODE, CRS])
@pytest.mark.parametrize(
    ("shown", "change", "on_node", "on_switch"),
    [
        (value_change("a", 1, 2), {}, True, True),
        (value_change("a", 1, 2), {"old": "7"}, True, False),
        (value_change("a", 1, 2), {"new": "3"}, False, False),
        (value_change("a", 1, 2), {"subject": "b"}, False, False),
        (value_change("a", 1, 2), {"kind": EventKind.EFFECT}, False, False),
        (value_change("a", 1, 2), {"kind": EventKind.RESTART}, True, True),
        (value_change("a", 1, 2), {"kind": EventKind.NOTE}, True, True),
        (FIELDS, {"fields": (FieldValue("mtu", "1400", "9000"),)}, True, False),
        (FIELDS, {"fields": (FieldValue("mtu", "1500", "8000"),)}, False, False),
        (FIELDS, {"menu": "/ip"}, False, False),
        (Event(EventKind.FILE, path="/a", action=Action.MODIFY, diff=("+x",)), {"diff": ("+y",)}, True, False),
        (Event(EventKind.FILE, path="/a", action=Action.MODIFY), {"action": Action.CREATE}, True, False),
        (Event(EventKind.FILE, path="/a", action=Action.MODIFY), {"path": "/b"}, False, False),
        (Event(EventKind.EFFECT, subject="a", detail="x"), {}, True, True),
    ],
)
def test_of_a_node_what_is_to_be_must_be_as_shown_and_of_a_switch_all(
    machine: tuple[str, Literal["node", "switch"]],
    shown: Event,
    change: dict[str, Any],
    on_node: bool,
    on_switch: bool,
) -> None:
    name, kind = machine
    step = OperationPlan(role="rdma", title="first", commands=1, events=(Message.of(shown),))
    host = HostPlan(name=name, kind=kind, state=HostState.CHANGES, operations=(step,))
    plan = Plan(rack="ring", file="", revision="", made=datetime.now(UTC), roles=("rdma",), hosts=(host,))
    known = execute.ShownPlan(plan)
    found = replace(shown, **change)
    assert known.has(name, "rdma", "first", found) is (on_node if kind == "node" else on_switch)
    if found.kind in (EventKind.CHANGE, EventKind.FILE, EventKind.EFFECT):
        for place in (("other", "rdma", "first"), (name, "memory", "first"), (name, "rdma", "second")):
            assert not known.has(*place, found)


def test_what_was_not_shown_is_reported_with_the_reason() -> None:
    run = small({"spark1": ("say a: 1 -> 2", "wait")})
    run.carrying.shown = execute.ShownPlan(planned())
    assert not run.carrying.run()
    why = "a: 1 -> 2: is not in the plan that was shown; nothing of this was sent; plan again"
    assert [(name, entry.kind, entry.role, entry.message) for name, entry in run.noted.reported] == [
        ("spark1", EventKind.REFUSED, "rdma", why)
    ]
    assert {one.data.node.name for one in run.carrying.left} == {"spark1"}
