"""`sparkrack switch restore` holds the lock of the rack: the switch is one in memory, the head node a shell."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.ops import run_lock
from core.routeros.session import SessionConnection
from sparkrack.cli.main import sparkrack
from sparkrack.engine.rack_lock import RackLock
from sparkrack.maintenance import switch_restore as command
from switch import backup
from tests.generated import REPOSITORY
from tests.unit.cli.test_unlock import OTHER, Head, eventually, hangup_by_default
from tests.unit.model.racks import SWITCH, changed
from tests.unit.switch.in_memory_switch import Device
from tests.unit.switch.lock_trouble import Trouble
from tests.unit.switch.rows import factory, reading

BACKUP = "sparkrack-undo-1"
WRITE = "/system/identity/set"
"""The one write of these restores."""


class Workdir(Trouble):
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
        monkeypatch.setattr(command, "open_connection", self.dialled)

    @contextmanager
    def dialled(self, _switch: object, say: Callable[[str], None]) -> Iterator[SessionConnection]:
        self.line = line = self.device.line()
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

    def trapped(self) -> bool:
        """The switch refuses the write."""
        return True


@dataclass(frozen=True)
class Case:
    """`before`, `during`: what happens to the head node or to us before it begins and in its middle. `restored`: the
    switch is as in the backup. `left`: what lies on the head node afterwards."""

    code: int
    reported: str
    restored: bool
    before: Callable[[Workdir], object] = lambda _desk: None
    during: Callable[[Workdir], object] = lambda _desk: None
    words: tuple[str, ...] = ("-y",)
    left: str | None = None


AWAY = "spark1, which stores the lock of the rack, is unreachable: "
REFUSED = "; nothing was changed. If no other run is active: --no-lock\n"
NO_ROUTE = "ssh: connect: No route to host"
NO_LOCK = ("-y", "--no-lock")

CASES = {
    "free": Case(0, "crs812: the switch is as in the backup\n", True),
    "held": Case(1, f"Error: {OTHER.busy}\n", False, Workdir.held, left=OTHER.text),
    "held and --no-lock": Case(1, f"Error: {OTHER.busy}\n", False, Workdir.held, words=NO_LOCK, left=OTHER.text),
    "head away": Case(1, f"Error: {AWAY}{NO_ROUTE}{REFUSED}", False, Workdir.off),
    "head away and --no-lock": Case(
        0, f"crs812: {AWAY}{NO_ROUTE}; going on without it\n", True, Workdir.off, words=NO_LOCK
    ),
    "no room": Case(1, "Error: spark1: the lock of the rack cannot be taken: ", False, Workdir.no_room),
    "taken meanwhile": Case(
        1, "Error: spark1: the lock is now that of run 2026", True, during=Workdir.held, left=OTHER.text
    ),
    "ctrl-c": Case(1, "crs812: interrupted", False, during=Workdir.interrupted),
    "sighup": Case(1, "crs812: interrupted", False, during=Workdir.hung_up),
    "the switch refuses": Case(
        1, "looked again: the switch is as it was before the run\n", False, during=Workdir.trapped
    ),
}


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device) -> Workdir:
    return Workdir(tmp_path, monkeypatch, device)


@pytest.mark.parametrize("name", CASES)
def test_the_lock_of_the_rack(name: str, workdir: Workdir) -> None:
    case = CASES[name]
    case.before(workdir)
    workdir.during = lambda: case.during(workdir)
    with hangup_by_default():
        done = workdir.restore(*case.words)
    assert (done.exit_code, workdir.restored) == (case.code, case.restored), done.output
    assert case.reported in done.output
    # A run that a person ends leaves its rollback timer, which has nothing to revert; the next run disarms it.
    assert bool(workdir.device.armed) == ("interrupted" in case.reported)
    assert "Traceback" not in done.output
    assert isinstance(done.exception, SystemExit | None), done.exception
    wrote = case.restored or case.during is not Case.during
    assert len(workdir.seen) == int(wrote)
    if workdir.seen and not (workdir.head.folder / "off").exists() | (case.before is Workdir.off):
        assert run_lock.holder(workdir.seen[0]).what == f"restore of crs812 to {BACKUP}"
    if not wrote:
        assert workdir.device.tables == workdir.spoilt
        assert len(backup.names(workdir.backups)) == 1, "no backup was kept of what was not touched"
    if case.restored:
        assert "crs812: the switch is as in the backup\n" in done.output
    if case.left is not None:
        assert workdir.head.lock.read_text() == case.left
    else:
        assert not workdir.head.lock.exists()


@pytest.mark.parametrize(("words", "code"), [(("--dry",), 2), (("--list",), 0), ((), 1)])
def test_what_writes_nothing_asks_for_no_lock(words: tuple[str, ...], code: int, workdir: Workdir) -> None:
    (workdir.head.folder / "desk/ssh").write_text(f"#!/bin/sh\ntouch {workdir.head.folder}/asked\nexit 255\n")
    done = workdir.restore(*words)
    assert done.exit_code == code, done.output
    assert not (workdir.head.folder / "asked").exists()
    workdir.device.tables = factory()
    assert workdir.restore("-y").exit_code == 0, "nothing to do"
    assert not (workdir.head.folder / "asked").exists()


def test_a_run_whose_lock_another_has_taken_sends_nothing_more(
    workdir: Workdir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RackLock.renewing, "__defaults__", (0.01,))

    def taken() -> None:
        workdir.held()
        assert eventually(lambda: bool(workdir.line.stopped()))

    workdir.during = taken
    done = workdir.restore("-y")
    assert (done.exit_code, workdir.restored) == (1, False)
    assert f"spark1: the lock is now that of {OTHER}; " in done.output
    assert "nothing more is sent; all changes since safe mode was taken are reverted" in done.output
    assert "looked again: the switch is as it was before the run\n" in done.output
    after = workdir.device.commands[workdir.device.commands.index(WRITE) + 1 :]
    assert after == ["/safe-mode/print", "/safe-mode/unroll"]
    assert workdir.device.armed == []
    assert workdir.head.lock.read_text() == OTHER.text


def test_a_run_whose_lock_has_expired_sends_nothing_more(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the operator's machine slept: the head node was not asked since."""
    real = run_lock.clock
    workdir.during = lambda: monkeypatch.setattr(run_lock, "clock", lambda: real() + run_lock.EXPIRED + 1)
    done = workdir.restore("-y")
    assert (done.exit_code, workdir.restored) == (1, False)
    assert "spark1: the lock could not be renewed for 12" in done.output
    assert "so another run may have taken it; nothing more is sent" in done.output
    assert workdir.device.commands[-1] == "/safe-mode/unroll"


