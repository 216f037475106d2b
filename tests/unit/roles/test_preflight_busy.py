"""A plain pyinfra run while another one holds the rack: a note in its plan, refused when it would begin."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.ops.fakenode import MODES, Answers, Ended, run
from tests.unit.roles.cases import DEPLOYS, OPERATIONS, node_of, rack_of, read

LOCK = "/run/sparkrack/run.lock"
CASES = read(OPERATIONS / "preflight.busy.yaml")
GONE = "if that run is dead"


def preflight(mode: str, **locks: Any) -> Ended:
    """A run over both nodes of a rack, by what their lock files hold."""
    rack = rack_of({})
    node = node_of("preflight")
    hosts = {
        name: {"rack": rack, "node": rack.nodes[name], "answers": Answers(own(node, name) | {LOCK: locks.get(name)})}
        for name in rack.nodes
    }
    return run(hosts, DEPLOYS["preflight"], mode)


def own(node: dict[str, Any], name: str) -> dict[str, Any]:
    """What no two nodes have in common."""
    if name == "spark1":
        return node
    facts = node["preflight-machine"].replace("AAAAC3NzaC1lZDI1NTE5AAAAIone", "AAAAC3NzaC1lZDI1NTE5AAAAItwo")
    facts = facts.replace("ASUSTeK COMPUTER INC.", "LENOVO")
    return node | {"/etc/machine-id": "f" * 32 + "\n", "preflight-machine": facts}


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@pytest.mark.parametrize("mode", MODES)
def test_another_run(case: dict[str, str], mode: str) -> None:
    ended = preflight(mode, spark1=case["lock"])
    assert case["says"] in ended.log
    assert ended.log.count(GONE) == (2 if mode == "asked" else 1), "in its plan, and when it begins"
    assert ended.failed == ([] if mode == "dry" else ["spark1"])
    assert not {sign for sign in ended.log if not sign.isprintable()} - {"\n", "\x1b"}  # pyinfra's own colours


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lock", [{"exit": 1}, {"garbled": "%%"}, {"silent": True}])
def test_a_lock_that_is_unknown_is_not_a_free_rack(lock: dict[str, Any], mode: str) -> None:
    ended = preflight(mode, spark1=lock)
    assert ended.failed == ["spark1"]
    assert LOCK in ended.log


@pytest.mark.parametrize("mode", MODES)
def test_what_lies_on_another_node_is_not_a_lock(mode: str) -> None:
    """No one could end it: `sparkrack unlock` asks the first node."""
    ended = preflight(mode, spark2=CASES[0]["lock"])
    assert (ended.failed, GONE in ended.log) == ([], False)
