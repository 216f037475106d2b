"""`sparkrack bootstrap switch` holds the lock of the rack if the head node answers already; that is a shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from sparkrack.ops import lock
from switch.bootstrap.run import Bootstrap
from switch.errors import CheckError
from tests.generated import REPOSITORY
from tests.unit.cli.test_unlock import OTHER, Head
from tests.unit.switch.trouble import Trouble


class Desk(Trouble):
    """An operator on the first day. What is done to the switch is only noted, with the lock that lies there then."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.head = Head(folder, monkeypatch)
        self.during: Callable[[], object] = lambda: None
        self.seen: list[str] = []
        desk = self

        def run(_self: Bootstrap, *, dry: bool = False) -> bool:
            desk.seen.append(desk.head.lock.read_text() if desk.head.lock.exists() else "")
            desk.during()
            return True

        monkeypatch.setattr(Bootstrap, "run", run)

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
    said: str
    began: bool = True
    locked: bool = True
    before: Callable[[Desk], object] = lambda _desk: None
    during: Callable[[Desk], object] = lambda _desk: None
    words: tuple[str, ...] = ()
    left: str | None = None


READY = "crs812: ready. Next: "
AWAY = "crs812: spark1 keeps the lock of the rack and cannot be reached: "
ALONE = "; so nobody else is kept out of the rack\ncrs812: ready. Next: "

CASES = {
    "free": Case(0, READY),
    "held": Case(1, f"Error: {OTHER.busy}\n", began=False, before=Desk.held, left=OTHER.text),
    "no room": Case(1, "Error: spark1: the lock of the rack cannot be taken: ", began=False, before=Desk.no_room),
    "no node yet": Case(0, f"{AWAY}ssh: connect: No route to host{ALONE}", locked=False, before=Desk.off),
    "no user yet": Case(0, f"{AWAY}sudo: a password is required{ALONE}", locked=False, before=Desk.no_sudo),
    "dry": Case(0, "crs812: nothing is missing\n", locked=False, words=("--dry",)),
    "dry while held": Case(
        *(0, "crs812: nothing is missing\n"), locked=False, before=Desk.held, words=("--dry",), left=OTHER.text
    ),
    "unlocked meanwhile": Case(1, "Error: spark1: the lock was gone before the end", during=Desk.unlocked),
    "taken meanwhile": Case(1, "spark1: the lock is now that of run 2026", during=Desk.held, left=OTHER.text),
    "ctrl-c": Case(1, "ended\n", during=Desk.interrupted),
    "sighup": Case(1, "ended\n", during=Desk.hung_up),
    "fault": Case(1, "Error: crs812: the switch is odd\n", during=Desk.failed),
}


def test_the_runbook_has_what_is_said() -> None:
    text = (REPOSITORY / "docs/runbooks/switch-first-contact.md").read_text()
    for words in (AWAY.removeprefix("crs812: "), ALONE.partition("\n")[0], "changes the rack; when that run is gone: "):
        assert words in text, words


@pytest.mark.parametrize("name", CASES)
def test_the_lock_of_the_rack(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, desk = CASES[name], Desk(tmp_path, monkeypatch)
    case.before(desk)
    desk.during = lambda: case.during(desk)
    done = desk.bootstrap(*case.words)
    assert done.exit_code == case.code, done.output
    assert case.said in done.output
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert len(desk.seen) == int(case.began)
    if case.began and case.locked:
        assert lock.holder(desk.seen[0]).what == "bootstrap of crs812"
    elif case.began:
        assert desk.seen[0] in ("", case.left)
    if case.left is not None:
        assert desk.head.lock.read_text() == case.left
    else:
        assert not desk.head.lock.exists()
