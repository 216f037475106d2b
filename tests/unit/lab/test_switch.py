"""What an emulated switch of the lab is configured with: in use, and as it comes out of its box."""

from __future__ import annotations

import stat
from pathlib import Path

from lab.layout import Layout
from lab.paths import LabPaths
from lab.routeros_emulator.config import read
from lab.switch import VirtualSwitch
from tests.unit.model.racks import SWITCH, VALID, loaded


def switch(folder: Path, text: str = SWITCH) -> VirtualSwitch:
    rack = loaded(text)
    return VirtualSwitch(next(iter(rack.switches)), Layout(rack), LabPaths(folder))


def test_in_use(tmp_path: Path) -> None:
    made = switch(tmp_path)
    made.prepare()
    config = read(made.folder / "config.json")
    declared = made.layout.rack.switches[made.name]
    assert [(user.name, user.password_file) for user in config.users] == [(declared.user, made.password)]
    assert config.tls_cert is not None
    assert config.management.ip == declared.address
    assert (config.www_port, config.www_ssl_port) == (80, 443)
    assert (config.follow, config.link) == (True, "sw1")
    assert not config.boxed


def test_it_is_the_model_that_the_rack_declares(tmp_path: Path) -> None:
    made = switch(tmp_path, (VALID / "crs804.yaml").read_text())
    made.prepare()
    config = read(made.folder / "config.json")
    assert config.model == "CRS804-4DDQ"
    assert [(cable.cage, [tail.lanes for tail in cable.tails]) for cable in config.cables] == [
        ("qsfp56-dd-1", [2, 2]),
        ("qsfp56-dd-4", [4, 4]),
    ]


def test_out_of_the_box(tmp_path: Path) -> None:
    made = switch(tmp_path)
    made.prepare(factory=True)
    config = read(made.folder / "config.json")
    assert config.boxed
    assert [(user.name, user.password_file) for user in config.users] == [("admin", made.sticker)]
    assert config.tls_cert is None
    assert str(config.management) == "192.168.88.1/24"
    assert config.address == made.layout.rack.switches[made.name].address
    assert stat.S_IMODE(made.sticker.stat().st_mode) == 0o600
    assert not made.password.exists()


def test_passwords_are_made_once(tmp_path: Path) -> None:
    made = switch(tmp_path)
    made.prepare()
    before = made.password.read_text(), made.sticker.read_text(), made.fingerprint()
    made.prepare(factory=True)
    assert (made.password.read_text(), made.sticker.read_text(), made.fingerprint()) == before


def test_it_stays_what_it_is(tmp_path: Path) -> None:
    made = switch(tmp_path)
    assert not made.made
    made.prepare()
    assert (made.made, made.in_factory_state) == (True, False)
    made.box()
    assert made.in_factory_state
    made.prepare()
    assert made.in_factory_state


def test_another_unit_has_another_number_and_sticker(tmp_path: Path) -> None:
    made = switch(tmp_path)
    made.prepare(factory=True)
    first, sticker = read(made.folder / "config.json"), made.sticker.read_text()
    made.box()
    assert (read(made.folder / "config.json"), made.sticker.read_text()) == (first, sticker)
    made.box("HK0OTHERUNIT")
    assert read(made.folder / "config.json").serial == "HK0OTHERUNIT" != first.serial
    assert made.sticker.read_text() != sticker
    made.box()
    assert read(made.folder / "config.json").serial == "HK0OTHERUNIT"
