"""How long a node that refuses every login is waited for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from sparkrack.bootstrap.host_trust import KeyOffer
from sparkrack.bootstrap.login_methods import NodeLogin, NodesContext
from sparkrack.bootstrap.node_bootstrap import NodeBootstrap
from sparkrack.bootstrap.runner import NodesBootstrap, Trust
from sparkrack.node_login.errors import BootstrapError, NodeUnreachableError
from sparkrack.node_login.key_shell import ShellResult
from sparkrack.node_login.passwords import Passwords
from tests.unit.bootstrap.test_hostkeys import made
from tests.unit.model.racks import SWITCH, loaded

RACK = loaded(SWITCH)


@dataclass
class Attempts:
    """Fails so often, then succeeds."""

    fails: int
    with_what: type[BootstrapError] = NodeUnreachableError
    made: int = field(default=0, init=False)

    def __call__(self) -> int:
        self.made += 1
        if self.made <= self.fails:
            raise self.with_what("no")
        return self.made


def node_login(folder: Path, timeout: float) -> NodeLogin:
    passwords = Passwords(None, lambda _node, _user: SecretStr("x"))
    workdir = NodesContext(RACK, "", lambda: "nvidia", passwords, folder, timeout, lambda _text: None)
    return NodeLogin(workdir, RACK.nodes["spark1"], (made(folder),))


def test_a_node_that_is_away_is_asked_again(tmp_path: Path) -> None:
    assert node_login(tmp_path, 60).patiently(Attempts(2)) == 3


def test_patience_ends(tmp_path: Path) -> None:
    attempts = Attempts(9)
    with pytest.raises(NodeUnreachableError):
        node_login(tmp_path, 0).patiently(attempts)
    assert attempts.made <= 2


def test_what_waiting_does_not_help_is_not_tried_again(tmp_path: Path) -> None:
    attempts = Attempts(9, BootstrapError)
    with pytest.raises(BootstrapError):
        node_login(tmp_path, 60).patiently(attempts)
    assert attempts.made == 1


def test_a_gateway_believes_what_was_said_last(tmp_path: Path) -> None:
    found, other = node_login(tmp_path, 0), made(tmp_path)
    found.by_key()
    found.believe([other])
    known = (tmp_path / "spark1.known_hosts").read_text()
    assert known == f"10.77.0.11 {other}\n"
    assert f'UserKnownHostsFile "{tmp_path}/spark1.known_hosts"' in (tmp_path / "spark1.ssh_config").read_text()


class NoShell:
    """A root shell on which no script may be run."""

    who = "ops, by key"

    def run(self, _script: str) -> ShellResult:
        pytest.fail("a script was sent")

    def close(self) -> None: ...


def test_no_script_is_sent_once_the_lock_is_lost(tmp_path: Path) -> None:
    found = node_login(tmp_path, 60)
    found.context = replace(found.context, lost=lambda: "spark1: the lock is now that of run 1 of ben@desk")
    with pytest.raises(
        BootstrapError, match=r"make user ops: spark1: the lock is now that of run 1 .*; nothing more is sent"
    ):
        found.ask(NoShell(), "make user ops", "useradd ops")


def test_no_node_is_begun_once_the_lock_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is lost at the first node keeps the second from being touched."""
    begun, lost = [], []

    def run(self: NodeBootstrap, *, dry: bool) -> bool:
        begun.append(self.node.name)
        lost.append("spark1: the lock is now that of run 1 of ben@desk")
        return True

    key = made(tmp_path)
    offers = {name: KeyOffer((key,), (key,)) for name in ("spark1", "spark2")}
    whole = NodesBootstrap(
        node_login(tmp_path, 0).context, Trust(None, {}, lambda *_: True, False), ("spark1", "spark2")
    )
    monkeypatch.setattr(NodeBootstrap, "run", run)
    monkeypatch.setattr(whole, "_key_offers", lambda: offers)
    monkeypatch.setattr(whole, "_confirm_host_keys", lambda _offers: dict.fromkeys(offers, (key,)))
    monkeypatch.setattr(whole, "_of_the_others", lambda: ({}, {}))
    whole.run(lost=lambda: lost[-1] if lost else "")
    assert begun == ["spark1"]
    assert whole.failed == {"spark2": "spark1: the lock is now that of run 1 of ben@desk; nothing was sent"}