def test_the_runbook_has_what_is_said() -> None:
    text = (REPOSITORY / "docs/runbooks/switch-restore.md").read_text()
    reported = (AWAY, REFUSED.strip(), "the lock of the rack cannot be taken: ", "the lock was gone before the end")
    for words in (*reported, "the lock is now that of", "the lock could not be released (", "interrupted;"):
        assert words in text, words


def with_reader(workdir: Workdir, variable: str) -> Path:
    """A backup with the reader that rack.yaml declares and the switch lacks; return the rack file."""
    rack = workdir.head.folder / "rack.yaml"
    reader = f"    reader: {{password: {{env: {variable}}}}}\n    user: sparkrack"
    text = changed(rack.read_text(), ("tls: false #", "tls: {sha256: "), ("    user: sparkrack", reader))
    rack.write_text(text)
    kept = factory()
    kept["/user"].append({".id": "*8", "name": "sparkrack-reader", "group": "full"})
    (workdir.backups / BACKUP / "rows.json").write_bytes(backup.dump(reading(kept)))
    return rack


def test_a_missing_secret_is_refused_before_the_lock(workdir: Workdir) -> None:
    rack = with_reader(workdir, "NO_SUCH_READER")
    done = workdir.restore("-y")
    line = next(number for number, text in enumerate(rack.read_text().splitlines(), 1) if "NO_SUCH_READER" in text)
    assert done.exit_code == 1
    assert f"Error: {rack}:{line}: switches.crs812.reader.password: environment variable NO_SUCH_READER" in done.output
    assert done.output.splitlines()[-1] == "nothing was changed"
    assert not workdir.restored
    assert workdir.device.tables == workdir.spoilt
    assert not workdir.head.lock.exists()
    assert not list((workdir.head.folder / "state").rglob("*.ndjson"))


def test_a_restore_keeps_a_journal_and_a_log_without_secrets(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READER", "canary-of-the-reader")
    with_reader(workdir, "READER")
    done = workdir.restore("-y")
    assert done.exit_code == 0, done.output
    (path,) = (workdir.head.folder / "state").rglob("*.ndjson")
    begun, *_, ended = map(json.loads, path.read_text().splitlines())
    assert (begun["scope"], ended["result"]) == (f"restore of crs812 to {BACKUP}", "done")
    assert begun["run"] in workdir.seen[0], "the lock is that of the run"
    text = path.with_suffix(".log").read_text()
    assert "spark1: ssh: " in text
    assert "canary-of-the-reader" not in text + path.read_text()


def test_a_dry_restore_keeps_no_journal(workdir: Workdir) -> None:
    assert workdir.restore("--dry").exit_code == 2
    assert not list((workdir.head.folder / "state").rglob("*.ndjson"))
