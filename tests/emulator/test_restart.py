"""The emulated unit restarts: into the release of its package files, with its configuration, at the same ports."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.routeros_emulator.config import SwitchConfig, User
from lab.routeros_emulator.files import Files
from lab.routeros_emulator.software import InstalledSoftware, package
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.raw_client import RawClient, attributes, trap

PFC = "/interface/ethernet/switch/qos/priority-flow-control/print"
OLD = InstalledSoftware("7.20.8 (stable)", ("routeros", "switch-marvell"), "7.20.8")


def _log_in(switch: Crs812Process) -> RawClient:
    end = time.monotonic() + 60
    while True:
        try:
            client = RawClient(switch.plain_port)
            client.login(USER, switch.password)
        except (OSError, EOFError):
            assert time.monotonic() < end
            time.sleep(0.05)
        else:
            return client


def _upload_file(switch: Crs812Process, name: str, data: bytes) -> None:
    path = switch.folder / "upload"
    path.write_bytes(data)
    switch.control({"op": "file", "name": name, "path": str(path)})


def test_a_menu_of_a_newer_release_comes_with_it_and_stays(make_switch: MakeSwitch) -> None:
    switch = make_switch(version=OLD.version, away=0.2)
    client = _log_in(switch)
    assert "no such command" in trap(client.ask(PFC))
    client.ask("/ip/dns/set", "=servers=9.9.9.9")
    for name in OLD.packages:
        _upload_file(switch, f"{name}-7.23.7-arm64.npk", package(name, "7.23.7"))
    client.ask("/system/reboot")
    assert client.closed()
    for restarted in (False, True):
        if restarted:
            switch.stop()
            switch.start()
        client = _log_in(switch)
        assert client.ask(PFC)[-1][0] == "!done"
        (resource,) = [attributes(row) for row in client.ask("/system/resource/print") if row[0] == "!re"]
        (board,) = [attributes(row) for row in client.ask("/system/routerboard/print") if row[0] == "!re"]
        (dns,) = [attributes(row) for row in client.ask("/ip/dns/print") if row[0] == "!re"]
        assert (resource["version"], board["current-firmware"]) == ("7.23.7 (stable)", "7.20.8")
        assert dns["servers"] == "9.9.9.9"
        client.close()


def test_who_may_not_restart(make_switch: MakeSwitch, tmp_path: Path) -> None:
    password = tmp_path / "reader"
    password.write_text("only-reads\n")
    switch = make_switch(users=(User(name=USER, group="read", password_file=password),))
    client = RawClient(switch.plain_port)
    client.login(USER, "only-reads")
    assert trap(client.ask("/system/routerboard/upgrade")) == "not enough permissions (9)"
    client.close()


@pytest.mark.parametrize(
    ("files", "version", "reported"),
    [
        ({"routeros": "7.23.7", "switch-marvell": "7.23.7"}, "7.23.7 (stable)", "installed routeros-7.23.7"),
        ({"routeros": "7.23.7"}, OLD.version, "can not upgrade: package switch-marvell of the new version is missing"),
        ({"routeros": "7.19.5", "switch-marvell": "7.19.5"}, OLD.version, "version 7.19.5 does not fit"),
        ({"routeros": "7.23.7", "switch-marvell": "7.23.5"}, OLD.version, "version 7.23.5 does not fit"),
    ],
)
def test_what_a_restart_installs(tmp_path: Path, files: dict[str, str], version: str, reported: str) -> None:
    kept = Files(tmp_path / "files")
    for name, number in files.items():
        kept.write(f"{name}-{number}-arm64.npk", package(name, number))
    software, lines = OLD.restarted(kept, installs=False)
    assert (software, lines) == (OLD, [])
    assert len(kept.names()) == len(files)
    software, lines = OLD.restarted(kept, installs=True)
    assert software.version == version
    assert any(reported in line for line in lines)
    assert kept.names() == []
    assert software.firmware == "7.20.8"


def test_a_damaged_package_is_not_installed(tmp_path: Path) -> None:
    kept = Files(tmp_path / "files")
    for name in OLD.packages:
        kept.write(f"{name}-7.23.7-arm64.npk", package(name, "7.23.7")[:-1])
    software, lines = OLD.restarted(kept, installs=True)
    assert software.version == OLD.version
    assert lines == [f"can not install {name}-7.23.7-arm64.npk: broken package" for name in OLD.packages]


def test_the_configuration_names_what_is_installed_first(tmp_path: Path) -> None:
    config = SwitchConfig(address="127.0.0.1", state=tmp_path / "s", log=tmp_path / "l", version=OLD.version)
    assert InstalledSoftware.of(config) == OLD
