"""The fabric on VLANs: the file, what `ip` says of them, and which VLAN interfaces are ours to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import VLAN_DEVICES
from roles.fabric.desired import (
    InterfaceState,
    Vlan,
    foreign,
    live,
    managed_interfaces,
    netplan,
    occupied,
    on_the_fabric,
    problems,
    stale_vlans,
    wanted,
)
from tests.unit.model.racks import SWITCH, TAGGED, loaded
from tests.unit.roles.cases import sentences

SHOWN = (Path(__file__).parents[2] / "cases/facts/ip-address.vlan-node.json").read_text()
RACK, PLAIN = loaded(TAGGED), loaded(SWITCH)
NODE = RACK.nodes["spark1"]
HALVES = ["enp1s0f1np1", "enP2p1s0f1np1"]
NAMES = [*HALVES, *VLAN_DEVICES]
ABSENT = InterfaceState(known=False, up=False, mtu=0, addresses=frozenset())


def shown(name: str, **changes: Any) -> dict[str, InterfaceState]:
    """What the node says, with one interface changed; None takes it away."""
    links = json.loads(SHOWN)
    for link in links:
        if link["ifname"] == name:
            link |= changes
    return live(json.dumps(links), NAMES)


def vlan(number: int, protocol: str = "802.1Q") -> dict[str, Any]:
    return {"info_kind": "vlan", "info_data": {"protocol": protocol, "id": number, "flags": ["REORDER_HDR"]}}


def test_the_file_of_a_node() -> None:
    common = {"mtu": 9000, "dhcp4": False, "dhcp6": False, "accept-ra": False, "optional": True}
    assert YAML(typ="safe", pure=True).load((netplan(RACK, NODE) or b"").decode()) == {
        "network": {
            "version": 2,
            "ethernets": dict.fromkeys(HALVES, common),
            "vlans": {
                "fabric0": {**common, "id": 1100, "link": HALVES[0], "addresses": ["192.168.100.1/24"]},
                "fabric1": {**common, "id": 1101, "link": HALVES[1], "addresses": ["192.168.101.1/24"]},
            },
        }
    }


def test_a_node_that_is_right() -> None:
    now = live(SHOWN, NAMES)
    assert now == wanted(RACK, NODE)
    assert list(now) == NAMES
    assert sentences(problems(RACK, NODE, now)) == occupied(RACK, NODE, now) == []


@pytest.mark.parametrize(
    ("name", "changes", "reported"),
    [
        ("fabric0", {"linkinfo": vlan(7)}, "fabric0: VLAN 7 on enp1s0f1np1 -> VLAN 1100 on enp1s0f1np1"),
        ("fabric0", {"link": HALVES[1]}, "fabric0: VLAN 1100 on enP2p1s0f1np1 -> VLAN 1100 on enp1s0f1np1"),
        (
            "fabric0",
            {"linkinfo": vlan(1100, "802.1ad")},
            "fabric0: VLAN 1100 on enp1s0f1np1 (802.1ad) -> VLAN 1100 on enp1s0f1np1",
        ),
        ("fabric1", {"mtu": 1500}, "fabric1: mtu 1500 -> 9000"),
        ("fabric1", {"flags": []}, "fabric1: is down"),
        ("fabric1", {"addr_info": []}, "fabric1: no address -> 192.168.101.1/24"),
        ("fabric1", {"ifname": "vlan7"}, "fabric1: is not there"),
        (HALVES[0], {"mtu": 1500}, "enp1s0f1np1: mtu 1500 -> 9000"),
        (HALVES[0], {"flags": []}, "enp1s0f1np1: is down"),
        (
            HALVES[1],
            {"addr_info": [{"family": "inet", "local": "10.9.9.9", "prefixlen": 8}]},
            "enP2p1s0f1np1: 10.9.9.9/8 -> no address",
        ),
    ],
)
def test_each_thing_that_may_differ_is_found(name: str, changes: dict[str, Any], reported: str) -> None:
    assert sentences(problems(RACK, NODE, shown(name, **changes))) == [reported]


@pytest.mark.parametrize(
    "changes",
    [
        {"linkinfo": {"info_kind": "dummy"}},
        {"linkinfo": {}},
        {"link": "enP7s7"},
        {"link": "enp1s0f1np1.5"},
    ],
)
def test_a_name_that_is_taken(changes: dict[str, Any]) -> None:
    assert occupied(RACK, NODE, shown("fabric0", **changes)) == ["fabric0"]


@pytest.mark.parametrize(
    ("link", "ours"), [("enP2p1s0f0np0", True), ("enp1s0f1np1", True), ("enP7s7", False), ("?", False)]
)
def test_only_on_the_fabric_a_vlan_may_be_ours(link: str, ours: bool) -> None:
    assert on_the_fabric(Vlan(link, 5)) == ours
    assert not on_the_fabric(None)


def test_a_vlan_on_an_interface_of_another_namespace() -> None:
    links = [link for link in json.loads(SHOWN) if link["ifname"] == "fabric0"]
    del links[0]["link"]
    assert live(json.dumps(links), ["fabric0"])["fabric0"].tag == Vlan("?", 1100)


def test_without_vlans_those_that_were_ours_are_removed() -> None:
    now = managed_interfaces(PLAIN, NODE, None, live(SHOWN, NAMES))
    assert list(now) == NAMES
    assert stale_vlans(wanted(PLAIN, NODE), now) == list(VLAN_DEVICES)
    assert sentences(problems(PLAIN, NODE, now))[2:] == [
        "fabric0: VLAN 1100 on enp1s0f1np1 -> removed",
        "fabric1: VLAN 1101 on enP2p1s0f1np1 -> removed",
    ]


@pytest.mark.parametrize("changes", [{"linkinfo": {"info_kind": "dummy"}}, {"link": "enP7s7"}])
@pytest.mark.parametrize("before", [None, netplan(RACK, NODE)])
def test_without_vlans_those_of_others_are_left_alone(changes: dict[str, Any], before: bytes | None) -> None:
    assert "fabric0" not in managed_interfaces(PLAIN, NODE, before, shown("fabric0", **changes))


def test_one_that_is_gone_but_in_our_file_leaves_units_to_remove() -> None:
    now = live(SHOWN, NAMES) | {"fabric1": ABSENT}
    assert list(managed_interfaces(PLAIN, NODE, netplan(RACK, NODE), now)) == NAMES
    assert list(managed_interfaces(PLAIN, NODE, netplan(PLAIN, NODE), now)) == NAMES[:3]


def test_without_vlans_nothing_is_said_of_them() -> None:
    now = managed_interfaces(
        PLAIN, NODE, netplan(PLAIN, NODE), live(SHOWN, HALVES) | dict.fromkeys(VLAN_DEVICES, ABSENT)
    )
    assert list(now) == list(wanted(PLAIN, NODE)) == HALVES


@pytest.mark.parametrize(
    ("line", "defines"),
    [
        ("    fabric0:", True),
        ("  vlans: {fabric0: {id: 5}}", True),
        ("    my-fabric0:", False),
        ("    fabric01:", False),
    ],
)
def test_a_file_of_others(line: str, defines: bool) -> None:
    assert bool(foreign(f"/etc/netplan/a.yaml:{line}", list(wanted(RACK, NODE)))) == defines
    assert foreign(f"/etc/netplan/a.yaml:{line}", list(wanted(PLAIN, NODE))) == {}
