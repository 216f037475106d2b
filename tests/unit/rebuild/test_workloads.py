"""Whether a node is at work: asked with the real ssh, of a server on loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.model import load
from core.model.running_units import MARKS
from sparkrack.rebuild import workloads
from sparkrack.rebuild.workloads import (
    CONTAINERS,
    NodeReachability,
    NodeWorkload,
    judged,
    parse_workload,
    query_workloads,
    workload_blockers,
)
from tests.unit.engine.ssh_node import SshNode, rack_file

GROUPS = f"""\
/sys/fs/cgroup/sparkrack.slice/docker-{"a" * 64}.scope
/sys/fs/cgroup/sparkrack.slice/docker-{"b" * 64}.scope
/sys/fs/cgroup/system.slice/docker-{"c" * 64}.scope
/sys/fs/cgroup/sparkrack.slice/sparkrack-qwen.slice/docker-{"d" * 64}.scope
/sys/fs/cgroup/sparkrack.slice/sparkrack-qwen.slice/docker-{"d" * 64}.scope/system.slice/docker-{"e" * 64}.scope
/sys/fs/cgroup/system.slice/sparkrack-serve-qwen.service
/sys/fs/cgroup/system.slice/sparkrack-serve-two.service
/sys/fs/cgroup/system.slice/sparkrack-serve-three-keeper.service
/sys/fs/cgroup/system.slice/sparkrack-serve-three-tether.service
/sys/fs/cgroup/system.slice/sparkrack-serve-four-tether.service
/run/sparkrack-serve/four/wanted
"""
"""A node with a unit that runs, one whose container is not started yet, one that is down, and one whose gates run."""


@pytest.fixture
def node() -> Iterator[SshNode]:
    made = SshNode(lambda _: (0, GROUPS, ""))
    yield made
    made.close()


def ask(folder: Path, node: SshNode | None, **more: object) -> NodeWorkload:
    rack = load(rack_file(folder, node, **more))  # type: ignore[arg-type]
    return query_workloads(rack, ["spark1"], CONTAINERS)["spark1"]


def test_the_containers_and_units_of_a_node_that_accepts_our_key(tmp_path: Path, node: SshNode) -> None:
    assert ask(tmp_path, node) == NodeWorkload(NodeReachability.OURS, containers=3, units=("qwen", "two", "four"))
    assert node.commands == [CONTAINERS]


def test_a_host_key_that_no_one_knows_is_not_in_service(tmp_path: Path, node: SshNode) -> None:
    found = ask(tmp_path, node, known=False)
    assert (found.reachability, found.reason) == (NodeReachability.NOT_OURS, "Host key verification failed.")
    assert node.commands == []


def test_a_node_that_does_not_take_our_key_is_not_in_service(
    tmp_path: Path, node: SshNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.engine.ssh_node._Server.check_auth_publickey", lambda *_: 2)
    found = ask(tmp_path, node)
    assert found.reachability is NodeReachability.NOT_OURS
    assert "Permission denied (publickey)" in found.reason


def test_a_node_that_is_off_is_away(tmp_path: Path) -> None:
    off = SshNode(lambda _: None)
    off.close()
    found = ask(tmp_path, off)
    assert found.reachability is NodeReachability.AWAY
    assert found.reason.endswith("Connection refused")


def test_a_node_that_is_silent_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "ANSWER_SECONDS", 1)
    silent = SshNode(lambda _: None, greets=False)
    try:
        assert ask(tmp_path, silent).reachability is NodeReachability.UNKNOWN
    finally:
        silent.close()


@pytest.mark.parametrize("reported", ["3", "find: no", "\n", "/sys/fs/cgroup/a\nb", "/sys/fs/cgroup/" + "a" * 2**20])
def test_what_is_no_list_of_control_groups_is_unknown(reported: str) -> None:
    assert judged(0, reported, "").reachability is NodeReachability.UNKNOWN


@pytest.mark.parametrize(
    ("code", "complained"),
    [
        (255, ""),
        (255, "Connection timed out during banner exchange\r\n"),
        (255, "kex_exchange_identification: Connection closed by remote host"),
        (255, "client_loop: send disconnect: Broken pipe"),
        (255, "a banner says Connection refused, Permission denied"),
        (127, "sh: find: not found"),
    ],
)
def test_what_is_not_known_to_be_harmless_is_unknown(code: int, complained: str) -> None:
    assert judged(code, "", complained).reachability is NodeReachability.UNKNOWN


def test_what_a_machine_says_reaches_no_terminal_as_it_is() -> None:
    assert "\x1b" not in judged(0, "\x1b]0;x\x07", "").reason
    assert "\x1b" not in judged(255, "", "\x1b[2Jno").reason


def test_a_node_on_its_way_up_is_asked_again(tmp_path: Path, node: SshNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """pam_nologin takes the key and hangs up until the node has booted."""
    answers = iter([(255, "", "Connection closed by 127.77.0.11 port 22\n"), (0, "", "")])
    node.speak = lambda _: next(answers)
    monkeypatch.setattr(workloads, "POLL_SECONDS", 0.01)
    rack = load(rack_file(tmp_path, node))
    assert query_workloads(rack, ["spark1"], CONTAINERS, 60)["spark1"] == NodeWorkload(NodeReachability.OURS)
    assert len(node.commands) == 2


def test_without_patience_it_is_unknown(tmp_path: Path, node: SshNode) -> None:
    node.speak = lambda _: (255, "", "Connection closed by 127.77.0.11 port 22\n")
    rack = load(rack_file(tmp_path, node))
    assert query_workloads(rack, ["spark1"], CONTAINERS)["spark1"].reachability is NodeReachability.UNKNOWN


def test_once_it_is_set_up_a_node_has_to_answer() -> None:
    found = {
        "a": NodeWorkload(NodeReachability.AWAY, reason="off"),
        "b": NodeWorkload(NodeReachability.AWAY, reason="off"),
    }
    assert workload_blockers(found, ["a"], []) == []
    (line,) = workload_blockers(found, ["a"], [], ready=True)
    assert line.startswith("a: whether containers run on it is unknown: off")
    assert workload_blockers(found, ["a"], ["a"], ready=True) == []


def test_the_real_find_prints_control_groups() -> None:
    done = subprocess.run(["sh", "-c", CONTAINERS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    parse_workload(done.stdout)


def test_the_mark_of_a_unit_whose_gates_run_is_printed(tmp_path: Path) -> None:
    (tmp_path / "four").mkdir()
    (tmp_path / "four/wanted").touch()
    (tmp_path / "three").mkdir()
    script = CONTAINERS.replace(f"in {MARKS}/", f"in {tmp_path}/")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    shown = done.stdout.replace(str(tmp_path), MARKS)
    assert [line for line in shown.splitlines() if not line.startswith("/sys/")] == [f"{MARKS}/four/wanted"]
    assert parse_workload(f"{MARKS}/four/wanted\n") == (0, ("four",))
