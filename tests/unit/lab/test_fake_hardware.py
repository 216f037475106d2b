"""What the stand-in commands of a virtual node answer from: it fits the cables of the rack."""

from __future__ import annotations

import json

from hypothesis import given, settings

from lab.fake_hardware import BOARDS, HALF_GBPS, state
from tests.unit.model.racks import DIRECT, SWITCH, changed, loaded
from tests.unit.model.random_racks import any_rack


@settings(max_examples=60)
@given(any_rack)
def test_there_is_a_link_for_every_port(text: str) -> None:
    rack = loaded(text)
    for node in rack.nodes.values():
        found = state(rack, node)
        json.dumps(found)
        ports = rack.cabling.ports_of(node.name)
        assert sorted(found["links"]) == sorted(str(port.number) for port in ports)
        assert len(found["pci"]) == len(found["rdma"]) == 2 * len(ports)


def test_a_link_to_a_switch_is_the_switchs_to_say() -> None:
    rack = loaded(SWITCH)
    assert state(rack, rack.nodes["spark1"])["links"] == {
        "1": {"carrier": False, "speed": None, "lanes": 0, "fec": None, "leg": None}
    }


def test_a_link_to_a_node_is_up() -> None:
    rack = loaded(DIRECT)
    (link,) = state(rack, rack.nodes["right"])["links"].values()
    assert (link["carrier"], link["speed"], link["lanes"]) == (True, 200_000, 4)


def test_rdma_devices_are_named_as_the_driver_names_them() -> None:
    rack = loaded(SWITCH)
    assert state(rack, rack.nodes["spark1"])["rdma"] == {
        "rocep1s0f1": {"gbps": HALF_GBPS},
        "roceP2p1s0f1": {"gbps": HALF_GBPS},
    }


def test_boards_and_serials() -> None:
    rack = loaded(changed(SWITCH, ("vendor: asus", "vendor: acer")))
    first, second = (state(rack, node)["dmi"] for node in rack.nodes.values())
    assert (first["system-manufacturer"], first["system-product-name"]) == ("Acer", "GB10")
    assert (second["system-manufacturer"], second["system-product-name"]) == BOARDS["lenovo"]
    assert first["system-serial-number"] != second["system-serial-number"]


def test_the_driver_is_the_one_that_booted() -> None:
    """An upgraded driver is another one only after a reboot: the node tells, not the state file."""
    rack = loaded(SWITCH + 'driver: {version: "590.1"}\n')
    assert "driver_version" not in state(rack, rack.nodes["spark1"])["gpu"]
