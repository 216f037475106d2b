"""How a rack lies in its namespace: names and hardware addresses are unique, for any rack."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from core.model import Port
from lab.errors import LabError
from lab.layout import FROM_THE_BOX, Layout
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.model.random_racks import any_rack

MAC = re.compile(r"02(:[0-9a-f]{2}){5}")


@settings(max_examples=60)
@given(any_rack)
def test_links_are_unique_and_fit_the_kernel(text: str) -> None:
    layout = Layout(loaded(text))
    nodes = list(layout.rack.nodes)
    wires = [wire for node in nodes for wire in layout.wires(node)]
    taps = [wire.tap for wire in wires] + [layout.management_tap(node) for node in nodes]
    bridges = [f"{stem}h{index}" for stem, _ in layout.direct_cables for index in (0, 1)]
    bridges += [layout.switch_link(switch) for switch in layout.rack.switches]
    names = [*taps, *bridges, "br-mgmt", "br-fabric"]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 15 for name in names)
    macs = [wire.mac for wire in wires] + [layout.management_mac(node) for node in nodes]
    assert len({mac.replace("5b", "5a") for mac in macs}) == len(macs)  # the interface has 5a in place of 5b
    assert all(MAC.fullmatch(mac) for mac in macs)
    for node in nodes:
        devices = [wire.device for wire in layout.wires(node)]
        assert len(set(devices)) == len(devices)


@settings(max_examples=60)
@given(any_rack)
def test_every_half_of_every_cable_has_its_wire(text: str) -> None:
    layout = Layout(loaded(text))
    halves = {wire.half for node in layout.rack.nodes for wire in layout.wires(node)}
    assert halves == {address.half for address in layout.rack.addresses}
    for cable in layout.rack.cabling.cables:
        for port in cable.ports:
            assert len(layout.taps(port)) == 2
    plugged = [
        port
        for switch in layout.rack.switches.values()
        for legs in layout.cage_cables(switch).values()
        for _, port in legs
    ]
    direct = [port for _, cable in layout.direct_cables for port in cable.ports]
    cabled = [port for cable in layout.rack.cabling.cables for port in cable.ports]
    assert sorted(plugged + direct) == sorted(cabled)


@settings(max_examples=60)
@given(any_rack)
def test_the_operator_stands_in_the_management_network(text: str) -> None:
    layout = Layout(loaded(text.replace("10.78.0.", "10.77.255.")))
    used = [node.address for node in layout.rack.nodes.values()]
    used += [switch.address for switch in layout.rack.switches.values()]
    assert all(address in layout.management for address in used)
    assert layout.operator.network == layout.management
    assert layout.operator.ip not in [*used, layout.management.network_address, layout.management.broadcast_address]


def test_the_operator_reaches_a_switch_from_its_box() -> None:
    layout = Layout(loaded(SWITCH))
    assert layout.beside_the_box
    assert str(layout.beside_the_box) == "192.168.88.2/24"
    assert FROM_THE_BOX.ip in layout.beside_the_box.network


def test_no_other_has_the_address_of_a_switch_from_its_box() -> None:
    layout = Layout(loaded(SWITCH.replace("10.77.0.", "192.168.88.")))
    assert layout.beside_the_box is None
    assert layout.operator.ip != FROM_THE_BOX.ip
    assert layout.operator.ip not in [node.address for node in layout.rack.nodes.values()]


def test_packages_and_images_come_from_the_operator() -> None:
    layout = Layout(loaded(SWITCH))
    assert layout.repository == f"http://{layout.operator.ip}:8090/"
    assert layout.registry == f"{layout.operator.ip}:5000"


def test_machines_far_apart_are_refused() -> None:
    layout = Layout(loaded(changed(SWITCH, ("10.77.0.12", "10.99.0.12"))))
    with pytest.raises(LabError, match="do not fit into one /16"):
        _ = layout.management


def test_taps_of_a_port() -> None:
    layout = Layout(loaded(SWITCH))
    assert layout.taps(Port("spark2", 1)) == ("n2-p1h0", "n2-p1h1")
    assert layout.taps(Port("spark2", 0)) == ()
