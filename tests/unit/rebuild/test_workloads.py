"""Whether a node is at work: asked with the real ssh, of a server on loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.model import load
from serving.running_engines import MARKS
from sparkrack.rebuild import workloads
from sparkrack.rebuild.workloads import (
    CONTAINERS,
    NodeReachability,
    NodeWorkload,
    counted_workloads,
    judged,
    parse_workload,
    query_workloads,
    running_units,
    unit_blockers,
    unknown_units,
    workload_blockers,
)
from tests.unit.engine.ssh_node import SshNode, rack_file
from tests.unit.model.racks import SWITCH, loaded

OURS = NodeWorkload(NodeReachability.OURS)
VERIFY = "Host key verification failed."
CONNECT = "ssh: connect to host 10.0.0.1 port 22: "
GROUPS = f"""\
/sys/fs/cgroup/sparkrack.slice/docker-{"a" * 64}.scope
/sys/fs/cgroup/sparkrack.slice/docker-{"b" * 64}.scope
/sys/fs/cgroup/system.slice/docker-{"c" * 64}.scope
/sys/fs/cgroup/sparkrack.slice/sparkrack-qwen.slice/docker-{"d" * 64}.scope
/sys/fs/cgroup/sparkrack.slice/sparkrack-qwen.slice/docker-{"d" * 64}.scope/system.slice/docker-{"e" * 64}.scope
/sys/fs/cgroup/system.slice/sparkrack-serve-qwen.service
/sys/fs/cgroup/system.slice/sparkrack-serve-two.service
/sys/fs/cgroup/system.slice/sparkrack-serve-three-coordinator.service
/sys/fs/cgroup/system.slice/sparkrack-serve-three-agent.service
/sys/fs/cgroup/system.slice/sparkrack-serve-four-agent.service
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
        assert ask(tmp_path, silent) == NodeWorkload(NodeReachability.UNKNOWN, reason="no answer within 1 s")
    finally:
        silent.close()


def test_a_machine_without_ssh_knows_of_no_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rack = load(rack_file(tmp_path, None, 9))
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = NodeWorkload(NodeReachability.UNKNOWN, reason="ssh: No such file or directory")
    assert query_workloads(rack, ["spark1"], CONTAINERS)["spark1"] == expected


