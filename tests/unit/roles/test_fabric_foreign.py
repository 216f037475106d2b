"""Netplan files of others: any that defines an interface of ours is named, as grep and parser see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.ops import host_facts
from roles.fabric import facts
from roles.fabric.desired import KEPT, TRIED, InterfaceState, foreign
from roles.fabric.foreign_netplan import is_equivalent
from tests.unit.ops.shells import run, stand_in

NAMES = ["enp1s0f1np1", "enP2p1s0f1np1"]
COMMAND = host_facts._registered["fabric"].commands[facts.OTHERS]


def found(root: Path, files: dict[str, str]) -> list[str]:
    for path, text in files.items():
        file = Path(f"{root}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    done = run(COMMAND, root)
    assert done.returncode == 0, done.stderr
    named = foreign(done.stdout.replace(str(root), ""), NAMES)
    return [f"{path} defines {name}" for path, names in named.items() for name in names]


def ethernets(entry: str) -> str:
    return f"network:\n  version: 2\n  ethernets:\n{entry}\n"


@pytest.mark.parametrize("path", ["/etc/netplan/40-cx7.yaml", "/run/netplan/a.yaml", "/usr/lib/netplan/00-x.yaml"])
@pytest.mark.parametrize(
    "entry",
    [
        "    enp1s0f1np1:\n      dhcp4: true",
        "    enp1s0f1np1: {dhcp4: true}",
        "    'enp1s0f1np1':\n      dhcp4: true",
        '    "enp1s0f1np1":\n      dhcp4: true',
        "    enp1s0f1np1 :\n      dhcp4: true",
        "\tenp1s0f1np1:\n      dhcp4: true",
        " enp1s0f1np1: {}",
    ],
)
def test_a_file_of_others_is_named(tmp_path: Path, path: str, entry: str) -> None:
    (reported,) = found(tmp_path, {path: ethernets(entry)})
    assert reported == f"{path} defines enp1s0f1np1"


def test_each_file_and_interface_once(tmp_path: Path) -> None:
    both = ethernets("    enp1s0f1np1: {}\n    enP2p1s0f1np1: {}")
    reported = found(tmp_path, {"/etc/netplan/a.yaml": both + both, "/etc/netplan/b c.yaml": both})
    assert [line.partition(",")[0] for line in reported] == [
        f"/etc/netplan/{file} defines {name}"
        for file in ("a.yaml", "b c.yaml")
        for name in ("enP2p1s0f1np1", "enp1s0f1np1")
    ]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {KEPT: ethernets("    enp1s0f1np1: {}")},
        {TRIED: ethernets("    enp1s0f1np1: {}")},
        {"/etc/netplan/50-cloud-init.yaml": ethernets("    enP7s7: {dhcp4: true}")},
        {"/etc/netplan/a.yaml": ethernets("    enp1s0f0np0: {}")},
        {"/etc/netplan/a.yaml": ethernets("    # enp1s0f1np1: {}")},
        {"/etc/netplan/a.yaml": ethernets("    enp1s0f1np1v0: {}")},
        {"/etc/netplan/a.yaml.bak": ethernets("    enp1s0f1np1: {}")},
    ],
)
def test_what_is_not_a_concern(tmp_path: Path, files: dict[str, str]) -> None:
    assert found(tmp_path, files) == []


def test_secrets_of_others_stay_on_the_node(tmp_path: Path) -> None:
    path = tmp_path / "etc/netplan/90-wifi.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("network:\n  wifis:\n    wlp9s9:\n      access-points:\n        home: {password: hunter2}\n")
    assert run(COMMAND, tmp_path).stdout == ""


@pytest.mark.parametrize(
    ("entry", "printed"),
    [
        ("      match: {driver: mlx5_core}", True),
        ("        driver: mlx5_core", True),
        ("        macaddress: '4c:bb:47:00:00:01'", True),
        ("    w: {match: {driver: mlx5_core}, access-points: {home: {password: hunter2}}}", False),
        ("      match: {driver: mlx5_core, x: {password: hunter2}}", False),
    ],
)
def test_of_a_file_with_secrets_only_the_selector_is_printed(tmp_path: Path, entry: str, printed: bool) -> None:
    path = tmp_path / "etc/netplan/50-all.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"network:\n  wifis:\n    w: {{password: hunter2}}\n  ethernets:\n{entry}\n")
    found = run(COMMAND, tmp_path).stdout
    assert ("mlx5_core" in found or "4c:bb" in found) == printed
    assert "hunter2" not in found


def test_files_that_cannot_be_read_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "etc/netplan").mkdir(parents=True)
    (tmp_path / "etc/netplan/a.yaml").write_text("x")
    stand_in(tmp_path, "grep", "exit 2")
    assert run(COMMAND, tmp_path).returncode == 9


WANTED = {
    name: InterfaceState(known=True, up=True, mtu=9000, addresses=frozenset({f"192.168.10{half}.1/24"}))
    for half, name in enumerate(NAMES)
}
MORE = (
    "dhcp4: no",
    "dhcp6: Off",
    "link-local: []",
    "link-local: [ipv6]",
    "renderer: networkd",
    "critical: true",
    "ignore-carrier: yes",
    "accept-ra: no",
)
"""What published files have beside address and MTU (of sparkrun, NVIDIA and owners)."""
ONE = "    enp1s0f1np1: {addresses: [192.168.100.1/24], mtu: 9000, dhcp4: false, optional: true}"
TWO = "    enP2p1s0f1np1: {addresses: [192.168.101.1/24], mtu: 9000}"


@pytest.mark.parametrize(
    "files",
    [[f"{ONE}\n{TWO}"], [ONE, TWO], [f"{ONE}\n{TWO}\n    enp1s0f0np0: {{dhcp4: false}}"]],
    ids=["one file", "two files", "a port without a cable"],
)
def test_files_that_say_what_ours_would(files: list[str]) -> None:
    assert is_equivalent([ethernets(text).encode() for text in files], WANTED)


@pytest.mark.parametrize("more", MORE)
def test_a_setting_without_effect_on_address_and_mtu_is_no_difference(more: str) -> None:
    files = [ONE.replace("dhcp4: false", more), TWO]
    assert is_equivalent([ethernets(text).encode() for text in files], WANTED)


@pytest.mark.parametrize(
    "files",
    [
        [f"{ONE}\n{TWO}".replace("dhcp4: false", "dhcp4: yes")],
        [f"{ONE}\n{TWO}".replace("dhcp4: false", "dhcp4: 0")],
        [f"{ONE}\n{TWO}".replace("dhcp4: false", "renderer: NetworkManager")],
        [f"{ONE}\n{TWO}".replace("dhcp4: false", "link-local: [ipv4]")],
        [ONE],
        [ONE, f"{ONE}\n{TWO}"],
        [f"{ONE}\n{TWO}".replace("100.1/24", "100.2/24")],
        [f"{ONE}\n{TWO}".replace("100.1/24", "100.1/25")],
        [f"{ONE}\n{TWO}".replace("100.1/24]", "100.1/24, 10.0.0.1/8]")],
        [f"{ONE}\n{TWO}".replace("[192.168.100.1/24]", "[{192.168.100.1/24: {label: a}}]")],
        [f"{ONE}\n{TWO}".replace("[192.168.100.1/24]", "192.168.100.1/24")],
        [f"{ONE}\n{TWO}".replace("mtu: 9000,", "")],
        [f"{ONE}\n{TWO}".replace("mtu: 9000,", "mtu: '9000',")],
        [f"{ONE}\n{TWO}".replace("dhcp4: false", "dhcp4: true")],
        [f"{ONE}\n{TWO}".replace("dhcp4: false", "gateway4: 192.168.100.254")],
        [f"{ONE}\n    enP2p1s0f1np1: null"],
        [f"{ONE}\n{TWO}\n    enp1s0f0np0: {{addresses: [10.9.9.9/24]}}"],
        ["    - enp1s0f1np1"],
        [""],
    ],
)
def test_files_that_say_something_else(files: list[str]) -> None:
    assert not is_equivalent([ethernets(text).encode() for text in files], WANTED)
