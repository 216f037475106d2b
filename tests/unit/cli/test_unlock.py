"""`sparkrack unlock`, and the lock as commands over OpenSSH hold it; the head node is a shell of this machine."""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.model import Rack, load
from core.ops import run_lock
from core.ops.run_lock import Holder
from core.util.command_error import CommandError
from sparkrack.cli.main import sparkrack
from sparkrack.engine import ssh_locking as module
from sparkrack.engine.rack_lock import RackLock
from sparkrack.engine.ssh_locking import hold_lock
from tests.unit.model.racks import SWITCH

OTHER = Holder("20260314T091500-3fa2", "ben@desk", "2026-03-14T09:15:00+00:00", "spark2: memory")
SSH = """\
#!/bin/sh
[ "$3" = spark1 ] || { echo "not the head" >&2; exit 255; }
[ ! -e "$NODE/off" ] || { echo "ssh: connect: No route to host" >&2; exit 255; }
[ ! -e "$NODE/sudo" ] || { echo "sudo: a password is required" >&2; exit 1; }
sed -u -e "s#/run/sparkrack#$NODE/run/sparkrack#g" | PATH="$NODE/bin:$PATH" sh -c 'echo $$ > "$NODE/shell"; exec sh'
"""


def send(number: int) -> None:
    """A signal to ourselves; one that would end the tests is a failure instead."""
    assert signal.getsignal(number) is not signal.SIG_DFL
    signal.raise_signal(number)  # to this thread: another one may take one for the process after its handler is gone