def test_the_others_are_asked_once(tmp_path: Path, node: SshNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.speak = lambda _: (255, "", "Connection closed by 127.77.0.11 port 22\n")
    monkeypatch.setattr(workloads, "POLL_SECONDS", 0.01)
    rack = load(rack_file(tmp_path, node))
    assert query_workloads(rack, [], CONTAINERS, 60, ["spark1"])["spark1"].transient
    assert len(node.commands) == 1


@pytest.mark.parametrize("reported", ["3", "find: no", "\n", "/sys/fs/cgroup/a\nb", "/sys/fs/cgroup/" + "a" * 2**20])
def test_what_is_not_a_list_of_control_groups_is_unknown(reported: str) -> None:
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


@pytest.mark.parametrize(
    ("code", "output", "complained", "expected"),
    [
        (0, "", "", NodeWorkload(NodeReachability.OURS)),
        (0, "x", "", NodeWorkload(NodeReachability.UNKNOWN, reason="it prints x instead of control groups")),
        (
            0,
            "\n",
            "",
            NodeWorkload(NodeReachability.UNKNOWN, reason="it prints an empty line instead of control groups"),
        ),
        (
            0,
            "y" * 50,
            "",
            NodeWorkload(NodeReachability.UNKNOWN, reason=f"it prints {'y' * 40} instead of control groups"),
        ),
        (
            0,
            "/sys/fs/cgroup/" + "a" * (2**20 - 14),
            "",
            NodeWorkload(NodeReachability.UNKNOWN, reason="its list of containers is too long"),
        ),
        (0, "/sys/fs/cgroup/" + "a" * (2**20 - 15), "", NodeWorkload(NodeReachability.OURS)),
        (1, "", "", NodeWorkload(NodeReachability.UNKNOWN, reason="exit 1")),
        (1, "", "a\n\n b \n", NodeWorkload(NodeReachability.UNKNOWN, reason="b")),
        (1, "", "Host key verification failed.", NodeWorkload(NodeReachability.UNKNOWN, reason=VERIFY)),
        (255, "", "", NodeWorkload(NodeReachability.UNKNOWN, reason="exit 255", transient=True)),
        (255, "", "c" * 300, NodeWorkload(NodeReachability.UNKNOWN, reason="c" * 200, transient=True)),
        (255, "", VERIFY, NodeWorkload(NodeReachability.NOT_OURS, reason=VERIFY)),
        (255, "", f"{VERIFY}\nlast", NodeWorkload(NodeReachability.UNKNOWN, reason="last", transient=True)),
        *(
            (255, "", f"{CONNECT}{word}", NodeWorkload(NodeReachability.AWAY, reason=f"{CONNECT}{word}"))
            for word in (
                *("Connection refused", "No route to host", "Network is unreachable", "Connection timed out"),
                "Host is down",
            )
        ),
        (255, "", f"{CONNECT}x", NodeWorkload(NodeReachability.UNKNOWN, reason=f"{CONNECT}x", transient=True)),
    ],
)
def test_the_answer_of_a_node_is_reported_by_its_last_line(
    code: int, output: str, complained: str, expected: NodeWorkload
) -> None:
    assert judged(code, output, complained) == expected


@pytest.mark.parametrize(
    ("workload", "rebuilt", "named", "expected"),
    [
        (OURS, ["a"], [], []),
        (replace(OURS, containers=1), ["a"], [], ["a: 1 container run on it and it is rebuilt; stop them, or pass"]),
        (
            replace(OURS, containers=2),
            [],
            [],
            ["a: 2 containers run on it and it is cabled to the switch; stop them, or pass --containers a"],
        ),
        (replace(OURS, containers=2), ["a"], ["a"], []),
        (
            NodeWorkload(NodeReachability.UNKNOWN, reason="no"),
            [],
            [],
            ["a: whether containers run on it is unknown: no; run again, or pass --containers a"],
        ),
        (NodeWorkload(NodeReachability.NOT_OURS), ["a"], [], []),
    ],
)
def test_containers_and_a_node_that_does_not_tell_stand_in_the_way(
    workload: NodeWorkload, rebuilt: list[str], named: list[str], expected: list[str]
) -> None:
    found = workload_blockers({"a": workload}, rebuilt, named)
    assert len(found) == len(expected)
    assert all(line.startswith(begin) for line, begin in zip(found, expected, strict=True))


def test_a_node_that_is_only_cabled_need_not_answer_once_the_others_are_set_up() -> None:
    assert workload_blockers({"a": NodeWorkload(NodeReachability.AWAY)}, [], [], ready=True) == []
    assert workload_blockers({"a": OURS}, ["a"], [], ready=True) == []


def test_of_a_node_that_is_not_affected_only_its_ranks_of_affected_units_count() -> None:
    busy = replace(OURS, containers=2, units=("one", "two"))
    found = counted_workloads({"a": busy, "b": busy}, ["a"], ["two"])
    assert found == {"a": busy, "b": replace(OURS, units=("two",))}
    assert running_units(found) == {"one": ("a",), "two": ("a", "b")}


def test_a_unit_is_unknown_only_if_none_of_its_nodes_tells() -> None:
    rack = loaded(SWITCH)
    deaf = NodeWorkload(NodeReachability.UNKNOWN, reason="mad")
    units = {"one": ("a", "b")}
    for other in (OURS, NodeWorkload(NodeReachability.AWAY), NodeWorkload(NodeReachability.NOT_OURS)):
        assert unknown_units(rack, {"a": deaf, "b": other}, units, []) == []
    assert unknown_units(rack, {"a": deaf, "b": deaf}, units, ["a", "b"]) == []
    (line,) = unknown_units(rack, {"a": deaf, "b": deaf}, units, ["a"])
    assert line.endswith(" runs is unknown: b: mad; run again, or pass --containers b")
    (line,) = unknown_units(rack, {"a": deaf, "b": deaf}, units, [])
    assert line.endswith(": a: mad; b: mad; run again, or pass --containers a --containers b")


def test_a_unit_that_rack_yaml_does_not_declare_is_never_stopped_by_a_command() -> None:
    rack = loaded(SWITCH)
    for stops in (True, False):
        (line,) = unit_blockers(rack, {"old": ("a", "b")}, stops=stops)
        assert " runs on a, b; run " in line
        assert line.endswith(" first")
        assert "--stop-units" not in line


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
