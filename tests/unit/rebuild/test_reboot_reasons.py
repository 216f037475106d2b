"""Which nodes are to be restarted, by what status and plan print."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from core.util.event import Action, Event, EventKind
from sparkrack.engine.plan import HostPlan, HostState, Message, OperationPlan, Plan
from sparkrack.rebuild.model import Request
from sparkrack.rebuild.reboot_reasons import ReasonUnknownError, questions, reasons
from sparkrack.status.model import ImagesStatus, LockStatus, NodeStatus, Status

NOW = datetime(2026, 3, 14, tzinfo=UTC)


def status(**asked: bool | None) -> bytes:
    nodes = tuple(
        NodeStatus(name=name, reachable=True, images=ImagesStatus(declared=0), reboot=yes)
        for name, yes in asked.items()
    )
    whole = Status(rack="two", file="f", made=NOW, nodes=nodes, switches=(), lock=LockStatus(known=True))
    return whole.json_text().encode()


def plan(standing: HostState = HostState.IN_SYNC, *reported: Event) -> bytes:
    steps = (OperationPlan(role="driver", title="x", commands=0, events=tuple(map(Message.of, reported))),)
    machine = HostPlan(name="a", kind="node", state=standing, operations=steps)
    whole = Plan(rack="two", file="f", revision="", made=NOW, roles=("driver",), hosts=(machine,))
    return whole.model_dump_json(by_alias=True).encode()


def test_a_package_asks_for_it() -> None:
    assert reasons(["a", "b"], status(a=True, b=False), None) == {"a": "a package or a new machine ID asks for it"}


def test_the_driver_asks_for_it() -> None:
    reported = Event(EventKind.NOTE, action=Action.REBOOT, detail="kernel 6.14 runs, 6.17 is declared")
    assert reasons(["a"], status(a=False), plan(HostState.IN_SYNC, reported)) == {
        "a": "kernel 6.14 runs, 6.17 is declared"
    }


def test_several_reasons_are_reported_together_and_a_note_without_detail_by_its_sentence() -> None:
    reported = (
        Event(EventKind.NOTE, action=Action.REBOOT, detail="kernel 6.14 runs"),
        Event(EventKind.NOTE, action=Action.REBOOT, subject="driver"),
        Event(EventKind.NOTE, detail="not about a restart"),
    )
    found = reasons(["a"], status(a=True), plan(HostState.CHANGES, *reported))
    assert found == {"a": f"kernel 6.14 runs; {reported[1].message}"}


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (False, ["status --rack f --limit a --limit b --json"]),
        (
            True,
            ["status --rack f --limit a --limit b --json", "plan --rack f --limit a --limit b --json --only driver"],
        ),
    ],
)
def test_the_plan_is_asked_only_where_a_driver_is_declared(driver: bool, expected: list[str]) -> None:
    request = Request(kind="nodes", rack="two", file="f", nodes=("a", "b"), switches=())
    assert [" ".join(words) for words in questions(request, driver)] == expected


def test_other_notes_do_not() -> None:
    assert (
        reasons(
            ["a"], status(a=False), plan(HostState.CHANGES, Event(EventKind.NOTE, detail="another version is held"))
        )
        == {}
    )


@pytest.mark.parametrize(
    ("reported", "planned"),
    [
        (status(a=None), None),
        (status(b=True), None),
        (b"", None),
        (b"{}", None),
        (status(a=False), b"not json"),
        (status(a=False), plan(HostState.UNKNOWN)),
        (status(a=False), plan(HostState.UNREACHABLE)),
        (status(a=False), plan(HostState.REFUSED)),
    ],
)
def test_what_is_not_reported_is_not_a_no(reported: bytes, planned: bytes | None) -> None:
    with pytest.raises(ReasonUnknownError) as unknown:
        reasons(["a"], reported, planned)
    if b"nodes" not in reported or planned == b"not json":
        assert str(unknown.value) == "whether a restart is required is unknown: no answer of status or plan"
    elif planned is None:
        assert str(unknown.value) == "a: whether it should be restarted is unknown; see sparkrack status"
    else:
        assert str(unknown.value) == "a: whether its driver requires a restart is unknown; see sparkrack plan"


def test_a_node_that_the_plan_does_not_have_is_unknown() -> None:
    with pytest.raises(ReasonUnknownError, match="b: whether its driver requires a restart is unknown"):
        reasons(["b"], status(b=False), plan())
