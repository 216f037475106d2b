"""Whether a node is at work: asked with the real ssh, of a server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkrack.fleet import load
from sparkrack.rebuild import service
from sparkrack.rebuild.service import CONTAINERS, Service, Standing, asked, judged, refusals
from tests.unit.run.sshnode import SshNode, rack_file


@pytest.fixture
def node() -> Iterator[SshNode]:
    made = SshNode(lambda _: (0, "3\n", ""))
    yield made
    made.close()


def ask(folder: Path, node: SshNode | None, **more: object) -> Service:
    rack = load(rack_file(folder, node, **more))  # type: ignore[arg-type]
    return asked(rack, ["spark1"], CONTAINERS)["spark1"]


def test_a_node_that_lets_us_in_is_counted(tmp_path: Path, node: SshNode) -> None:
    assert ask(tmp_path, node) == Service(Standing.OURS, containers=3)
    assert node.commands == [CONTAINERS]


def test_a_host_key_that_nobody_knows_is_not_in_service(tmp_path: Path, node: SshNode) -> None:
    found = ask(tmp_path, node, known=False)
    assert (found.standing, found.why) == (Standing.NOT_OURS, "Host key verification failed.")
    assert node.commands == []


def test_a_node_that_does_not_take_our_key_is_not_in_service(
    tmp_path: Path, node: SshNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.run.sshnode._Server.check_auth_publickey", lambda *_: 2)
    found = ask(tmp_path, node)
    assert found.standing is Standing.NOT_OURS
    assert "Permission denied (publickey)" in found.why


def test_a_node_that_is_off_is_away(tmp_path: Path) -> None:
    off = SshNode(lambda _: None)
    off.close()
    found = ask(tmp_path, off)
    assert found.standing is Standing.AWAY
    assert found.why.endswith("Connection refused")


def test_a_node_that_is_silent_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SECONDS", 1)
    silent = SshNode(lambda _: None, greets=False)
    try:
        assert ask(tmp_path, silent).standing is Standing.UNKNOWN
    finally:
        silent.close()


@pytest.mark.parametrize("said", ["", "three", "-1", "1\n2", "٣", "9999999"])
def test_what_is_no_count_is_unknown(said: str) -> None:
    assert judged(0, said, "").standing is Standing.UNKNOWN


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
    assert judged(code, "0\n", complained).standing is Standing.UNKNOWN


def test_what_a_machine_says_reaches_no_terminal_as_it_is() -> None:
    assert "\x1b" not in judged(0, "\x1b]0;x\x07", "").why
    assert "\x1b" not in judged(255, "", "\x1b[2Jno").why


def test_a_node_on_its_way_up_is_asked_again(tmp_path: Path, node: SshNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """pam_nologin takes the key and hangs up until the node has booted."""
    answers = iter([(255, "", "Connection closed by 127.77.0.11 port 22\n"), (0, "0\n", "")])
    node.speak = lambda _: next(answers)
    monkeypatch.setattr(service, "PAUSE", 0.01)
    rack = load(rack_file(tmp_path, node))
    assert asked(rack, ["spark1"], CONTAINERS, 60)["spark1"] == Service(Standing.OURS)
    assert len(node.commands) == 2


def test_without_patience_it_is_unknown(tmp_path: Path, node: SshNode) -> None:
    node.speak = lambda _: (255, "", "Connection closed by 127.77.0.11 port 22\n")
    rack = load(rack_file(tmp_path, node))
    assert asked(rack, ["spark1"], CONTAINERS)["spark1"].standing is Standing.UNKNOWN


def test_once_it_is_set_up_a_node_has_to_answer() -> None:
    found = {"a": Service(Standing.AWAY, why="off"), "b": Service(Standing.AWAY, why="off")}
    assert refusals(found, ["a"], []) == []
    (line,) = refusals(found, ["a"], [], ready=True)
    assert line.startswith("a: whether containers run on it cannot be told: off")
    assert refusals(found, ["a"], ["a"], ready=True) == []
