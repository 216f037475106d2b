"""What a node has said counts once more, and not longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkrack.rebuild import workload_cache
from sparkrack.rebuild.workload_cache import WorkloadCache
from sparkrack.rebuild.workloads import NodeReachability, NodeWorkload
from tests.unit.engine.ssh_node import SshNode, rack_file

BEFORE = {"spark1": NodeWorkload(NodeReachability.NOT_OURS, reason="before")}
NOW = {"spark1": NodeWorkload(NodeReachability.OURS, containers=1)}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    node = SshNode(lambda _: (0, f"/sys/fs/cgroup/docker-{'a' * 64}.scope\n", ""))
    yield rack_file(tmp_path, node)
    node.close()


def test_what_was_found_counts_once(file: Path) -> None:
    look = WorkloadCache(file, "count", 0, BEFORE)
    assert [look(["spark1"], ()), look(["spark1"], ())] == [BEFORE, NOW]


@pytest.mark.parametrize(
    "found", [{}, {"spark1": NodeWorkload(NodeReachability.AWAY)}, BEFORE | {"spark2": NOW["spark1"]}]
)
def test_who_was_away_or_is_another_is_asked(file: Path, found: dict[str, NodeWorkload]) -> None:
    assert WorkloadCache(file, "count", 0, found)(["spark1"], ()) == NOW


def test_another_node_that_is_away_does_not_renew_the_others(file: Path) -> None:
    found = BEFORE | {"spark2": NodeWorkload(NodeReachability.AWAY)}
    assert WorkloadCache(file, "count", 0, found)(["spark1"], ["spark2"]) == found


def test_after_a_while_it_counts_no_more(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_cache, "FRESH", 0.0)
    assert WorkloadCache(file, "count", 0, BEFORE)(["spark1"], ()) == NOW
