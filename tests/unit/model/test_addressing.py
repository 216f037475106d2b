"""Fabric addresses: where each comes from, that none is given twice, and who must reach whom."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given

from core.model import Rack, addresses_of, load, reachable
from tests.unit.model.racks import SWITCH, TAGGED, VALID, changed, loaded, ring
from tests.unit.model.random_racks import any_rack


def reported(rack: Rack) -> list[str]:
    return [str(address) for address in rack.addresses]


def test_from_subnets_by_rank() -> None:
    rack = load(VALID / "switch.yaml")
    assert reported(rack) == [
        "spark1/enp1s0f1np1 192.168.100.1/24",
        "spark1/enP2p1s0f1np1 192.168.101.1/24",
        "spark2/enp1s0f1np1 192.168.100.2/24",
        "spark2/enP2p1s0f1np1 192.168.101.2/24",
    ]
    assert addresses_of(rack, "spark2") == rack.addresses[2:]
    assert addresses_of(rack, "nobody") == ()
    assert [(str(a.half), str(b.half)) for a, b in reachable(rack)] == [
        ("spark1/enp1s0f1np1", "spark2/enp1s0f1np1"),
        ("spark1/enP2p1s0f1np1", "spark2/enP2p1s0f1np1"),
        ("spark2/enp1s0f1np1", "spark1/enp1s0f1np1"),
        ("spark2/enP2p1s0f1np1", "spark1/enP2p1s0f1np1"),
    ]


def test_a_node_may_have_a_number_of_its_own() -> None:
    rack = loaded(
        changed(
            SWITCH, ("vendor: asus", "vendor: asus\n    host: 10"), ("vendor: lenovo", "vendor: lenovo\n    host: 1")
        )
    )
    assert reported(rack) == [
        "spark1/enp1s0f1np1 192.168.100.10/24",
        "spark1/enP2p1s0f1np1 192.168.101.10/24",
        "spark2/enp1s0f1np1 192.168.100.1/24",
        "spark2/enP2p1s0f1np1 192.168.101.1/24",
    ]


def test_from_a_pool_by_cable() -> None:
    rack = load(VALID / "ring.yaml")
    assert reported(rack) == [
        "spark1/enp1s0f0np0 10.100.0.1/24",  # cable spark1/0 - spark2/1
        "spark1/enP2p1s0f0np0 10.100.1.1/24",
        "spark1/enp1s0f1np1 10.100.2.1/24",  # cable spark1/1 - spark3/0
        "spark1/enP2p1s0f1np1 10.100.3.1/24",
        "spark2/enp1s0f0np0 10.100.4.1/24",  # cable spark2/0 - spark3/1
        "spark2/enP2p1s0f0np0 10.100.5.1/24",
        "spark2/enp1s0f1np1 10.100.0.2/24",
        "spark2/enP2p1s0f1np1 10.100.1.2/24",
        "spark3/enp1s0f0np0 10.100.2.2/24",
        "spark3/enP2p1s0f0np0 10.100.3.2/24",
        "spark3/enp1s0f1np1 10.100.4.2/24",
        "spark3/enP2p1s0f1np1 10.100.5.2/24",
    ]


def test_each_half_has_its_vlan_and_a_device_for_it() -> None:
    tagged, plain = loaded(TAGGED), loaded(SWITCH)
    assert reported(tagged) == reported(plain)
    assert [(address.device, address.vlan) for address in tagged.addresses] == [
        ("fabric0", 1100),
        ("fabric1", 1101),
    ] * 2
    assert [(address.device, address.vlan) for address in plain.addresses] == [
        ("enp1s0f1np1", None),
        ("enP2p1s0f1np1", None),
    ] * 2
    assert [(str(a.half), str(b.half)) for a, b in reachable(tagged)] == [
        (str(a.half), str(b.half)) for a, b in reachable(plain)
    ]


@given(any_rack)
def test_devices_are_apart_and_have_names_that_linux_allows(text: str) -> None:
    rack = loaded(text)
    racks = [rack]
    if rack.topology == "switch":
        racks.append(loaded(text.replace("fabric: {", "fabric: {vlans: [2, 4094], ")))
    for one in racks:
        for name in one.nodes:
            devices = [address.device for address in addresses_of(one, name)]
            assert len(set(devices)) == len(devices)
            assert all(len(device) <= 15 for device in devices)


@given(any_rack)
def test_every_half_has_its_own_address_in_a_subnet_of_its_own(text: str) -> None:
    rack = loaded(text)
    halves = [address.half for address in rack.addresses]
    assert len(set(halves)) == len(halves)
    assert set(halves) == {half for name in rack.nodes for port in rack.cabling.ports_of(name) for half in port.halves}
    assert len({address.interface.ip for address in rack.addresses}) == len(rack.addresses)
    of_node = defaultdict(list)
    for address in rack.addresses:
        network = address.interface.network
        assert address.interface.ip in list(network.hosts())
        of_node[address.half.node].append(network)
        if rack.fabric.pool:
            assert network.subnet_of(rack.fabric.pool)
        else:
            assert rack.fabric.subnets is not None
            assert network == rack.fabric.subnets[address.half.index]
        assert not any(node.address in network for node in rack.nodes.values())
        assert not any(switch.address in network for switch in rack.switches.values())
    # no node has two interfaces in one subnet, twins least of all
    assert all(len(set(networks)) == len(networks) for networks in of_node.values())


@given(any_rack)
def test_reachable_pairs(text: str) -> None:
    rack = loaded(text)
    pairs = reachable(rack)
    assert len(set(pairs)) == len(pairs)
    assert {(b, a) for a, b in pairs} == set(pairs)
    if rack.topology == "switch":
        size = len(rack.nodes)
        assert len(pairs) == 2 * size * (size - 1)
        assert all(a.half.index == b.half.index for a, b in pairs)
    else:
        cabled = {frozenset(cable.ports) for cable in rack.cabling.cables}
        assert len(pairs) == 4 * len(cabled)
        for a, b in pairs:
            ends = {(end.half.node, end.half.port) for end in (a, b)}
            assert ends in [{(port.node, port.number) for port in ports} for ports in cabled]
            assert a.half.index == b.half.index


def test_a_subnet_may_be_as_small_as_the_rack() -> None:
    rack = loaded(changed(SWITCH, ("192.168.101.0/24", "192.168.101.0/30")))
    assert reported(rack)[3] == "spark2/enP2p1s0f1np1 192.168.101.2/30"


def test_a_pool_may_be_as_small_as_the_rack() -> None:
    assert str(loaded(ring(4, [0] * 4, "10.100.0.0/21")).addresses[-1].interface) == "10.100.7.2/24"
