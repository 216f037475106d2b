"""The fabric of racks as people set them up, and what of it no file can say."""

from __future__ import annotations

import base64

import pytest

from core.model import Half
from tests.unit.discovery.worlds import World, world
from tests.unit.model.racks import DIRECT, RING, SWITCH, TAGGED, changed, loaded


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


PLAYBOOK = b"""network:
  version: 2
  ethernets:
    enp1s0f1np1:
      dhcp4: false
      addresses: [192.168.100.10/24]
      mtu: 9000
    enP2p1s0f1np1:
      dhcp4: false
      addresses: [192.168.101.10/24]
      mtu: 9000
"""
"""NVIDIA's /etc/netplan/40-cx7.yaml for two nodes."""


def halves(node: str, port: int = 1) -> tuple[Half, Half]:
    return Half(node, port, 0), Half(node, port, 1)


def reported(found: World) -> str:
    return "\n".join(str(gap) for gap in found.sheet().unrepresentable)


@pytest.fixture
def playbook() -> World:
    """Two nodes behind a switch, .10 and .11, as NVIDIA's playbook has them."""
    found = world(loaded(changed(SWITCH, ("0" * 64, "3c" * 32))))
    for number, node in ((10, "spark1"), (11, "spark2")):
        for index, half in enumerate(halves(node)):
            found.address(half, f"192.168.10{index}.{number}/24")
        lines = [f"/etc/netplan/40-cx7.yaml:    {half.interface}:" for half in halves(node)]
        found.say(node, "naming", *lines)
        found.say(node, "whole", f"/etc/netplan/40-cx7.yaml {encoded(PLAYBOOK.replace(b'.10/', b'.%d/' % number))}")
    return found


def test_the_playbooks_numbers_and_file_are_adopted(playbook: World) -> None:
    rack = playbook.adopted()
    assert [node.host for node in rack.nodes.values()] == [10, 11]
    assert rack.fabric.adopt
    assert playbook.residue() == ()
    assert reported(playbook) == ""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (PLAYBOOK + b"    enP7s7: {dhcp4: true}\n", "it has enP7s7, too"),
        (PLAYBOOK.replace(b"  version: 2", b"  version: 2\n  renderer: networkd"), "it is the only file that says"),
        (None, "it is more than a file of Ethernet interfaces"),
    ],
)
def test_a_file_that_cannot_be_taken_over_is_reported(playbook: World, content: bytes | None, why: str) -> None:
    playbook.say("spark2", "whole", *([f"/etc/netplan/40-cx7.yaml {encoded(content)}"] if content else []))
    assert f"fabric.adopt: spark2: /etc/netplan/40-cx7.yaml cannot be taken over, {why}" in reported(playbook)


def test_a_rack_in_one_large_network_gets_a_subnet_that_has_its_hosts() -> None:
    """A published set-up: all halves of two nodes in 10.0.0.0/16, with host numbers above 255."""
    found = world(loaded(SWITCH))
    for number, node in enumerate(("spark1", "spark2")):
        for half, host in zip(halves(node), (1, 2), strict=True):
            found.address(half, f"10.0.{number + 1}.{host}/16")
    rack = found.adopted()
    assert rack.fabric.subnets is not None
    assert [str(net) for net in rack.fabric.subnets] == ["10.0.0.0/16", "10.220.0.0/16"]
    assert [node.host for node in rack.nodes.values()] == [257, 513]
    assert "has no address" not in reported(found)


def test_a_file_that_matches_the_fabric_by_its_driver_is_reported(playbook: World) -> None:
    content = b"network: {ethernets: {cx7: {match: {driver: mlx5_core}, dhcp4: true}}}"
    playbook.say("spark2", "whole", f"/etc/netplan/50-cx7.yaml {base64.b64encode(content).decode()}")
    playbook.say("spark2", "owners", "device enp1s0f1np1 mlx5_core 4c:bb:47:00:00:01")
    assert "spark2: /etc/netplan/50-cx7.yaml cannot be taken over, it has cx7, too; a run refuses" in reported(playbook)


@pytest.mark.parametrize(("more", "lines"), [("dhcp4: no", []), ("link-local: [ipv4]", ["take over"])])
def test_a_takeover_is_listed_before_it_happens(playbook: World, more: str, lines: list[str]) -> None:
    """What differs may be in the file alone, as with an address that the interface does not have yet."""
    path = "/etc/netplan/40-cx7.yaml"
    for host, node in enumerate(("spark1", "spark2"), 10):
        text = (
            "network: {version: 2, ethernets: {"
            + ", ".join(
                f"{name}: {{addresses: [192.168.10{half}.{host}/24], mtu: 9000, {more}}}"
                for half, name in enumerate(("enp1s0f1np1", "enP2p1s0f1np1"))
            )
            + "}}"
        )
        playbook.say(node, "whole", f"{path} {encoded(text.encode())}")
    found = [line for line in playbook.residue() if path in line]
    assert found == [f"{node}: {line} {path}" for node in ("spark1", "spark2") for line in lines]


