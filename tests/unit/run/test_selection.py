"""What --limit, --exclude and --only leave of a rack, and what they say when that is nothing."""

from __future__ import annotations

import pytest

from sparkrack.fleet.selection import ROLES, SelectionError, select
from tests.unit.fleet.racks import SWITCH, loaded

RACK = loaded(SWITCH)
ALL = ("spark1", "spark2", "crs812")
KNOWN = "there are spark1, spark2, crs812"


@pytest.mark.parametrize(
    ("limit", "exclude", "left"),
    [
        ([], [], ALL),
        (["spark2"], [], ("spark2",)),
        (["crs812", "spark1"], [], ("spark1", "crs812")),
        (["spark1", "spark1"], [], ("spark1",)),
        (["@routeros/crs812"], [], ("crs812",)),
        ([], ["crs812"], ("spark1", "spark2")),
        ([], ["@routeros/crs812", "spark2"], ("spark1",)),
        (["spark1", "spark2"], ["spark2"], ("spark1",)),
    ],
)
def test_machines_in_the_order_of_the_rack(limit: list[str], exclude: list[str], left: tuple[str, ...]) -> None:
    assert select(RACK, limit, exclude).machines == left


@pytest.mark.parametrize(
    ("limit", "exclude", "why"),
    [
        (["spark9"], [], f"--limit spark9: not in the rack; {KNOWN}"),
        (["spark1", "spark9"], [], f"--limit spark9: not in the rack; {KNOWN}"),
        ([], ["spark9"], f"--exclude spark9: not in the rack; {KNOWN}"),
        (["@routeros/spark9"], [], f"--limit @routeros/spark9: not in the rack; {KNOWN}"),
        (["@routeros/spark1"], [], f"--limit @routeros/spark1: not in the rack; {KNOWN}"),
        ([""], [], f"--limit : not in the rack; {KNOWN}"),
        (["SPARK1"], [], f"--limit SPARK1: not in the rack; {KNOWN}"),
        (["spark*"], [], f"--limit spark*: not in the rack; {KNOWN}"),
        ([], ALL, "--limit and --exclude leave no machine"),
        (["spark1"], ["spark1"], "--limit and --exclude leave no machine"),
    ],
)
def test_what_leaves_nothing(limit: list[str], exclude: list[str], why: str) -> None:
    with pytest.raises(SelectionError) as caught:
        select(RACK, limit, exclude)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("only", "roles", "whole"),
    [
        ([], set(ROLES), True),
        (["fabric"], {"preflight", "fabric"}, False),
        (["preflight"], {"preflight"}, False),
        (["switch", "rdma", "rdma"], {"preflight", "switch", "rdma"}, False),
        (ROLES, set(ROLES), True),
    ],
)
def test_roles_and_the_gates_always(only: list[str], roles: set[str], whole: bool) -> None:
    selection = select(RACK, only=only)
    assert selection.roles == roles
    assert selection.whole == whole
