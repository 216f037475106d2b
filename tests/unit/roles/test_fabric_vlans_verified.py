"""What the proof of a fabric on VLANs accepts, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from roles.fabric import verify
from tests.unit.model.racks import SWITCH, TAGGED, loaded

SHOWN = json.loads((Path(__file__).parents[2] / "cases/facts/ip-address.vlan-node.json").read_text())
RACK, PLAIN = loaded(TAGGED), loaded(SWITCH)
NODE, ADDRESS = RACK.nodes["spark1"], RACK.addresses[0]
PLANNED: dict[str, object] = {
    "ethernets.enp1s0f1np1.addresses": None,
    "ethernets.enp1s0f1np1.mtu": 9000,
    "vlans.fabric0.id": 1100,
    "vlans.fabric0.link": "enp1s0f1np1",
    "vlans.fabric0.addresses": ["192.168.100.1/24"],
    "vlans.fabric0.mtu": 9000,
}


@dataclass
class Said:
    stdout: str
    rc: int = 0
    stderr: str = ""


@dataclass
class Fake:
    """A node that answers `ip` from one reading."""

    links: list[dict[str, Any]] = field(default_factory=lambda: json.loads(json.dumps(SHOWN)))

    def run(self, command: str) -> Said:
        if command == "ip -d -j link show":
            return Said(json.dumps(self.links))
        name = command.split()[-1]
        link = next((link for link in self.links if link["ifname"] == name), None)
        if link is None:
            return Said("", 1, f'Device "{name}" does not exist.')
        own = [entry for entry in link["addr_info"] if entry["family"] == "inet"]
        if " -j " in command:
            return Said(json.dumps([{**link, "addr_info": own}]))
        return Said("".join(f"4: {name}    inet {entry['local']}/{entry['prefixlen']} scope global\n" for entry in own))


def changed(name: str, **changes: Any) -> Fake:
    fake = Fake()
    for link in fake.links:
        if link["ifname"] == name:
            link |= changes
    return fake


def boot(plan: Mapping[str, object]) -> dict[str, Said]:
    """What netplan prints of all its files on spark1; a value that is None is not written."""
    network: dict[str, Any] = {"version": 2}
    for key, value in plan.items():
        kind, name, last = key.split(".")
        own = network.setdefault(kind, {}).setdefault(name, {})
        if value is not None:
            own[last] = value
    return {"spark1": Said(json.dumps({"network": network}))}


def fault(check: Any, *arguments: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        check(*arguments)
    return str(caught.value).splitlines()[0]


def test_a_node_that_is_right() -> None:
    verify.test_vlans_are_live(NODE, Fake(), RACK)
    verify.test_address_and_mtu_are_live(ADDRESS, Fake(), RACK)
    verify.test_address_and_mtu_come_back_at_boot(ADDRESS, boot(PLANNED), RACK)


@pytest.mark.parametrize(
    ("name", "changes", "reported"),
    [
        (
            "fabric0",
            {"linkinfo": {"info_kind": "vlan", "info_data": {"protocol": "802.1Q", "id": 7}}},
            "fabric0 is 802.1Q 7 on enp1s0f1np1, wanted 802.1Q 1100 on enp1s0f1np1",
        ),
        (
            "fabric0",
            {"linkinfo": {"info_kind": "vlan", "info_data": {"protocol": "802.1ad", "id": 1100}}},
            "fabric0 is 802.1ad 1100 on enp1s0f1np1, wanted 802.1Q 1100 on enp1s0f1np1",
        ),
        ("fabric1", {"link": "enP7s7"}, "fabric1 is 802.1Q 1101 on enP7s7, wanted 802.1Q 1101 on enP2p1s0f1np1"),
        ("fabric1", {"linkinfo": {"info_kind": "dummy"}}, "fabric1 is no VLAN, wanted 802.1Q 1101 on enP2p1s0f1np1"),
        ("fabric1", {"ifname": "gone"}, "fabric1 is no VLAN, wanted 802.1Q 1101 on enP2p1s0f1np1"),
        ("enp1s0f1np1", {"mtu": 1500}, "enp1s0f1np1 below its VLAN has mtu 1500, wanted 9000"),
        (
            "enP2p1s0f1np1",
            {"addr_info": [{"family": "inet", "local": "10.0.0.1", "prefixlen": 8}]},
            "enP2p1s0f1np1 below its VLAN has 10.0.0.1/8, wanted no address",
        ),
    ],
)
def test_a_vlan_that_is_wrong(name: str, changes: dict[str, Any], reported: str) -> None:
    assert fault(verify.test_vlans_are_live, NODE, changed(name, **changes), RACK) == f"spark1: {reported}"


def test_without_vlans_none_of_ours_may_be_left() -> None:
    assert fault(verify.test_vlans_are_live, NODE, Fake(), PLAIN) == (
        "spark1: fabric0 is 802.1Q 1100 on enp1s0f1np1, wanted none; "
        "fabric1 is 802.1Q 1101 on enP2p1s0f1np1, wanted none"
    )


@pytest.mark.parametrize("name", ["vlan7", "fabric7"])
def test_without_vlans_those_of_others_may(name: str) -> None:
    fake = changed("fabric0", ifname=name)
    fake.links = [link for link in fake.links if link["ifname"] != "fabric1"]
    verify.test_vlans_are_live(NODE, fake, PLAIN)
    verify.test_vlans_are_live(NODE, Fake([link | {"link": "enP7s7"} for link in SHOWN]), PLAIN)


def test_an_address_is_looked_for_where_it_shall_be() -> None:
    reported = fault(verify.test_address_and_mtu_are_live, ADDRESS, changed("fabric0", addr_info=[], mtu=1500), RACK)
    assert reported == "spark1/fabric0: has no address, wanted 192.168.100.1/24; mtu 1500, wanted 9000"
    reported = fault(verify.test_address_and_mtu_are_live, ADDRESS, changed("fabric0", ifname="gone"), RACK)
    assert reported == 'spark1/fabric0: Device "fabric0" does not exist.'


@pytest.mark.parametrize("key", PLANNED)
def test_what_netplan_would_do_otherwise_at_boot(key: str) -> None:
    reported = fault(verify.test_address_and_mtu_come_back_at_boot, ADDRESS, boot(PLANNED | {key: 7}), RACK)
    assert reported.startswith(f"spark1/fabric0: after a boot netplan gives {key} 7, wanted ")


def test_without_vlans_netplan_is_asked_for_the_half_alone() -> None:
    plan = {"ethernets.enp1s0f1np1.addresses": ["192.168.100.1/24"], "ethernets.enp1s0f1np1.mtu": 9000}
    verify.test_address_and_mtu_come_back_at_boot(PLAIN.addresses[0], boot(plan), PLAIN)


@pytest.mark.parametrize(
    ("plan", "reported"),
    [
        ({}, "ethernets.enp1s0f1np1.addresses None, wanted ['192.168.100.1/24']"),
        ({"ethernets.enp1s0f1np1.addresses": ["192.168.100.1/24"]}, "ethernets.enp1s0f1np1.mtu 1500, wanted 9000"),
    ],
)
def test_what_netplan_does_not_have_fails(plan: dict[str, object], reported: str) -> None:
    check = verify.test_address_and_mtu_come_back_at_boot
    assert fault(check, PLAIN.addresses[0], boot(plan), PLAIN).endswith(f"after a boot netplan gives {reported}")


def test_a_netplan_that_cannot_answer_fails() -> None:
    broken = {"spark1": Said("", 1, "/etc/netplan/x.yaml: Error in network definition")}
    reported = fault(verify.test_address_and_mtu_come_back_at_boot, PLAIN.addresses[0], broken, PLAIN)
    assert reported.endswith("/etc/netplan/x.yaml: Error in network definition")
