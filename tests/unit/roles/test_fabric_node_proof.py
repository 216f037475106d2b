"""The proof of the fabric on a node in a folder: each thing broken fails it. Echoes are in test_fabric_echoes.py, VLANs
in test_fabric_vlans_verified.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roles.fabric import verify
from roles.fabric.desired import HOTPLUG, KEPT
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Check, reported

RACK = loaded(changed(SWITCH, ("fabric:\n", "fabric:\n  hotplug: true\n")))
ADOPTS = loaded(changed(SWITCH, ("fabric:\n", "fabric:\n  adopt: true\n")))
NO_HOTPLUG = loaded(changed(SWITCH, ("fabric:\n", "fabric:\n  hotplug: false\n")))
ADDRESS = "4: enp1s0f1np1    inet 192.168.100.1/24 scope global"


def node(root: Path) -> Path:
    write(root, KEPT).chmod(0o600)
    write(root, HOTPLUG)
    (root / "run/netplan").mkdir(parents=True)
    stand_in(root, "stat", f'shift 2; exec {shutil.which("stat")} -c "%a root root" "$@"')
    stand_in(root, "ip", f"echo '{ADDRESS}'; echo '2: enP7s7    inet 10.77.0.11/24 scope global'")
    return root


CHECKS = [
    verify.test_file_is_private_and_kept,
    verify.test_hotplug_is_as_declared,
    verify.test_no_half_without_a_cable_has_an_address,
]


@pytest.mark.parametrize("check", CHECKS)
def test_a_node_that_is_right_passes(tmp_path: Path, check: Check) -> None:
    assert reported(check, node(tmp_path), RACK) == []


def test_a_node_without_a_folder_of_pending_changes_passes(tmp_path: Path) -> None:
    (node(tmp_path) / "run/netplan").rmdir()
    assert reported(verify.test_file_is_private_and_kept, tmp_path, RACK) == []


def test_a_file_that_others_read_fails(tmp_path: Path) -> None:
    Path(f"{node(tmp_path)}{KEPT}").chmod(0o644)
    fault = f"spark1: {KEPT} is 644 root root, wanted 600 root root"
    assert reported(verify.test_file_is_private_and_kept, tmp_path, RACK) == [fault]
    assert reported(verify.test_file_is_private_and_kept, tmp_path, ADOPTS) == [fault]


def test_a_file_that_is_not_there_fails_unless_another_one_is_adopted(tmp_path: Path) -> None:
    Path(f"{node(tmp_path)}{KEPT}").unlink()
    assert reported(verify.test_file_is_private_and_kept, tmp_path, ADOPTS) == []
    assert reported(verify.test_file_is_private_and_kept, tmp_path, RACK) == [
        f"spark1: {KEPT} is not there, wanted 600 root root"
    ]


def test_a_network_change_that_would_be_reverted_fails(tmp_path: Path) -> None:
    write(node(tmp_path), "/run/netplan/90-sparkrack.yaml")
    assert reported(verify.test_file_is_private_and_kept, tmp_path, RACK) == [
        "spark1: a network change is still on trial in /run/netplan"
    ]


def test_hotplug_that_is_not_as_declared_fails(tmp_path: Path) -> None:
    check = verify.test_hotplug_is_as_declared
    assert reported(check, node(tmp_path), NO_HOTPLUG) == [f"spark1: {HOTPLUG} is there"]
    Path(f"{tmp_path}{HOTPLUG}").unlink()
    assert reported(check, tmp_path, NO_HOTPLUG) == []
    assert reported(check, tmp_path, RACK) == [f"spark1: {HOTPLUG} is not there"]
    assert reported(check, tmp_path, loaded(SWITCH)) == ["skipped: rack.yaml leaves hotplug alone"]


@pytest.mark.parametrize("name", ["enp1s0f0np0", "enP2p1s0f0np0"])
def test_an_address_of_a_half_without_a_cable_fails(tmp_path: Path, name: str) -> None:
    stand_in(node(tmp_path), "ip", f"echo '{ADDRESS}'; echo '3: {name}    inet 10.1.2.3/24 scope global'")
    assert reported(verify.test_no_half_without_a_cable_has_an_address, tmp_path, RACK) == [
        f"spark1: {name} has 10.1.2.3/24 and no cable"
    ]


@pytest.mark.parametrize(
    ("script", "why"), [("echo 'Cannot open netlink' >&2; exit 1", "Cannot open netlink"), ("exit 1", "")]
)
def test_an_ip_that_fails_is_named(tmp_path: Path, script: str, why: str) -> None:
    stand_in(node(tmp_path), "ip", script)
    links = reported(verify.test_vlans_are_live, tmp_path, RACK)
    assert links == [f"spark1: {why or 'ip cannot show its links'}"]
    loose = reported(verify.test_no_half_without_a_cable_has_an_address, tmp_path, RACK)
    assert loose == [f"spark1: {why or 'ip cannot show its addresses'}"]
    address = reported(verify.test_address_and_mtu_are_live, tmp_path, RACK, address=RACK.addresses[0])
    assert address == [f"spark1/enp1s0f1np1: {why or 'ip cannot show it'}"]
