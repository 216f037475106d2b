"""`sparkrack bootstrap switch` holds the lock of the rack if the head node answers already; that is a shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.ops import run_lock
from core.routeros.errors import CheckError
from core.routeros.session import SessionConnection
from sparkrack.cli.main import sparkrack
from sparkrack.engine.rack_lock import RackLock
from switch.bootstrap.first_contact import ServiceOffer
from switch.bootstrap.runner import SwitchBootstrap
from tests.generated import REPOSITORY
from tests.unit.cli.test_unlock import OTHER, Head, eventually, hangup_by_default
from tests.unit.switch.lock_trouble import Trouble


class Workdir(Trouble):
    """An operator on the first day. What is done to the switch is only noted, with the lock that lies there then."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.head = Head(folder, monkeypatch)
        self.during: Callable[[], object] = lambda: None
        self.seen: list[str] = []
        workdir = self

        def run(_self: SwitchBootstrap, *, dry: bool = False) -> bool:
            workdir.seen.append(workdir.head.lock.read_text() if workdir.head.lock.exists() else "")
            workdir.during()
            return True

        monkeypatch.setattr(SwitchBootstrap, "run", run)

    def bootstrap(self, *words: str) -> Result:
        rack = f"{self.head.folder}/rack.yaml"
        return CliRunner().invoke(sparkrack, ["bootstrap", "switch", "--rack", rack, *words])

    def off(self) -> None:
        (self.head.folder / "off").touch()

    def failed(self) -> None:
        raise CheckError("the switch is odd")


@dataclass(frozen=True)
class Case:
    """`began`: the switch was worked on; `locked`: under the lock. `left`: what lies on the head node afterwards."""

    code: int
    reported: str
    began: bool = True
    locked: bool = True
    before: Callable[[Workdir], object] = lambda _desk: None
    during: Callable[[Workdir], object] = lambda _desk: None
    words: tuple[str, ...] = ()
    left: str | None = None


READY = "crs812: ready\n"
AWAY = "crs812: spark1, which stores the lock of the rack, is unreachable: "
ALONE = "; continuing without the lock of the rack\ncrs812: ready\n"

CASES = {
    "free": Case(0, READY),
    "held": Case(1, f"Error: {OTHER.busy}\n", began=False, before=Workdir.held, left=OTHER.text),
    "no node yet": Case(0, f"{AWAY}ssh: connect: No route to host{ALONE}", locked=False, before=Workdir.off),
    "no user yet": Case(0, f"{AWAY}sudo: a password is required{ALONE}", locked=False, before=Workdir.no_sudo),
    "dry": Case(0, "crs812: nothing is missing\n", locked=False, words=("--dry",)),
    "dry while held": Case(
        *(0, "crs812: nothing is missing\n"), locked=False, before=Workdir.held, words=("--dry",), left=OTHER.text
    ),
    "taken meanwhile": Case(1, "spark1: the lock is now that of run 2026", during=Workdir.held, left=OTHER.text),
    "ctrl-c": Case(1, "ended\n", during=Workdir.interrupted),
    "fault": Case(1, "Error: crs812: the switch is odd\n", during=Workdir.failed),
}


def test_the_runbook_has_what_is_said() -> None:
    text = (REPOSITORY / "docs/runbooks/switch-first-contact.md").read_text()
    for words in (AWAY.removeprefix("crs812: "), ALONE.partition("\n")[0], "; if that run is dead: "):
        assert words in text, words


@pytest.mark.parametrize("name", CASES)
def test_the_lock_of_the_rack(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, workdir = CASES[name], Workdir(tmp_path, monkeypatch)
    case.before(workdir)
    workdir.during = lambda: case.during(workdir)
    with hangup_by_default():
        done = workdir.bootstrap(*case.words)
    assert done.exit_code == case.code, done.output
    assert case.reported in done.output
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert len(workdir.seen) == int(case.began)
    if case.began and case.locked:
        assert run_lock.holder(workdir.seen[0]).what == "bootstrap of crs812"
    elif case.began:
        assert workdir.seen[0] in ("", case.left)
    if case.left is not None:
        assert workdir.head.lock.read_text() == case.left
    else:
        assert not workdir.head.lock.exists()


def test_every_session_stops_when_the_lock_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RackLock.renewing, "__defaults__", (0.01,))
    workdir = Workdir(tmp_path, monkeypatch)
    sent: list[str] = []

    def run(self: SwitchBootstrap, *, dry: bool = False) -> bool:
        def talk(*words: str) -> list[object]:
            sent.append(words[0])
            return []

        raw: Any = SimpleNamespace(talk=talk, close=lambda: None)
        line = SessionConnection(lambda: raw, lambda _text: None)
        line.connect()
        door = self.work.enter(ServiceOffer(line, "10.77.0.2", "sparkrack", True))
        door.line.talk("/user/set")
        workdir.held()
        assert eventually(lambda: bool(door.line.stopped()))
        door.line.talk("/ip/service/set")
        return True

    monkeypatch.setattr(SwitchBootstrap, "run", run)
    done = workdir.bootstrap()
    assert done.exit_code == 1
    assert f"Error: crs812: spark1: the lock is now that of {OTHER}; " in done.output
    assert "nothing more is sent" in done.output
    assert sent == ["/user/set"]
