"""`sparkrack switch restore` holds the lock of the rack: the switch is one in memory, the head node a shell."""

from __future__ import annotations

import copy
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli import switch as command
from sparkrack.cli.main import sparkrack
from sparkrack.ops import lock
from switch import backup
from switch.line import SessionLine
from tests.generated import REPOSITORY
from tests.unit.cli.test_unlock import OTHER, Head, send
from tests.unit.fleet.racks import SWITCH, changed
from tests.unit.switch.memory import Device
from tests.unit.switch.rows import factory, reading
from tests.unit.switch.trouble import Trouble

BACKUP = "sparkrack-undo-1"
WRITE = "/system/identity/set"
"""The one write of these restores."""


class Desk(Trouble):
    """An operator with a backup, at a switch that has another name since. `during`: what happens at the write."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
        self.head = Head(folder, monkeypatch)
        (folder / "rack.yaml").write_text(changed(SWITCH, ("tls: {sha256: ", "tls: false #")))
        self.device = device
        self.during: Callable[[], object] = lambda: None
        self.seen: list[str] = []
        self.backups = folder / "state/sparkrack" / self.head.rack.rack / "crs812"
        (self.backups / BACKUP).mkdir(parents=True)
        (self.backups / BACKUP / "rows.json").write_bytes(backup.dump(reading(factory())))
        device.tables["/system/identity"][0]["name"] = "spoilt"
        self.spoilt = copy.deepcopy(device.tables)
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setenv("CRS812_PASSWORD", "swordfish")
        monkeypatch.setattr(command, "dialled", self.dialled)

    @contextmanager
    def dialled(self, _switch: object, say: Callable[[str], None]) -> Iterator[SessionLine]:
        line = self.device.line()
        line._say = say
        self.device.main.trap = self.looks
        try:
            yield line
        finally:
            line.close()

    def looks(self, words: tuple[str, ...]) -> bool:
        if words[0] == WRITE:
            self.seen.append(self.head.lock.read_text() if self.head.lock.exists() else "")
            return bool(self.during())
        return False

    def restore(self, *words: str) -> Result:
        rack = f"{self.head.folder}/rack.yaml"
        return CliRunner().invoke(sparkrack, ["switch", "restore", BACKUP, "--rack", rack, "--no-nodes", *words])

    @property
    def restored(self) -> bool:
        assert self.device.holder is None, "safe mode is free"
        names = [row["name"] for row in self.device.tables["/system/identity"]]
        assert names in (["spoilt"], [factory()["/system/identity"][0]["name"]])
        return names != ["spoilt"]

    def off(self) -> None:
        """The head node is dead from now on."""
        (self.head.folder / "off").touch()
        if (self.head.folder / "shell").exists():
            self.head.hang_up()

    def garbled(self) -> None:
        self.head.put(b"\x1b[2J")

    def ended(self) -> None:
        send(signal.SIGTERM)

    def trapped(self) -> bool:
        """The switch refuses the write."""
        return True


@dataclass(frozen=True)
class Case:
    """`before`, `during`: what happens to the head node or to us before it begins and in its middle. `restored`: the
    switch is as in the backup. `left`: what lies on the head node afterwards."""

    code: int
    said: str
    restored: bool
    before: Callable[[Desk], object] = lambda _desk: None
    during: Callable[[Desk], object] = lambda _desk: None
    words: tuple[str, ...] = ("-y",)
    left: str | None = None


AWAY = "spark1 keeps the lock of the rack and cannot be reached: "
REFUSED = "; nothing was changed. If nobody else is at work: --no-lock\n"
NO_ROUTE = "ssh: connect: No route to host"
NO_SUDO = "sudo: a password is required"
NO_LOCK = ("-y", "--no-lock")

CASES = {
    "free": Case(0, "crs812: the switch is as in the backup\n", True),
    "held": Case(1, f"Error: {OTHER.busy}\n", False, Desk.held, left=OTHER.text),
    "held and --no-lock": Case(1, f"Error: {OTHER.busy}\n", False, Desk.held, words=NO_LOCK, left=OTHER.text),
    "held by garbage": Case(1, "sparkrack unlock unknown\n", False, Desk.garbled, left="\x1b[2J"),
    "head away": Case(1, f"Error: {AWAY}{NO_ROUTE}{REFUSED}", False, Desk.off),
    "head without sudo": Case(1, f"Error: {AWAY}{NO_SUDO}{REFUSED}", False, Desk.no_sudo),
    "head away and --no-lock": Case(
        0, f"crs812: {AWAY}{NO_ROUTE}; going on without it\n", True, Desk.off, words=NO_LOCK
    ),
    "head there and --no-lock": Case(0, "crs812: the switch is as in the backup\n", True, words=NO_LOCK),
    "no room": Case(1, "Error: spark1: the lock of the rack cannot be taken: ", False, Desk.no_room),
    "no room and --no-lock": Case(1, "the lock of the rack cannot be taken: ", False, Desk.no_room, words=NO_LOCK),
    "unlocked meanwhile": Case(1, "Error: spark1: the lock was gone before the end", True, during=Desk.unlocked),
    "taken meanwhile": Case(
        1, "Error: spark1: the lock is now that of run 2026", True, during=Desk.held, left=OTHER.text
    ),
    "head dies meanwhile": Case(
        *(1, f"Error: spark1: the lock could not be given back ({NO_ROUTE}); sparkrack unlock ", True),
        during=Desk.off,
        left="ours",
    ),
    "ctrl-c": Case(1, "crs812: interrupted", False, during=Desk.interrupted),
    "sigterm": Case(1, "crs812: interrupted", False, during=Desk.ended),
    "sighup": Case(1, "crs812: interrupted", False, during=Desk.hung_up),
    "the switch refuses": Case(1, "looked again: the switch is as it was before the run\n", False, during=Desk.trapped),
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device) -> Desk:
    return Desk(tmp_path, monkeypatch, device)


@pytest.mark.parametrize("name", CASES)
def test_the_lock_of_the_rack(name: str, desk: Desk) -> None:
    case = CASES[name]
    case.before(desk)
    desk.during = lambda: case.during(desk)
    done = desk.restore(*case.words)
    assert (done.exit_code, desk.restored) == (case.code, case.restored), done.output
    assert case.said in done.output
    # What is ended by a person leaves its dead man, which finds nothing to undo, and the next run disarms.
    assert bool(desk.device.armed) == ("interrupted" in case.said)
    assert "Traceback" not in done.output
    assert isinstance(done.exception, SystemExit | None), done.exception
    wrote = case.restored or case.during is not Case.during
    assert len(desk.seen) == int(wrote)
    if desk.seen and not (desk.head.folder / "off").exists() | (case.before is Desk.off):
        assert lock.holder(desk.seen[0]).what == f"restore of crs812 to {BACKUP}"
    if not wrote:
        assert desk.device.tables == desk.spoilt
        assert len(backup.names(desk.backups)) == 1, "no backup was kept of what was not touched"
    if case.restored:
        assert "crs812: the switch is as in the backup\n" in done.output
    if case.left == "ours":
        assert f"sparkrack unlock {lock.holder(desk.head.lock.read_text()).id}\n" in done.output
    elif case.left is not None:
        assert desk.head.lock.read_text() == case.left
    else:
        assert not desk.head.lock.exists()


@pytest.mark.parametrize(("words", "code"), [(("--dry",), 2), (("--list",), 0), ((), 1)])
def test_what_writes_nothing_asks_for_no_lock(words: tuple[str, ...], code: int, desk: Desk) -> None:
    (desk.head.folder / "desk/ssh").write_text(f"#!/bin/sh\ntouch {desk.head.folder}/asked\nexit 255\n")
    done = desk.restore(*words)
    assert done.exit_code == code, done.output
    assert not (desk.head.folder / "asked").exists()
    desk.device.tables = factory()
    assert desk.restore("-y").exit_code == 0, "nothing to do"
    assert not (desk.head.folder / "asked").exists()


def test_the_runbook_has_what_is_said() -> None:
    text = (REPOSITORY / "docs/runbooks/switch-restore.md").read_text()
    said = (AWAY, REFUSED.strip(), "the lock of the rack cannot be taken: ", "the lock was gone before the end")
    for words in (*said, "the lock is now that of", "the lock could not be given back (", "interrupted;"):
        assert words in text, words


def test_it_can_be_taken_again_and_again(desk: Desk) -> None:
    for name in ("spoilt", "another"):
        desk.device.tables["/system/identity"][0]["name"] = name
        desk.device.sessions = 0
        assert desk.restore("-y").exit_code == 0
        assert desk.restored
        assert not desk.head.lock.exists()


def test_without_any_ssh(desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    done = desk.restore("-y")
    assert (done.exit_code, desk.restored) == (1, False)
    assert f"Error: {AWAY}ssh: No such file or directory{REFUSED}" in done.output
    assert desk.restore(*NO_LOCK).exit_code == 0
    assert desk.restored
