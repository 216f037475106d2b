"""The lock of a rack over pyinfra's connection to the head node, which is a folder of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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

from core.ops import run_lock
from core.ops.run_lock import Holder, LockError
from core.routeros.errors import StoppedError
from core.routeros.session import SessionConnection
from sparkrack.engine import locking
from sparkrack.engine.locking import locked, locked_if_reachable, look
from switch.apply import _session_of_run
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


class Workdir:
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
    def locked(self, own: Holder = MINE) -> Iterator[list[str]]:
        with locked(self, own) as held:  # type: ignore[arg-type]
            yield held.left


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir(tmp_path)


def test_it_is_held_meanwhile(workdir: Workdir) -> None:
    with workdir.locked() as left:
        assert run_lock.holder(workdir.node.file.read_text()) == MINE
        assert run_lock.other_holder(workdir.state, workdir.node.file.read_text()) is None
        assert run_lock.other_holder(workdir.state, OTHER.text) == OTHER
        assert run_lock.other_holder(workdir.state, "") is not None
        assert run_lock.other_holder(workdir.state, None) is None
    assert left == []
    assert not workdir.node.file.exists()


def test_an_inherited_one_is_used_and_left_to_the_outer_command(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workdir.locked(OTHER):
        content = workdir.node.file.read_text()
        with pytest.raises(LockError, match="the rack is locked by run 20260314T091501-0000"), workdir.locked():
            pass
        with pytest.raises(LockError, match="the rack is locked by"):
            look(workdir)  # type: ignore[arg-type]
        monkeypatch.setenv(run_lock.INHERITED, OTHER.text)
        look(workdir)  # type: ignore[arg-type]
        assert run_lock.other_holder(workdir.state, content) is None
        assert run_lock.other_holder(workdir.state, MINE.text) == MINE
        with workdir.locked() as left:
            assert workdir.node.file.read_text() == content
        assert (left, workdir.node.file.read_text()) == ([], content)
        monkeypatch.delenv(run_lock.INHERITED)


def test_an_inherited_one_that_is_gone_is_not_taken(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_lock.INHERITED, OTHER.text)
    with pytest.raises(LockError, match="the lock was gone before the end"), workdir.locked():
        pass
    assert not workdir.node.file.exists()
    workdir.node.file.parent.mkdir(exist_ok=True)
    workdir.node.file.write_text(MINE.text)
    with pytest.raises(LockError, match="the lock is now that of"), workdir.locked():
        pass
    assert workdir.node.file.read_text() == MINE.text


def test_a_head_that_is_not_selected_is_asked_and_left_again(workdir: Workdir) -> None:
    with workdir.locked():
        assert workdir.node.open == 1
    assert workdir.node.open == 0
    assert not workdir.hosts["spark1"].connected


def test_one_that_is_connected_stays_so(workdir: Workdir) -> None:
    workdir.hosts["spark1"].connect()
    with workdir.locked():
        assert workdir.node.open == 1
    assert workdir.node.open == 1


def test_without_the_head_nothing_begins(workdir: Workdir) -> None:
    workdir.node.logins = 0
    words = "^spark1, which stores the lock of the rack, is unreachable: No route to host; nothing was changed$"
    with pytest.raises(LockError, match=words), workdir.locked():
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
def test_a_head_that_does_not_answer(workdir: Workdir, fault: Exception | None, words: str) -> None:
    workdir.node.faults, workdir.node.sudo = [fault], fault is not None
    with pytest.raises(LockError) as caught, workdir.locked():
        pytest.fail("it began")
    assert str(caught.value) == f"spark1: the lock of the rack cannot be taken: {words}; nothing was changed"
    assert workdir.node.open == 0


@pytest.mark.parametrize(
    ("logins", "sudo", "why"), [(0, True, "No route to host"), (10, False, "sudo: a password is required")]
)
def test_without_the_head_a_run_may_go_on_if_that_is_wanted(
    workdir: Workdir, logins: int, sudo: bool, why: str
) -> None:
    workdir.node.logins, workdir.node.sudo = logins, sudo
    sentence, alone = f"spark1, which stores the lock of the rack, is unreachable: {why}", list[str]()

    def refuse(why: str) -> None:
        raise LockError(why)

    with locked_if_reachable(workdir, MINE, alone.append) as held:  # type: ignore[arg-type]
        assert (held, alone) == (None, [sentence])
    with (
        pytest.raises(LockError, match=f"^{sentence}$"),
        locked_if_reachable(workdir, MINE, refuse),  # type: ignore[arg-type]
    ):
        pytest.fail("it began")
    assert workdir.node.open == 0
    assert not workdir.node.file.exists()


def test_a_head_that_answers_decides(workdir: Workdir) -> None:
    alone: list[str] = []
    with locked_if_reachable(workdir, MINE, alone.append):  # type: ignore[arg-type]
        assert run_lock.holder(workdir.node.file.read_text()) == MINE
        with (
            pytest.raises(LockError) as caught,
            locked_if_reachable(workdir, OTHER, alone.append),  # type: ignore[arg-type]
        ):
            pytest.fail("it began")
        assert str(caught.value) == MINE.busy
    assert not workdir.node.file.exists()
    (workdir.node.root / "run/sparkrack").rmdir()
    (workdir.node.root / "run/sparkrack").touch()
    with (
        pytest.raises(LockError, match="the lock of the rack cannot be taken"),
        locked_if_reachable(workdir, MINE, alone.append),  # type: ignore[arg-type]
    ):
        pytest.fail("it began")
    assert (alone, workdir.node.open) == ([], 0)


def test_the_second_is_refused_and_takes_nothing_away(workdir: Workdir) -> None:
    with workdir.locked():
        with pytest.raises(LockError) as caught, workdir.locked(OTHER):
            pytest.fail("it began")
        assert str(caught.value) == MINE.busy
        assert run_lock.holder(workdir.node.file.read_text()) == MINE


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_it_is_given_back_however_it_ends(workdir: Workdir, kind: type[BaseException]) -> None:
    with pytest.raises(kind), workdir.locked():
        raise kind
    assert not workdir.node.file.exists()


def test_cut_off_while_it_is_taken(workdir: Workdir) -> None:
    workdir.node.faults = [KeyboardInterrupt()]
    workdir.node.file.parent.mkdir()
    workdir.node.file.write_text(MINE.text)  # the command went through, its answer was not waited for
    with pytest.raises(KeyboardInterrupt), workdir.locked():
        pytest.fail("it began")
    assert not workdir.node.file.exists()


def test_a_run_that_has_cost_the_connection_gives_it_back_over_another(workdir: Workdir) -> None:
    with workdir.locked() as left:
        workdir.node.faults = [EOFError()]
    assert left == []
    assert not workdir.node.file.exists()


@pytest.mark.parametrize(
    ("faults", "logins", "words"),
    [
        ([EOFError()], 0, "a new connection to @fake/spark1 fails: No route to host"),
        ([EOFError(), SSHException("no")], 1, "a new connection to @fake/spark1 fails: no"),
        ([KeyboardInterrupt()], 1, "interrupted"),
    ],
)
def test_if_it_cannot_be_given_back_that_is_said(
    workdir: Workdir, faults: list[BaseException | None], logins: int, words: str
) -> None:
    with workdir.locked() as left:
        workdir.node.faults, workdir.node.logins = faults, logins
    assert left == [f"spark1: the lock could not be released ({words}); sparkrack unlock {MINE.id}"]
    assert workdir.node.file.exists()


def test_if_it_was_gone_that_is_said(workdir: Workdir) -> None:
    with workdir.locked() as left:
        workdir.node.file.unlink()
    assert left[0].startswith("spark1: the lock was gone before the end")


def test_that_of_another_run_stays(workdir: Workdir) -> None:
    with workdir.locked() as left:
        workdir.node.file.write_text(OTHER.text)
    assert left == [f"spark1: the lock is now that of {OTHER}; another run may have changed the rack in between"]
    assert workdir.node.file.exists()


def test_it_is_renewed_while_it_is_held(workdir: Workdir) -> None:
    (workdir.node.root / "proc").mkdir()
    (workdir.node.root / "proc/uptime").write_text("1000.00 1.00\n")
    with locked(workdir, MINE, beat=0.01) as held:  # type: ignore[arg-type]
        assert workdir.node.file.stat().st_mtime == 1000
        (workdir.node.root / "proc/uptime").write_text("1100.00 1.00\n")
        for _ in range(6000):
            gevent.sleep(0.01)
            if workdir.node.file.stat().st_mtime == 1100:
                break
        assert workdir.node.file.stat().st_mtime == 1100
        assert held.lost() == ""


def test_a_run_whose_lock_is_gone_knows_it_at_the_next_renewal(workdir: Workdir) -> None:
    with locked(workdir, MINE) as held:  # type: ignore[arg-type]
        workdir.node.file.unlink()
        held.renew()
        assert held.lost().startswith("spark1: the lock was gone before the end")


def test_a_run_that_cannot_renew_gives_up_when_the_lock_expires(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(workdir, MINE) as held:  # type: ignore[arg-type]
        workdir.node.faults, workdir.node.logins = [EOFError()], 0
        held.renew()
        assert held.lost() == "", "it counts as long as the node believes it"
        now = run_lock.clock()
        monkeypatch.setattr(run_lock, "clock", lambda: now + run_lock.EXPIRED)
        assert "the lock could not be renewed for 120 s, so another run may have taken it" in held.lost()


def test_a_switch_is_sent_nothing_once_the_lock_is_lost(workdir: Workdir) -> None:
    """One operation changes the whole switch: between its sentences only this check reads the lock."""
    session: Any = SimpleNamespace(talk=lambda *_words: [], close=lambda: None)
    line = SessionConnection(lambda: session, lambda _text: None)
    line.connect()
    host = SimpleNamespace(connector=SimpleNamespace(line=line))
    with locked(workdir, MINE) as held:  # type: ignore[arg-type]
        assert _session_of_run(workdir.state, host).talk("/system/identity/set") == []  # type: ignore[arg-type]
        workdir.node.file.write_text(OTHER.text)
        held.renew()
        with pytest.raises(
            StoppedError, match=f"the lock is now that of {re.escape(str(OTHER))}.*nothing more is sent"
        ):
            line.talk("/system/identity/set")


def test_without_a_lock_nothing_is_lost() -> None:
    """Plain pyinfra takes none."""

    class State: ...

    assert run_lock.lost(State()) == ""  # type: ignore[arg-type]


def test_a_renewal_that_does_not_get_through_is_made_over_another_connection(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    with locked(workdir, MINE) as held:  # type: ignore[arg-type]
        now = run_lock.clock()
        for later, faults in ((50.0, [EOFError()]), (100.0, [None])):
            monkeypatch.setattr(run_lock, "clock", lambda later=later: now + later)
            workdir.node.faults = list(faults)
            held.renew()
            assert held._renewed == now + later
        workdir.node.faults, workdir.node.logins = [EOFError()], 0
        monkeypatch.setattr(run_lock, "clock", lambda: now + 150.0)
        held.renew()
        assert held._renewed == now + 100.0
        assert held.lost() == ""
        workdir.node.logins = 10
        monkeypatch.setattr(run_lock, "clock", lambda: now)
    assert held.left == []


def test_a_renewal_that_the_node_refuses_without_a_reason_takes_nothing_away(workdir: Workdir) -> None:
    with locked(workdir, MINE) as held:  # type: ignore[arg-type]
        before = held._renewed
        workdir.node.sudo = False
        held.renew()
        assert (held._renewed, held.lost()) == (before, "")
        workdir.node.sudo = True


def test_the_time_of_a_lock_counts_from_before_it_was_taken(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(float(number) for number in range(1000, 2000))
    monkeypatch.setattr(run_lock, "clock", lambda: next(times))
    with locked(workdir, MINE) as held:  # type: ignore[arg-type]
        assert held._renewed == 1000.0


@pytest.mark.parametrize(
    ("text", "old", "asks", "busy"),
    [
        ("", False, False, False),
        (OTHER.text, False, False, True),
        (OTHER.text, True, False, True),  # it is not renewed, so its age says nothing
        (replace(OTHER, beat=run_lock.BEAT).text, False, False, True),
        (replace(OTHER, beat=run_lock.BEAT).text, True, False, False),
        (OTHER.text, False, True, True),
    ],
)
def test_a_rack_that_another_run_holds_is_not_read(
    workdir: Workdir, text: str, old: bool, asks: bool, busy: bool
) -> None:
    (workdir.node.root / "proc").mkdir()
    (workdir.node.root / "proc/uptime").write_text("1000.00 1.00\n")
    if text:
        workdir.node.file.parent.mkdir()
        workdir.node.file.write_text(text)
        os.utime(workdir.node.file, (1000 - 500 * old, 1000 - 500 * old))
    if busy:
        with pytest.raises(LockError) as caught:
            look(workdir, asks)  # type: ignore[arg-type]
        assert str(caught.value) == OTHER.busy
    else:
        look(workdir, asks)  # type: ignore[arg-type]
    assert workdir.node.open == 0


def test_a_dead_run_of_this_machine_is_left_to_the_question(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    workdir.node.file.parent.mkdir()
    workdir.node.file.write_text(OTHER.text)
    monkeypatch.setattr(Holder, "dead", True)
    look(workdir, True)  # type: ignore[arg-type]
    with pytest.raises(LockError):
        look(workdir)  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["logins", "faults", "sudo"])
def test_a_head_of_which_nothing_is_known_is_left_to_the_taking_of_the_lock(workdir: Workdir, fault: str) -> None:
    setattr(workdir.node, fault, {"logins": 0, "faults": [EOFError()], "sudo": False}[fault])
    look(workdir)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fine", "lines", "expected"),
    [
        (True, ["a", "", "0"], (0, "a")),
        (True, ["76"], (76, "")),
        (True, [], (255, "")),
        (True, ["no code"], (255, "no code")),
        (False, ["a", "0"], (255, "a\n0")),
    ],
)
def test_an_answer_without_its_exit_code_is_none(fine: bool, lines: list[str], expected: tuple[int, str]) -> None:
    assert locking._parse_exit_code(fine, lines) == expected
