"""A plan read as drift: the kinds, what is unknown, and the exit code."""

from __future__ import annotations

import pytest

from core.model.selection import ROLES
from core.util.event import EventKind
from sparkrack.drift.findings import KINDS, Drift, FindingKind, drift_of
from sparkrack.engine.plan import CHANGES, HostPlan, HostState, Plan
from tests.unit.drift.plans import EVIL, MIXED, machine, plan, unreachable

ONE = [
    (EventKind.CHANGE, FindingKind.DECLARED, 2),
    (EventKind.FILE, FindingKind.DECLARED, 2),
    (EventKind.RESTART, FindingKind.DECLARED, 2),
    (EventKind.REFUSED, FindingKind.DECLARED, 2),
    (EventKind.BROKEN, FindingKind.BROKEN, 2),
    (EventKind.OUTLIER, FindingKind.OUTLIER, 2),
    (EventKind.UNMANAGED, FindingKind.UNMANAGED, 0),
    (EventKind.UNKNOWN, FindingKind.UNKNOWN, 1),
    (EventKind.EFFECT, None, 0),
    (EventKind.NOTE, None, 0),
]


@pytest.mark.parametrize(("sort", "kind", "code"), ONE)
def test_each_sort_alone(sort: EventKind, kind: FindingKind | None, code: int) -> None:
    drift = drift_of(plan(machine("spark1", ("fabric", sort, "something"))))
    assert drift.code == code
    assert dict(drift.counts) == ({kind: 1} if kind else {})


def test_every_sort_is_judged() -> None:
    assert {sort for sort, _, _ in ONE} == set(EventKind)
    assert {sort for sort, kind, _ in ONE if kind} == set(KINDS)
    assert all(KINDS[sort] is FindingKind.DECLARED for sort in CHANGES)


@pytest.mark.parametrize(
    ("machines", "code"),
    [
        ([machine("spark1")], 0),
        ([unreachable("spark1")], 1),
        ([], 1),
        ([machine("spark1", ("fabric", EventKind.CHANGE, "x")), unreachable("spark2")], 1),
        (
            [machine("spark1", ("fabric", EventKind.CHANGE, "x")), machine("spark2", ("rdma", EventKind.UNKNOWN, "y"))],
            1,
        ),
        ([machine("spark1", ("fabric", EventKind.CHANGE, "x"), ("rdma", EventKind.UNKNOWN, "y"))], 1),
        (
            [
                machine("spark1"),
                machine("spark2", ("fabric", EventKind.BROKEN, "x"), ("rdma", EventKind.UNMANAGED, "y")),
            ],
            2,
        ),
    ],
)
def test_what_is_unknown_wins(machines: list[HostPlan], code: int) -> None:
    assert drift_of(plan(*machines)).code == code


@pytest.mark.parametrize("whole", [MIXED, EVIL, plan(machine("spark1", ("memory", EventKind.RESTART, "x")))])
def test_it_never_sounds_better_than_the_plan(whole: Plan) -> None:
    if whole.code:
        assert drift_of(whole).code


def test_roles_are_those_of_the_machine_in_the_order_of_a_run() -> None:
    drift = drift_of(MIXED)
    node, switch = drift.hosts[0], drift.hosts[-1]
    assert [looked.role for looked in node.roles] == [role for role in ROLES if role != "switch"]
    assert [looked.role for looked in switch.roles] == ["switch"]
    assert [
        looked.role for looked in drift_of(plan(machine("spark1"), roles={"rdma", "preflight"})).hosts[0].roles
    ] == [
        "preflight",
        "rdma",
    ]


def test_a_machine_without_any_of_the_roles_is_left_out_but_not_when_it_is_away() -> None:
    only = {"preflight", "fabric"}
    assert drift_of(plan(machine("crs812", kind="switch"), roles=only)).hosts == ()
    (away,) = drift_of(plan(unreachable("crs812", kind="switch"), roles=only)).hosts
    assert not away.complete


def test_a_machine_of_which_something_is_unknown_is_not_reported_whatever_it_stands_as() -> None:
    sound = machine("spark1", ("fabric", EventKind.UNKNOWN, "x")).model_copy(update={"state": HostState.IN_SYNC})
    deaf = machine("spark1").model_copy(update={"state": HostState.UNKNOWN})
    assert [drift_of(plan(one)).code for one in (sound, deaf)] == [1, 1]


def test_a_role_that_no_one_knows_is_not_lost() -> None:
    (found,) = drift_of(plan(machine("spark1", ("novel", EventKind.CHANGE, "x")))).hosts
    assert [role for role, _ in found.found(FindingKind.DECLARED)] == ["novel"]


def test_the_role_is_not_said_twice() -> None:
    assert [finding.message for _, finding in drift_of(MIXED).hosts[1].found(FindingKind.DECLARED)] == [
        "/etc/nccl.conf turns RDMA off"
    ]


@pytest.mark.parametrize("whole", [MIXED, EVIL], ids=["mixed", "hostile"])
def test_json_is_whole(whole: Plan) -> None:
    drift = drift_of(whole)
    text = drift.model_dump_json(by_alias=True)
    assert '"schema":"sparkrack.drift/2"' in text
    assert Drift.model_validate_json(text, strict=False) == drift
