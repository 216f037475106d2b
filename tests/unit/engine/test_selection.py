"""What --limit, --exclude and --only leave of a rack, and what they say when that is nothing."""

from __future__ import annotations

import pytest

from core.model.selection import ROLES, SelectionError, select, select_named, select_nodes
from tests.unit.model.racks import RING, SWITCH, loaded

RACK = loaded(SWITCH)
ALL = ("spark1", "spark2", "crs812")
NODES = ("spark1", "spark2")
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
        (["spark*"], [], ("spark1", "spark2")),
        (["*"], [], ALL),
        (["crs8??", "spark[!1]"], [], ("spark2", "crs812")),
        (["@routeros/*"], [], ("crs812",)),
        (["nodes"], [], ("spark1", "spark2")),
        (["switches"], [], ("crs812",)),
        (["nodes"], ["*1"], ("spark2",)),
        ([], ["switches"], ("spark1", "spark2")),
    ],
)
def test_machines_in_the_order_of_the_rack(limit: list[str], exclude: list[str], left: tuple[str, ...]) -> None:
    assert select(RACK, limit, exclude).machines == left


@pytest.mark.parametrize(
    ("limit", "exclude", "why"),
    [
        (["spark9"], [], f"--limit spark9: not in the rack; {KNOWN}; did you mean spark2?"),
        (["spark1", "spark9"], [], f"--limit spark9: not in the rack; {KNOWN}; did you mean spark2?"),
        ([], ["spark9"], f"--exclude spark9: not in the rack; {KNOWN}; did you mean spark2?"),
        (["@routeros/spark9"], [], f"--limit @routeros/spark9: not in the rack; {KNOWN}"),
        (["@routeros/spark1"], [], f"--limit @routeros/spark1: not in the rack; {KNOWN}"),
        ([""], [], f"--limit : not in the rack; {KNOWN}"),
        (["SPARK1"], [], f"--limit SPARK1: not in the rack; {KNOWN}; did you mean spark1?"),
        (["sparc*"], [], f"--limit sparc*: not in the rack; {KNOWN}; did you mean spark2?"),
        (["nodes", "Spark*"], [], f"--limit Spark*: not in the rack; {KNOWN}; did you mean spark2?"),
        ([], ["ring*"], f"--exclude ring*: not in the rack; {KNOWN}"),
        (["node"], [], f"--limit node: not in the rack; {KNOWN}; did you mean nodes?"),
        (["@routeros/spark*"], [], f"--limit @routeros/spark*: not in the rack; {KNOWN}"),
        ([], ["nodes", "switches"], "--limit and --exclude leave no machine"),
        ([], ALL, "--limit and --exclude leave no machine"),
        (["spark1"], ["spark1"], "--limit and --exclude leave no machine"),
    ],
)
def test_what_leaves_nothing(limit: list[str], exclude: list[str], why: str) -> None:
    with pytest.raises(SelectionError) as caught:
        select(RACK, limit, exclude)
    assert str(caught.value) == why


@pytest.mark.parametrize("option", ["limit", "exclude"])
def test_a_group_without_hosts_is_an_error(option: str) -> None:
    with pytest.raises(SelectionError, match=rf"^--{option} switches: the rack has no switches; there are spark1, "):
        select(loaded(RING), **{option: ["switches"]})


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


@pytest.mark.parametrize(
    ("patterns", "found"),
    [((), NODES), (["nodes"], NODES), (["*2", "spark1"], NODES), (["*"], NODES)],
)
def test_nodes_by_name_glob_and_group(patterns: list[str], found: tuple[str, ...]) -> None:
    assert select_nodes(RACK, patterns, "--limit") == found


@pytest.mark.parametrize("pattern", ["spark9", "crs812", "switches", "crs*", ""])
def test_what_is_not_a_node(pattern: str) -> None:
    with pytest.raises(SelectionError) as caught:
        select_nodes(RACK, ["spark1", pattern], "--limit")
    assert str(caught.value) == f"--limit {pattern}: not a node of the rack; there are spark1, spark2"


def test_hosts_that_are_named() -> None:
    assert select_named(RACK, (), "--exclude") == ()
    assert select_named(RACK, ["switches", "*2"], "--exclude") == ("spark2", "crs812")
    with pytest.raises(SelectionError, match=r"^--exclude spark9: not in the rack; "):
        select_named(RACK, ["spark9"], "--exclude")
