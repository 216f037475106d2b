"""`sparkrack seed --format autoinstall`: what Ubuntu's installer gets."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.unit.cloud_init.cloud_init_schema import judged, read
from tests.unit.cloud_init.conftest import Seeding

NETPLAN = {
    "type": "object",
    "required": ["version"],
    "properties": {"version": {"const": 2}, "ethernets": {"type": "object"}},
}
WANTED: dict[str, Any] = {
    "type": "object",
    "required": ["version"],
    # A user comes from one of them; without either the installer asks a person.
    "anyOf": [{"required": ["user-data"]}, {"required": ["identity"]}],
    "properties": {
        "version": {"const": 1},
        "interactive-sections": {"type": "array", "items": {"enum": ["storage"]}},
        "network": {
            "oneOf": [NETPLAN, {"type": "object", "required": ["network"], "properties": {"network": NETPLAN}}],
        },
        "storage": {"type": "object"},
        "ssh": {
            "type": "object",
            "properties": {"install-server": {"type": "boolean"}, "allow-pw": {"type": "boolean"}},
        },
        "user-data": {"type": "object"},
        "shutdown": {"enum": ["reboot", "poweroff"]},
    },
    # It takes no notice of a section that it does not know, so a wrong name would be lost without a word.
    "additionalProperties": False,
}
"""What the installer's own schema says of the sections that we write (subiquity, autoinstall-schema.json, 03ec3a1), and
its reference of the two that the schema leaves out: interactive-sections and shutdown."""
NETWORK = ("--interface", "enP7s7", "--prefix", "24", "--gateway", "10.77.0.1", "--dns", "10.77.0.1")


@pytest.mark.parametrize("more", [(), ("--erase-disk", "/dev/nvme0n1"), NETWORK])
def test_the_installer_takes_it(seeding: Seeding, more: tuple[str, ...]) -> None:
    assert seeding.run("--all", "--format", "autoinstall", *more).exit_code == 0
    for name in ("spark1", "spark2"):
        install = read(seeding.out / name / "user-data")["autoinstall"]
        assert not [fault.message for fault in Draft202012Validator(WANTED).iter_errors(install)]


@pytest.mark.parametrize(
    "broken",
    [
        {"version": 2},
        {"network": {"config": "disabled"}},
        {"ssh": {"allow-pw": "no"}},
        {"late_commands": []},
    ],
)
def test_a_broken_one_is_reported(seeding: Seeding, broken: dict[str, Any]) -> None:
    assert seeding.run("spark1", "--format", "autoinstall").exit_code == 0
    install = read(seeding.out / "spark1/user-data")["autoinstall"]
    assert not Draft202012Validator(WANTED).is_valid({**install, **broken})


def test_the_installer_asks_about_disks_unless_one_may_be_erased(seeding: Seeding) -> None:
    assert seeding.run("spark1", "--format", "autoinstall").exit_code == 0
    install = read(seeding.out / "spark1/user-data")["autoinstall"]
    assert install["interactive-sections"] == ["storage"]
    assert "storage" not in install
    assert "identity" not in install
    assert install["ssh"] == {"install-server": True, "allow-pw": False}
    assert install["user-data"]["hostname"] == "spark1"
    assert seeding.run("spark1", "--format", "autoinstall", "--erase-disk", "/dev/nvme0n1").exit_code == 0
    install = read(seeding.out / "spark1/user-data")["autoinstall"]
    assert install["storage"] == {"layout": {"name": "direct", "match": {"path": "/dev/nvme0n1"}}}
    assert "interactive-sections" not in install


def test_cloud_init_takes_the_file_for_the_installer_and_what_the_installer_hands_on(seeding: Seeding) -> None:
    assert seeding.run("spark1", "--format", "autoinstall").exit_code == 0
    file = seeding.out / "spark1/user-data"
    assert judged(file).returncode == 0
    whole = read(file)
    install = whole["autoinstall"]
    assert seeding.run("spark2").exit_code == 0
    handed_on = {**install["user-data"], "hostname": "spark2"}
    assert handed_on == read(seeding.out / "spark2/user-data")