@contextmanager
def hangup_by_default() -> Iterator[None]:
    """SIGHUP as in a terminal, also where the tests were started with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Head:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "rack.yaml").write_text(SWITCH)
        (folder / "run").mkdir()
        (folder / "desk").mkdir()
        (folder / "desk/ssh").write_text(SSH)
        (folder / "desk/ssh").chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", f"{folder}/desk:{os.environ['PATH']}")
        monkeypatch.setenv("NODE", str(folder))
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setattr(module, "ANSWER_SECONDS", 10)

    @property
    def rack(self) -> Rack:
        return load(self.folder / "rack.yaml")

    @property
    def lock(self) -> Path:
        return self.folder / "run/sparkrack/run.lock"

    def put(self, text: bytes | str) -> None:
        self.lock.parent.mkdir(exist_ok=True)
        self.lock.write_bytes(text.encode() if isinstance(text, str) else text)

    def unlock(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["unlock", "--rack", f"{self.folder}/rack.yaml", *words])

    def held(self) -> AbstractContextManager[RackLock]:
        return hold_lock(self.rack, "restart of spark2")

    def restart(self) -> None:
        """As the head node does: its shells end, and what is below /run is gone."""
        self.lock.unlink()
        self.hang_up()

    def hang_up(self) -> None:
        """End the newest shell, and wait until its end of the connection is closed: what is written before is lost."""
        shell = int((self.folder / "shell").read_text())
        os.kill(shell, 9)
        with suppress(OSError):  # it is gone altogether
            while list(Path(f"/proc/{shell}/fd").iterdir()):
                time.sleep(0.001)


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    return Head(tmp_path, monkeypatch)


def test_the_right_one_ends(head: Head) -> None:
    head.put(OTHER.text)
    done = head.unlock(OTHER.id)
    assert (done.exit_code, done.output) == (0, f"ended the lock of {OTHER}\n")
    assert not head.lock.exists()


def test_another_stays(head: Head) -> None:
    head.put(OTHER.text)
    done = head.unlock("20260314T091500-0000")
    assert (done.exit_code, done.output) == (1, f"Error: {OTHER} holds the rack, not 20260314T091500-0000\n")
    assert head.lock.read_text() == OTHER.text


def test_there_is_none(head: Head) -> None:
    for _ in range(2):
        done = head.unlock(OTHER.id)
        assert (done.exit_code, done.output) == (0, "no run holds the rack\n")


def test_it_wants_an_id(head: Head) -> None:
    head.put(OTHER.text)
    assert head.unlock().exit_code == 1
    assert head.lock.exists()


@pytest.mark.parametrize("text", [b"", b"%%%\n", b"\xff\x9b[2J", OTHER.text.replace(OTHER.id, "$(reboot)").encode()])
def test_one_that_cannot_be_read(head: Head, text: bytes) -> None:
    head.put(text)
    refused = head.unlock(OTHER.id)
    assert refused.exit_code == 1
    assert refused.output.endswith(f"(/run/sparkrack/run.lock cannot be read) holds the rack, not {OTHER.id}\n")
    assert head.lock.read_bytes() == text
    done = head.unlock("unknown")
    assert done.exit_code == 0, done.output
    assert done.output.isascii()
    assert "\x1b" not in done.output
    assert not head.lock.exists()


@pytest.mark.parametrize("run", ["unknown", "'; touch owned; '", "$(touch owned)", ""])
def test_no_id_reaches_a_shell(head: Head, run: str) -> None:
    head.put(OTHER.text)
    assert head.unlock(run).exit_code == 1
    assert head.lock.read_text() == OTHER.text
    assert not list(head.folder.rglob("owned"))


@pytest.mark.parametrize(
    ("state", "reported"),
    [
        ("off", "Error: spark1: cannot be asked: ssh: connect: No route to host\n"),
        ("sudo", "Error: spark1: cannot be asked: sudo: a password is required\n"),
    ],
)
def test_what_is_unknown_is_not_a_free_rack(head: Head, state: str, reported: str) -> None:
    (head.folder / state).touch()
    done = head.unlock(OTHER.id)
    assert (done.exit_code, done.output) == (1, reported)


def test_what_cannot_be_removed(head: Head) -> None:
    head.lock.mkdir(parents=True)
    done = head.unlock("unknown")
    assert done.exit_code == 1
    assert "Is a directory" in done.output
    assert "Traceback" not in done.output


def test_a_command_holds_it_meanwhile(head: Head) -> None:
    with head.held() as held:
        assert held.head == "spark1"
        found = run_lock.holder(head.lock.read_text())
        assert found.what == "restart of spark2"
        assert head.unlock("unknown").exit_code == 1
    assert list(head.lock.parent.iterdir()) == []


def test_not_while_another_does(head: Head) -> None:
    head.put(OTHER.text)
    with pytest.raises(CommandError) as caught, head.held():
        pytest.fail("it began")
    assert str(caught.value) == OTHER.busy
    assert head.lock.read_text() == OTHER.text


def test_not_without_the_head(head: Head) -> None:
    (head.folder / "off").touch()
    with pytest.raises(CommandError) as caught, head.held():
        pytest.fail("it began")
    reported = "spark1: the lock of the rack cannot be taken: ssh: connect: No route to host; nothing was changed"
    assert str(caught.value) == reported


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_given_back_however_it_ends(head: Head, kind: type[BaseException]) -> None:
    with pytest.raises(kind), head.held():
        raise kind
    assert not head.lock.exists()


@contextmanager
def lost(head: Head) -> Iterator[RackLock]:
    """Ctrl-C ends ssh as well: the lock is given back over another one."""
    with head.held() as held:
        head.hang_up()
        yield held


def test_given_back_over_another_shell(head: Head) -> None:
    with lost(head):
        pass
    assert not head.lock.exists()


def test_one_that_was_gone_is_reported(head: Head) -> None:
    with pytest.raises(CommandError, match="the lock was gone before the end"), head.held():
        head.lock.unlink()


def test_one_that_cannot_be_given_back_is_reported(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), lost(head):  # noqa: PT012 - what happens meanwhile
        (head.folder / "off").touch()
        raise ZeroDivisionError
    assert "the lock could not be released (ssh: connect: No route to host); sparkrack un" in capsys.readouterr().err


def test_the_head_restarts_and_it_is_taken_again(head: Head) -> None:
    with head.held() as held:
        held.restarts()
        head.restart()
        held.take()
        assert run_lock.holder(head.lock.read_text()).what == "restart of spark2"
    assert not head.lock.exists()


def test_taken_again_it_must_last_as_well(head: Head) -> None:
    with pytest.raises(CommandError, match="the lock was gone before"), head.held() as held:  # noqa: PT012
        held.restarts()
        head.restart()
        held.take()
        head.lock.unlink()


def test_the_head_restarts_and_does_not_come_back(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), head.held() as held:  # noqa: PT012 - what happens meanwhile
        held.restarts()
        head.restart()
        (head.folder / "off").touch()
        raise SystemExit(1)
    assert capsys.readouterr() == ("", ""), "where the lock went is known"


def test_another_user_was_faster_after_the_restart(head: Head) -> None:
    with pytest.raises(CommandError) as caught, head.held() as held:  # noqa: PT012 - what happens meanwhile
        held.restarts()
        head.restart()
        head.put(OTHER.text)
        held.take()
    assert str(caught.value) == OTHER.busy
    assert head.lock.read_text() == OTHER.text


def eventually(true: Callable[[], bool]) -> bool:
    """Whether it becomes true soon."""
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def test_a_command_renews_it_meanwhile(head: Head) -> None:
    with head.held() as held:
        os.utime(head.lock, (0, 0))
        with held.renewing(0.01):
            assert eventually(lambda: head.lock.stat().st_mtime > 0)
        held.check()


def test_a_command_whose_lock_is_gone_changes_nothing_more(head: Head) -> None:
    def refused() -> bool:
        try:
            held.check()
        except CommandError as fault:
            return "the lock was gone before the end" in str(fault) and "nothing more" in str(fault)
        return False

    with pytest.raises(CommandError), head.held() as held:  # noqa: PT012 - what happens meanwhile
        head.lock.unlink()
        with held.renewing(0.01):
            assert eventually(refused)


def test_a_command_that_cannot_renew_it_gives_up_when_it_expires(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    with head.held() as held:
        now = run_lock.clock()
        with monkeypatch.context() as later:
            later.setattr(run_lock, "clock", lambda: now + run_lock.EXPIRED + 1)
            with pytest.raises(CommandError, match="the lock could not be renewed for 12"):
                held.check()


def test_a_machine_that_slept_knows_that_its_lock_has_expired(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_BOOTTIME goes on while it sleeps, `time.monotonic` does not."""
    with head.held() as held:
        real, monotonic = time.clock_gettime, time.monotonic()
        with monkeypatch.context() as later:
            slept = {time.CLOCK_BOOTTIME: run_lock.EXPIRED + 1}
            later.setattr(time, "clock_gettime", lambda clock: real(clock) + slept.get(clock, 0))
            assert time.monotonic() - monotonic < run_lock.EXPIRED
            assert "the lock could not be renewed for 12" in held.lost()


def test_what_is_known_of_the_lock_waits_for_no_node(head: Head) -> None:
    """A renewal that hangs at the head node keeps no write of a switch waiting."""
    with head.held() as held, held._using:
        looking = threading.Thread(target=held.check)
        looking.start()
        looking.join(60)
        assert not looking.is_alive()
