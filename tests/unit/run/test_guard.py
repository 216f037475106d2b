"""The lock of a rack over pyinfra's connection to the head node, which is a folder of this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from paramiko import SSHException
from pyinfra.api.config import Config
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors.fake import FakeConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from sparkrack.ops import lock
from sparkrack.ops.lock import Holder, LockError
from sparkrack.run.guard import locked
from tests.unit.ops import shells

MINE = Holder("20260314T091500-3fa2", "ana@desk", "2026-03-14T09:15:00+00:00", "spark2")
OTHER = Holder("20260314T091501-0000", "ben@desk", "2026-03-14T09:15:01+00:00", "spark2")


@dataclass
class Node:
    """What the head node is like. `faults`: what its commands raise, one after the other, before they do anything;
    `logins`: how many connections it still takes."""

    root: Path
    faults: list[BaseException | None] = field(default_factory=list)
    logins: int = 10
    sudo: bool = True
    open: int = 0

    def __copy__(self) -> Node:
        return self

    @property
    def file(self) -> Path:
        return self.root / "run/sparkrack/run.lock"


class Connector(FakeConnector):
    def connect(self) -> None:
        node = self.host.data.node
        if not node.logins:
            raise ConnectError("No route to host")
        node.logins -= 1
        node.open += 1

    def disconnect(self) -> None:
        self.host.data.node.open -= 1

    def run_shell_command(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        node = self.host.data.node
        assert arguments["_sudo"]
        fault = node.faults.pop(0) if node.faults else None
        if fault:
            raise fault
        if not node.sudo:
            return False, CommandOutput([OutputLine("stderr", "sudo: a password is required")])
        command.connector_arguments["_stdin"] = arguments.get("_stdin", "")
        done = shells.run(command, node.root)
        lines = [OutputLine("stdout", line) for line in done.stdout.splitlines()]
        return done.returncode == 0, CommandOutput(lines)


class Desk:
    """A session about spark2, whose rack has spark1 as its head."""

    def __init__(self, root: Path) -> None:
        (root / "run").mkdir()
        self.node = Node(root)
        data = {"node": self.node}
        inventory = Inventory(([("@fake/spark1", data), ("@fake/spark2", {})], {}))  # type: ignore[no-untyped-call]
        for host in inventory:
            host.connector_cls = Connector
        self.state = State(inventory, Config(), check_for_changes=False)  # type: ignore[no-untyped-call]
        self.rack = SimpleNamespace(nodes={"spark1": None, "spark2": None})
        self.selection = SimpleNamespace(machines=("spark2",))
        self.hosts = {host.name.removeprefix("@fake/"): host for host in inventory}
        self.unreachable = {"spark1": "No route to host"}

    @contextmanager
    def locked(self, mine: Holder = MINE) -> Iterator[list[str]]:
        with locked(self, mine) as held:  # type: ignore[arg-type]
            yield held.left


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_it_is_held_meanwhile(desk: Desk) -> None:
    with desk.locked() as left:
        assert lock.holder(desk.node.file.read_text()) == MINE
        assert lock.others(desk.state, desk.node.file.read_text()) is None
        assert lock.others(desk.state, OTHER.text) == OTHER
        assert lock.others(desk.state, "") is not None
        assert lock.others(desk.state, None) is None
    assert left == []
    assert not desk.node.file.exists()


def test_a_head_that_is_not_selected_is_asked_and_left_again(desk: Desk) -> None:
    with desk.locked():
        assert desk.node.open == 1
    assert desk.node.open == 0
    assert not desk.hosts["spark1"].connected


def test_one_that_is_connected_stays_so(desk: Desk) -> None:
    desk.hosts["spark1"].connect()
    with desk.locked():
        assert desk.node.open == 1
    assert desk.node.open == 1


def test_without_the_head_nothing_begins(desk: Desk) -> None:
    desk.node.logins = 0
    words = "^spark1 keeps the lock of the rack and cannot be reached: No route to host; nothing was changed$"
    with pytest.raises(LockError, match=words), desk.locked():
        pytest.fail("it began")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (SSHException("SSH session not active"), "SSH session not active"),
        (EOFError(), "the connection ended"),
        (TimeoutError("timed out"), "timed out"),
        (None, "sudo: a password is required"),
    ],
)
def test_a_head_that_does_not_answer(desk: Desk, fault: Exception | None, words: str) -> None:
    desk.node.faults, desk.node.sudo = [fault], fault is not None
    with pytest.raises(LockError) as caught, desk.locked():
        pytest.fail("it began")
    assert str(caught.value) == f"spark1: the lock of the rack cannot be taken: {words}; nothing was changed"
    assert desk.node.open == 0


def test_the_second_is_refused_and_takes_nothing_away(desk: Desk) -> None:
    with desk.locked():
        with pytest.raises(LockError) as caught, desk.locked(OTHER):
            pytest.fail("it began")
        assert str(caught.value) == MINE.busy
        assert lock.holder(desk.node.file.read_text()) == MINE


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_it_is_given_back_however_it_ends(desk: Desk, kind: type[BaseException]) -> None:
    with pytest.raises(kind), desk.locked():
        raise kind
    assert not desk.node.file.exists()


def test_cut_off_while_it_is_taken(desk: Desk) -> None:
    desk.node.faults = [KeyboardInterrupt()]
    desk.node.file.parent.mkdir()
    desk.node.file.write_text(MINE.text)  # the command went through, its answer was not waited for
    with pytest.raises(KeyboardInterrupt), desk.locked():
        pytest.fail("it began")
    assert not desk.node.file.exists()


def test_a_run_that_has_cost_the_connection_gives_it_back_over_another(desk: Desk) -> None:
    with desk.locked() as left:
        desk.node.faults = [EOFError()]
    assert left == []
    assert not desk.node.file.exists()


@pytest.mark.parametrize(
    ("faults", "logins", "words"),
    [
        ([EOFError()], 0, "a new connection to @fake/spark1 fails: No route to host"),
        ([EOFError(), SSHException("no")], 1, "a new connection to @fake/spark1 fails: no"),
        ([KeyboardInterrupt()], 1, "cut off"),
    ],
)
def test_if_it_cannot_be_given_back_that_is_said(
    desk: Desk, faults: list[BaseException | None], logins: int, words: str
) -> None:
    with desk.locked() as left:
        desk.node.faults, desk.node.logins = faults, logins
    assert left == [f"spark1: the lock could not be given back ({words}); sparkrack unlock {MINE.id}"]
    assert desk.node.file.exists()


def test_if_it_was_gone_that_is_said(desk: Desk) -> None:
    with desk.locked() as left:
        desk.node.file.unlink()
    assert left[0].startswith("spark1: the lock was gone before the end")


def test_that_of_another_run_stays(desk: Desk) -> None:
    with desk.locked() as left:
        desk.node.file.write_text(OTHER.text)
    assert left == [f"spark1: the lock is now that of {OTHER}; another run may have changed the rack meanwhile"]
    assert desk.node.file.exists()


def test_it_is_renewed_while_it_is_held(desk: Desk) -> None:
    (desk.node.root / "proc").mkdir()
    (desk.node.root / "proc/uptime").write_text("1000.00 1.00\n")
    with locked(desk, MINE, beat=0.01) as held:  # type: ignore[arg-type]
        assert desk.node.file.stat().st_mtime == 1000
        (desk.node.root / "proc/uptime").write_text("1100.00 1.00\n")
        for _ in range(500):
            gevent.sleep(0.01)
            if desk.node.file.stat().st_mtime == 1100:
                break
        assert desk.node.file.stat().st_mtime == 1100
        assert held.lost == ""


def test_a_run_whose_lock_is_gone_knows_it_at_the_next_renewal(desk: Desk) -> None:
    with locked(desk, MINE) as held:  # type: ignore[arg-type]
        desk.node.file.unlink()
        held.renew()
        assert held.lost.startswith("spark1: the lock was gone before the end")


def test_a_run_that_cannot_renew_gives_up_when_the_lock_expires(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with locked(desk, MINE) as held:  # type: ignore[arg-type]
        desk.node.faults, desk.node.logins = [EOFError()], 0
        held.renew()
        assert held.lost == "", "it counts as long as the node believes it"
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + lock.EXPIRED)
        assert "the lock could not be renewed for 120 s, so another run may have taken it" in held.lost
