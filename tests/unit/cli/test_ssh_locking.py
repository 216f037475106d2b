"""The lock over OpenSSH when a run is killed at a bad moment: it is released, or the message names it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from core.ssh.root_shell import RootShell
from core.util.command_error import CommandError
from sparkrack.engine import ssh_locking as module
from sparkrack.engine.rack_lock import RackLock
from sparkrack.engine.ssh_locking import lock_if_reachable
from tests.unit.cli.test_unlock import Head, hangup_by_default, send

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    return Head(tmp_path, monkeypatch)


def after(number: int, do: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something when the head node has carried out so many scripts, before its answer is seen."""
    real, count = module.run_script, iter(range(1, 100))

    def run_script(shell: RootShell, script: str) -> tuple[int, str]:
        answer = real(shell, script)
        if next(count) == number:
            do()
        return answer

    monkeypatch.setattr(module, "run_script", run_script)


def shell(head: Head) -> str:
    """The newest shell on the head node."""
    return (head.folder / "shell").read_text()


def ssh_shell(held: RackLock) -> RootShell:
    """The shell over which the lock is held."""
    assert isinstance(held._run, module.ShellRunner)
    return held._run.shell


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_it_as_ctrl_c_does(head: Head, number: int) -> None:
    with hangup_by_default():
        before = [signal.getsignal(one) for one in SIGNALS]
        with pytest.raises(KeyboardInterrupt), head.held():  # noqa: PT012 - where it ends
            send(number)
            pytest.fail("it goes on")
        assert not head.lock.exists()
        assert [signal.getsignal(one) for one in SIGNALS] == before


def test_one_that_is_ignored_stays_so(head: Head) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with head.held():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            send(signal.SIGHUP)
            assert head.lock.exists()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_cut_off_while_it_is_taken(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """And given back over another shell: what the first one still answers is not the answer to that."""
    shells = []

    def cut_off() -> None:
        shells.append(shell(head))
        raise KeyboardInterrupt

    after(1, cut_off, monkeypatch)
    with pytest.raises(KeyboardInterrupt), head.held():
        pytest.fail("it began")
    assert not head.lock.exists()
    assert shells != [shell(head)]


def test_cut_off_while_it_is_given_back(
    head: Head, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after(2, interrupt, monkeypatch)
    with pytest.raises(KeyboardInterrupt), head.held():
        interrupt()
    assert "spark1: the lock could not be released (interrupted); sparkrack unlock 2" in capsys.readouterr().err


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_head_that_is_away_is_reported_once(head: Head, goes_on: bool) -> None:
    (head.folder / "off").touch()
    reported = []

    def alone(why: str) -> None:
        reported.append(why)
        if not goes_on:
            raise CommandError(why)

    done = []
    with (
        nullcontext() if goes_on else pytest.raises(CommandError),
        lock_if_reachable(head.rack, "restore of crs812", alone),
    ):
        done.append(True)
    assert done == [True] * goes_on
    assert reported == ["spark1, which stores the lock of the rack, is unreachable: ssh: connect: No route to host"]


def test_a_head_that_is_away_is_asked_once(head: Head) -> None:
    """Each question to a dead machine costs the 10 s of a connection."""
    ssh = head.folder / "desk/ssh"
    ssh.write_text(f"#!/bin/sh\necho >> {head.folder}/asked\nexit 255\n")
    with lock_if_reachable(head.rack, "restore of crs812", lambda _why: None):
        pass
    assert (head.folder / "asked").read_text() == "\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo ' a '; echo b >&2; exit 3", (3, "a")),
        ("echo ' b ' >&2", (0, "b")),
        ("true", (0, "")),
    ],
)
def test_a_script_is_reported_by_its_output_or_its_errors(head: Head, script: str, expected: tuple[int, str]) -> None:
    with head.held() as held:
        assert module.run_script(ssh_shell(held), script) == expected


def test_a_machine_without_ssh_reaches_no_head(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    rack = head.rack
    monkeypatch.setenv("PATH", str(head.folder))
    reported: list[str] = []
    with lock_if_reachable(rack, "x", reported.append) as lost:
        assert lost() == ""
    said = "spark1, which stores the lock of the rack, is unreachable: ssh: No such file or directory"
    assert reported == [said]


def test_the_environment_of_a_command_under_the_lock_has_it(head: Head) -> None:
    with head.held() as held:
        assert held.environment == {"SPARKRACK_RUN_LOCK": head.lock.read_text()}


def test_a_lock_that_goes_with_a_restart_is_not_lost(head: Head) -> None:
    with head.held() as held:
        held._lost = "it is gone"
        assert held.lost() == "it is gone"
        with pytest.raises(CommandError, match=r"^it is gone; nothing more is changed$"):
            held.check()
        held.restarts()
        assert held.lost() == ""
        held.check()
        head.restart()
        ssh_shell(held).close()
        held.take()
        assert (held.lost(), held._restarts) == ("", False)
        held.check()
    assert not head.lock.exists()


def test_a_head_that_answers_holds_the_lock_in_the_block(head: Head) -> None:
    with lock_if_reachable(head.rack, "restore of crs812", pytest.fail) as lost:
        assert head.lock.exists()
        assert lost() == ""
    assert not head.lock.exists()


def test_a_renewal_waits_for_the_restart_and_ends_with_the_lock(head: Head) -> None:
    with head.held() as held:
        held.restarts()
        before = held._renewed
        with held.renewing(0.01):
            head.restart()
            ssh_shell(held).close()
        assert held._over.is_set()
        assert (held._renewed, held._lost) == (before, "")
        held.take()
