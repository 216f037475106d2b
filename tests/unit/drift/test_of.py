"""A plan read as drift: the kinds, what could not be told, and the exit code."""

from __future__ import annotations

import pytest

from sparkrack.fleet.selection import ROLES
from sparkrack.ops.account import Sort
from sparkrack.run.drift import KINDS, Drift, Kind, of
from sparkrack.run.plan import CHANGES, Machine, Plan, Standing

from .plans import EVIL, MIXED, machine, plan, unreachable

ONE = [
    (Sort.CHANGE, Kind.DECLARED, 2),
    (Sort.FILE, Kind.DECLARED, 2),
    (Sort.RESTART, Kind.DECLARED, 2),
    (Sort.REFUSED, Kind.DECLARED, 2),
    (Sort.FAULT, Kind.RUNTIME, 2),
    (Sort.FLEET, Kind.FLEET, 2),
    (Sort.UNMANAGED, Kind.UNMANAGED, 0),
    (Sort.UNKNOWN, Kind.UNKNOWN, 1),
    (Sort.EFFECT, None, 0),
    (Sort.NOTE, None, 0),
]


@pytest.mark.parametrize(("sort", "kind", "code"), ONE)
def test_each_sort_alone(sort: Sort, kind: Kind | None, code: int) -> None:
    drift = of(plan(machine("spark1", ("fabric", sort, "something"))))
    assert drift.code == code
    assert dict(drift.counts) == ({kind: 1} if kind else {})


def test_every_sort_is_judged() -> None:
    assert {sort for sort, _, _ in ONE} == set(Sort)
    assert {sort for sort, kind, _ in ONE if kind} == set(KINDS)
    assert all(KINDS[sort] is Kind.DECLARED for sort in CHANGES)


@pytest.mark.parametrize(
    ("machines", "code"),
    [
        ([machine("spark1")], 0),
        ([unreachable("spark1")], 1),
        ([], 1),
        ([machine("spark1", ("fabric", Sort.CHANGE, "x")), unreachable("spark2")], 1),
        ([machine("spark1", ("fabric", Sort.CHANGE, "x")), machine("spark2", ("rdma", Sort.UNKNOWN, "y"))], 1),
        ([machine("spark1", ("fabric", Sort.CHANGE, "x"), ("rdma", Sort.UNKNOWN, "y"))], 1),
        ([machine("spark1"), machine("spark2", ("fabric", Sort.FAULT, "x"), ("rdma", Sort.UNMANAGED, "y"))], 2),
    ],
)
def test_what_cannot_be_told_wins(machines: list[Machine], code: int) -> None:
    assert of(plan(*machines)).code == code


@pytest.mark.parametrize("whole", [MIXED, EVIL, plan(machine("spark1", ("memory", Sort.RESTART, "x")))])
def test_it_never_sounds_better_than_the_plan(whole: Plan) -> None:
    if whole.code:
        assert of(whole).code


def test_roles_are_those_of_the_machine_in_the_order_of_a_run() -> None:
    drift = of(MIXED)
    node, switch = drift.machines[0], drift.machines[-1]
    assert [looked.role for looked in node.roles] == [role for role in ROLES if role != "switch"]
    assert [looked.role for looked in switch.roles] == ["switch"]
    assert [looked.role for looked in of(plan(machine("spark1"), roles={"rdma", "preflight"})).machines[0].roles] == [
        "preflight",
        "rdma",
    ]


def test_a_machine_without_any_of_the_roles_is_left_out_but_not_when_it_is_away() -> None:
    only = {"preflight", "fabric"}
    assert of(plan(machine("crs812", kind="switch"), roles=only)).machines == ()
    (away,) = of(plan(unreachable("crs812", kind="switch"), roles=only)).machines
    assert not away.told


def test_a_machine_of_which_something_is_unknown_is_not_told_whatever_it_stands_as() -> None:
    sound = machine("spark1", ("fabric", Sort.UNKNOWN, "x")).model_copy(update={"standing": Standing.IN_SYNC})
    deaf = machine("spark1").model_copy(update={"standing": Standing.UNKNOWN})
    assert [of(plan(one)).code for one in (sound, deaf)] == [1, 1]


def test_a_role_that_nobody_knows_is_not_lost() -> None:
    (found,) = of(plan(machine("spark1", ("novel", Sort.CHANGE, "x")))).machines
    assert [role for role, _ in found.found(Kind.DECLARED)] == ["novel"]


def test_the_role_is_not_said_twice() -> None:
    assert [finding.text for _, finding in of(MIXED).machines[1].found(Kind.DECLARED)] == [
        "/etc/nccl.conf turns RDMA off"
    ]


@pytest.mark.parametrize("whole", [MIXED, EVIL], ids=["mixed", "hostile"])
def test_json_is_whole(whole: Plan) -> None:
    drift = of(whole)
    text = drift.model_dump_json(by_alias=True)
    assert '"schema":"sparkrack.drift/1"' in text
    assert Drift.model_validate_json(text, strict=False) == drift
