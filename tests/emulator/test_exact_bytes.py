"""Names that are not UTF-8 come back byte for byte: by safe mode, by the rollback timer, and from a backup."""

from __future__ import annotations

from tests.emulator.restore_fixtures import NAME, Restorer
from tests.emulator.switch_runs import Workdir
from tests.emulator.test_switch_api import open_session

KOLN = "Köln".encode("cp1252").decode("utf-8", "surrogateescape")


def identity(restorer: Restorer | Workdir) -> bytes:
    with open_session(restorer.emulator) as session:
        (row,) = session.talk_bytes("/system/identity/print")
    return row["name"]


def named(restorer: Restorer | Workdir) -> None:
    with open_session(restorer.emulator) as session:
        session.talk("/system/identity/set", f"=name={KOLN}")
    assert identity(restorer) == b"K\xf6ln"


def test_by_the_rollback_timer(restorer: Restorer) -> None:
    named(restorer)

    def spoil(step: object) -> None:
        if getattr(step, "title", "") == "reading everything back after the release":
            restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-1-1", mtu="1501")

    ended, _ = restorer.operator.run(restorer.declared, spoil, fuse=20)
    assert not ended.done
    assert "looked again: nothing of this run is left on the switch" in ended.text
    assert identity(restorer) == b"K\xf6ln"


def test_from_a_backup(restorer: Restorer) -> None:
    named(restorer)
    restorer.keep("sparkrack-undo-2")
    restorer.write("/system/identity", name="other")
    ended = restorer.restore("sparkrack-undo-2", "-y")
    assert ended.code == 0, ended.text
    assert r"name other -> K\xf6ln" in ended.text
    assert identity(restorer) == b"K\xf6ln"
    assert restorer.restore(NAME, "--dry").code == 2


def test_a_preview_of_a_run_shows_them(workdir: Workdir) -> None:
    named(workdir)
    ended = workdir.run("--dry", "--diff")
    assert ended.code == 0, ended.text
    assert ended.lines(r"name K\xf6ln -> crs812")
    assert workdir.run("-y").code == 0