def test_a_profile_of_network_manager_is_reported(playbook: World) -> None:
    path = "/etc/NetworkManager/system-connections/cx7.nmconnection"
    playbook.say("spark2", "owners", "manager", f"keyfile {path}:interface-name=enp1s0f1np1")
    assert f"spark2: {path}, a profile of NetworkManager, configures enp1s0f1np1, which" in reported(playbook)


def test_what_configures_the_fabric_is_unknown_without_an_answer(playbook: World) -> None:
    playbook.say("spark2", "owners", "nonsense")
    assert "fabric.adopt: spark2: fabric-owners: unexpected probe output 'nonsense'" in reported(playbook)


def test_twins_in_one_subnet_are_reported_and_get_one_each() -> None:
    found = world(loaded(SWITCH))
    for number, node in enumerate(("spark1", "spark2"), 1):
        for half, host in zip(halves(node), (number, number + 100), strict=True):
            found.address(half, f"192.168.100.{host}/24")
    subnets = found.adopted().fabric.subnets
    assert subnets
    assert not subnets[0].overlaps(subnets[1])
    assert "both halves are in 192.168.100.0/24" in reported(found)
    assert any("enP2p1s0f1np1: 192.168.100.101/24 -> " in line for line in found.residue())


def test_a_half_without_an_address_is_reported() -> None:
    found = world(loaded(SWITCH))
    for node in ("spark1", "spark2"):
        found.address(halves(node)[1])
    assert "fabric.subnets: half 1 of the ports has no address; 192.168.101.0/24 was chosen for it" in reported(found)
    assert "spark1: enP2p1s0f1np1: no address -> 192.168.101.1/24" in found.residue()


def test_different_numbers_on_the_two_halves_are_reported() -> None:
    found = world(loaded(SWITCH))
    found.address(halves("spark2")[1], "192.168.101.77/24")
    assert "fabric.subnets: spark2 is host 2 in one subnet and host 77 in the other" in reported(found)
    assert found.residue() == ("spark2: enP2p1s0f1np1: 192.168.101.77/24 -> 192.168.101.2/24",)


def test_a_node_without_addresses_takes_no_number_of_another() -> None:
    found = world(loaded(SWITCH))
    for half, subnet in zip(halves("spark1"), (100, 101), strict=True):
        found.address(half, f"192.168.{subnet}.2/24")
    for half in halves("spark2"):
        found.address(half)
    assert [node.host for node in found.adopted().nodes.values()] == [2, 1]


def test_subnets_where_machines_are_managed_are_reported_and_others_chosen() -> None:
    found = world(loaded(SWITCH))
    for number, node in enumerate(("spark1", "spark2"), 1):
        found.address(halves(node)[0], f"10.77.0.{number + 100}/24")
    assert "10.77.0.0/24, where half 0 of the ports is, has machines in it by their management address" in reported(
        found
    )
    assert found.adopted().fabric.subnets


@pytest.mark.parametrize("text", [DIRECT, RING])
def test_racks_without_a_switch_are_reported_by_their_subnets(text: str) -> None:
    rack = loaded(text)
    found = world(rack)
    assert found.adopted().cabling == rack.cabling
    assert found.residue() == ()


def test_nvidias_ring_of_three_is_one_pool() -> None:
    """The six subnets of the playbook connect-three-sparks."""
    rack = loaded(changed(RING, ("10.100.0.0/20", "192.168.0.0/21")))
    own = {"spark1": "0.1 1.1 2.1 3.1", "spark2": "4.1 5.1 0.2 1.2", "spark3": "2.2 3.2 4.2 5.2"}
    found = world(rack)
    for node, ends in own.items():
        for half, end in zip((*halves(node, 0), *halves(node, 1)), ends.split(), strict=True):
            found.address(half, f"192.168.{end}/24")
    assert str(found.adopted().fabric.pool) == "192.168.0.0/21"
    assert found.residue() == ()
    assert reported(found) == ""


def test_a_ring_that_no_pool_gives_is_reported() -> None:
    found = world(loaded(RING))
    for node in ("spark1", "spark2"):
        for half in (*halves(node, 0), *halves(node, 1)):
            (own,) = found.device(half)["addr_info"]
            found.address(half, own["local"].replace("10.100.0.", "10.150.0.") + "/24")
    assert "fabric.pool" in reported(found)
    assert found.residue()


def test_vlans_that_differ_are_reported() -> None:
    found = world(loaded(TAGGED))
    assert found.adopted().fabric.vlans == (1100, 1101)
    links = found.nodes["spark2"]["links"].text.replace('"id": 1101', '"id": 1102')
    found.say("spark2", "links", links.strip())
    assert "fabric.vlans: spark2/enP2p1s0f1np1 is on VLAN 1102, others on 1101" in reported(found)
    assert any("VLAN 1102" in line for line in found.residue())


def test_hotplug_is_written_when_all_have_it_and_reported_when_some_do() -> None:
    found = world(loaded(SWITCH))
    assert found.adopted().fabric.hotplug is None
    found.say("spark1", "hotplug", "yes")
    assert "fabric.hotplug: on some nodes it is on: spark1" in reported(found)
    found.say("spark2", "hotplug", "yes")
    assert found.adopted().fabric.hotplug is True
