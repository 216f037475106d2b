"""The netplan file: exactly the cabled interfaces, exactly their settings, nothing of the management network."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from ruamel.yaml import YAML

from core.model import Node, Rack, addresses_of
from roles.fabric.desired import FILE, KEPT, TRIED, interfaces, netplan
from tests.unit.model.racks import DIRECT, SWITCH, changed, loaded
from tests.unit.model.random_racks import any_rack


def tree(rack: Rack, node: Node) -> Any:
    content = netplan(rack, node)
    assert content is not None
    return YAML(typ="safe", pure=True).load(content.decode())


def test_the_file_of_a_node() -> None:
    rack = loaded(SWITCH)
    assert (
        netplan(rack, rack.nodes["spark2"])
        == b"""\
# Written by sparkrack for the rack two; a change here is overwritten.
network:
  version: 2
  ethernets:
    enp1s0f1np1:
      addresses: [192.168.100.2/24]
      mtu: 9000
      dhcp4: false
      dhcp6: false
      accept-ra: false
      optional: true
    enP2p1s0f1np1:
      addresses: [192.168.101.2/24]
      mtu: 9000
      dhcp4: false
      dhcp6: false
      accept-ra: false
      optional: true
"""
    )


@given(any_rack)
@settings(max_examples=60)
def test_it_is_the_wanted_tree_and_nothing_else(text: str) -> None:
    rack = loaded(text)
    for node in rack.nodes.values():
        wanted = {
            address.half.interface: {
                "addresses": [str(address.interface)],
                "mtu": rack.fabric.mtu,
                "dhcp4": False,
                "dhcp6": False,
                "accept-ra": False,
                "optional": True,
            }
            for address in addresses_of(rack, node.name)
        }
        assert tree(rack, node) == {"network": {"version": 2, "ethernets": wanted}}
        assert list(wanted) == interfaces(rack, node)


@given(any_rack)
@settings(max_examples=60)
def test_the_management_network_is_never_in_it(text: str) -> None:
    rack = loaded(text)
    addresses = [node.address for node in rack.nodes.values()] + [one.address for one in rack.switches.values()]
    for node in rack.nodes.values():
        reported = (netplan(rack, node) or b"").decode()
        assert "enP7s7" not in reported
        assert "gateway" not in reported
        assert "routes" not in reported
        words = reported.replace("[", " ").replace("]", " ").replace("/", " ").split()
        assert not [address for address in addresses if str(address) in words]


def test_the_mtu_is_the_racks() -> None:
    rack = loaded(changed(DIRECT, ("fabric:\n", "fabric:\n  mtu: 1500\n")))
    ethernets = tree(rack, rack.nodes["left"])["network"]["ethernets"]
    assert {entry["mtu"] for entry in ethernets.values()} == {1500}


def test_a_node_without_cable_has_no_file() -> None:
    rack = loaded(DIRECT)
    alone = rack.nodes["left"].model_copy(update={"name": "nobody"})
    assert netplan(rack, alone) is None
    assert interfaces(rack, alone) == []


def test_it_is_on_trial_under_the_name_it_is_kept_under() -> None:
    """netplan takes a file in /run in place of one of the same name in /etc; any other name would be doubled."""
    assert (f"/etc/netplan/{FILE}", f"/run/netplan/{FILE}") == (KEPT, TRIED)
