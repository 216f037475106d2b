"""What is configured right and does not work all the same."""

from __future__ import annotations

import pytest

from switch.health import configured_but_broken
from switch.plan import plan
from tests.unit.switch.racks import UNCABLED, MakeRack
from tests.unit.switch.rows import Tables, factory, reading, row

PORT = "/interface/bridge/port"


def found(rack: MakeRack, tables: Tables, **switch: object) -> tuple[str, ...]:
    return configured_but_broken(rack(**switch)[1], reading(tables))


def test_a_switch_from_the_factory_has_none(rack: MakeRack) -> None:
    assert found(rack, factory()) == ()


def second_bridge(hw: str) -> Tables:
    """A switch from the factory whose management ports are in a bridge of their own."""
    tables = factory()
    tables["/interface/bridge"].append({".id": "*30", "name": "other"})
    for name in ("ether1", "ether2"):
        row(tables, name, PORT, "interface").update({"bridge": "other", "hw": hw})
    return tables


def test_a_second_bridge_whose_ports_ask_for_the_chip_is_a_fault_that_advises_no_removal(rack: MakeRack) -> None:
    (fault,) = found(rack, second_bridge("true"))
    assert fault == (
        "bridge other is a second bridge, and the chip forwards for one only (its ports ether1, ether2 have hw=yes); "
        "set hw=no on its ports, so that the CPU forwards for them, or make them ports of bridge"
    )
    assert found(rack, second_bridge("true"), nodes=UNCABLED, cages={}) == (), "then the bridge is none of ours"


@pytest.mark.parametrize("hw", ["false", "no"])
def test_a_management_bridge_whose_ports_do_not_ask_for_the_chip_is_not_a_fault(rack: MakeRack, hw: str) -> None:
    assert found(rack, second_bridge(hw)) == ()


def test_a_leg_in_a_second_bridge_is_a_fault_whatever_it_asks_for(rack: MakeRack) -> None:
    tables = second_bridge("false")
    row(tables, "qsfp56-dd-1-3", PORT, "interface").update({"bridge": "other", "hw": "false"})
    (fault,) = found(rack, tables)
    assert "its port qsfp56-dd-1-3 is a leg" in fault


@pytest.mark.parametrize("disabled", ["true", "yes"])
def test_a_second_bridge_that_is_off_does_not_count(rack: MakeRack, disabled: str) -> None:
    tables = factory()
    tables["/interface/bridge"].append({".id": "*30", "name": "other", "disabled": disabled})
    assert found(rack, tables) == ()


def test_a_second_bridge_without_ports_takes_nothing_from_the_chip(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge"].append({".id": "*30", "name": "other"})
    assert found(rack, tables) == ()


@pytest.mark.parametrize("printed", ["false", "no", "perhaps", None])
def test_a_leg_the_chip_does_not_forward_for(rack: MakeRack, printed: str | None) -> None:
    tables = factory()
    port = row(tables, "qsfp56-dd-1-3", PORT, "interface")
    port.pop("hw-offload")
    if printed:
        port["hw-offload"] = printed
    (fault,) = found(rack, tables)
    assert fault == (
        "port qsfp56-dd-1-3 has lost its hardware offload: its packets go through the CPU; set hw=no and hw=yes on it "
        "again"
    )


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("qsfp56-dd-1-2", {}),  # a companion
        ("ether1", {}),
        ("qsfp56-dd-1-3", {"disabled": "true"}),
        ("qsfp56-dd-1-3", {"hw": "false"}),  # that is a change, not a fault
        ("qsfp56-dd-1-3", {"bridge": "other"}),
    ],
)
def test_ports_that_need_no_offload(rack: MakeRack, name: str, fields: dict[str, str]) -> None:
    tables = factory()
    row(tables, name, PORT, "interface").update({"hw-offload": "false", **fields})
    assert found(rack, tables) == ()


@pytest.mark.parametrize(
    ("current", "upgrade", "reported"),
    [("7.20", "7.23.7", True), ("7.23.7", "7.23.7", False), (None, "7.23.7", False), ("7.20", None, False)],
)
def test_firmware_that_was_not_upgraded(
    rack: MakeRack, current: str | None, upgrade: str | None, reported: bool
) -> None:
    tables = factory()
    printed = {"current-firmware": current, "upgrade-firmware": upgrade}
    tables["/system/routerboard"][0].update({name: value for name, value in printed.items() if value})
    assert bool(found(rack, tables)) is reported
    if reported:
        assert found(rack, tables)[0].startswith("firmware of the board is 7.20, RouterOS brings 7.23.7; ")


def test_a_fault_is_reported_with_the_plan_and_is_no_change(rack: MakeRack) -> None:
    tables = factory()
    row(tables, "qsfp56-dd-1-1", PORT, "interface")["hw-offload"] = "false"
    before = plan(*rack(), reading(factory()))
    after = plan(*rack(), reading(tables))
    assert after.batches == before.batches
    assert after.notes[0].startswith("fault: port qsfp56-dd-1-1 has lost")
