"""`sparkrack upgrade switch` that is killed, cut off or goes wrong at a step, and is run again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparkrack.maintenance import switch_upgrade
from tests.emulator.test_secrets import Watch
from tests.emulator.upgrade_runs import TARGET, MakePackageOwner, PackageOwner

FETCH, REBOOT, FIRMWARE = "/tool/fetch", "/system/reboot", "/system/routerboard/upgrade"


@pytest.fixture
def owner(make_owner: MakePackageOwner) -> PackageOwner:
    return make_owner()


@pytest.mark.parametrize(
    ("version", "command", "count"),
    [
        ("7.19.5 (stable)", "/system/backup/save", 1),
        ("7.20.8 (stable)", FETCH, 1),
        ("7.19.5 (stable)", FETCH, 2),
        ("7.20.8 (stable)", REBOOT, 1),
        ("7.19.5 (stable)", FIRMWARE, 1),
        ("7.20.8 (stable)", REBOOT, 2),
    ],
)
def test_killed_at_a_step_and_run_again(make_owner: MakePackageOwner, version: str, command: str, count: int) -> None:
    owner = make_owner(version=version)
    owner.kill_at(command, count)
    code, text = owner.run("-y")
    assert code == 0, text
    owner.is_upgraded()
    assert "the configuration is as before the upgrade" in text
    assert owner.writes().count(REBOOT) <= 3
    before = owner.writes()
    code, text = owner.run("-y")
    assert (code, owner.writes()) == (0, before), text
    assert "nothing to do" in text


def test_run_again_before_the_restart_begins_that_the_killed_run_ordered(make_owner: MakePackageOwner) -> None:
    owner = make_owner(restarts_after=2)
    owner.kill_at(REBOOT)
    owner.emulator.control({"op": "fault", "kind": "delay", "match": "/file/read", "seconds": 4})
    code, text = owner.run("-y")
    assert code == 0, text
    assert "beginning again" in text
    owner.is_upgraded()


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("command", [FETCH, FIRMWARE])
def test_cut_off_at_a_step_and_run_again(owner: PackageOwner, command: str, executed: bool) -> None:
    owner.emulator.control({"op": "fault", "kind": "drop", "match": command, "executed": executed})
    code, text = owner.run("-y")
    assert code == 1, text
    code, text = owner.run("-y")
    assert code == 0, text
    owner.is_upgraded()


def test_a_file_that_arrived_damaged_is_downloaded_again(owner: PackageOwner) -> None:
    name = f"routeros-{TARGET}-arm64.npk"
    damaged = owner.workdir.folder / "damaged"
    damaged.write_bytes((owner.folder / name).read_bytes()[:-1] + b"\0")
    owner.emulator.control({"op": "file", "name": name, "path": str(damaged)})
    code, text = owner.run("-y")
    assert code == 0, text
    assert owner.writes().count(FETCH) == 2
    owner.is_upgraded()


def test_a_download_that_has_no_effect_stops_before_the_restart(owner: PackageOwner) -> None:
    owner.emulator.control({"op": "fault", "kind": "ignore", "match": FETCH})
    code, text = owner.run("-y")
    assert code == 1
    assert f"routeros-{TARGET}-arm64.npk did not arrive whole on the switch; run again" in text
    assert REBOOT not in owner.writes()


def test_a_refused_download_names_the_way_out(owner: PackageOwner) -> None:
    owner.emulator.control({"op": "fault", "kind": "trap", "match": FETCH, "message": "failure: connection timed out"})
    code, text = owner.run("-y")
    assert code == 1
    assert "(failure: connection timed out): let it reach that port of this machine (--listen PORT chooses it)" in text
    assert REBOOT not in owner.writes()


def test_packages_that_the_switch_does_not_install(owner: PackageOwner) -> None:
    """As with a wrong signature: RouterOS restarts with what it had."""
    for path in owner.folder.iterdir():
        data = bytearray(path.read_bytes())
        data[14:18] = b"evil"
        path.write_bytes(data)
    code, text = owner.run("-y")
    assert code == 1
    assert "runs RouterOS 7.19.5 (stable); it did not install routeros, switch-marvell" in text
    assert owner.software()["version"] == "7.19.5"
    assert owner.writes().count(REBOOT) == 1


def test_a_switch_that_does_not_come_back(make_owner: MakePackageOwner) -> None:
    owner = make_owner(away=30)
    code, text = owner.run("-y", "--timeout", "1")
    assert code == 1
    again = owner.run("-y", "--timeout", "1")
    assert again[0] == 1
    assert "an earlier upgrade was not finished; the switch may still restart" in again[1]
    assert "nothing answers at 127.0.0.1" in again[1]
    assert "the switch does not answer 1 s after its restart; look at its console, and run again" in text


def test_a_run_that_loses_the_lock_during_a_restart_does_not_wait_for_the_switch(
    make_owner: MakePackageOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = make_owner(away=60)

    def lost() -> str:
        if REBOOT in owner.commands():
            try:
                socket.create_connection(("127.0.0.1", owner.emulator.plain_port)).close()
            except OSError:
                return "the lock is lost"
        return ""

    @contextmanager
    def lock(*_: object, **__: object) -> Iterator[Callable[[], str]]:
        yield lost

    monkeypatch.setattr(switch_upgrade, "_hold_lock", lock)
    code, text = owner.run("-y", "--timeout", "20")
    assert code == 1
    assert "crs812: the lock is lost; nothing more is sent" in text


def test_no_password_in_the_process_list(owner: PackageOwner) -> None:
    watch = Watch({owner.workdir.sticker.read_text().strip().encode()})
    watch.start()
    code, text = owner.run("-y")
    watch.over.set()
    watch.join()
    assert code == 0, text
    assert not watch.found
    (kept,) = owner.backups()
    for path in (kept, *kept.iterdir()):
        assert owner.workdir.sticker.read_text().strip().encode() not in (path.read_bytes() if path.is_file() else b"")
        assert path.stat().st_mode & 0o077 == 0, path
