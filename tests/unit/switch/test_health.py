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


def test_a_second_bridge_is_carried_by_the_cpu(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge"].append({".id": "*30", "name": "other"})
    for name in ("ether1", "ether2"):
        row(tables, name, PORT, "interface")["bridge"] = "other"
    (fault,) = found(rack, tables)
    assert fault.startswith("bridge other is a second bridge, and the chip forwards for one only (its ports: ether1, e")
    assert found(rack, tables, nodes=UNCABLED, cages={}) == (), "then the bridge is none of ours"


@pytest.mark.parametrize("disabled", ["true", "yes"])
def test_a_second_bridge_that_is_off_does_not_count(rack: MakeRack, disabled: str) -> None:
    tables = factory()
    tables["/interface/bridge"].append({".id": "*30", "name": "other", "disabled": disabled})
    assert found(rack, tables) == ()


def test_a_second_bridge_without_ports(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge"].append({".id": "*30", "name": "other"})
    assert "(it has no ports)" in found(rack, tables)[0]


@pytest.mark.parametrize("told", ["false", "no", "perhaps", None])
def test_a_leg_the_chip_does_not_forward_for(rack: MakeRack, told: str | None) -> None:
    tables = factory()
    port = row(tables, "qsfp56-dd-1-3", PORT, "interface")
    port.pop("hw-offload")
    if told:
        port["hw-offload"] = told
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
    told = {"current-firmware": current, "upgrade-firmware": upgrade}
    tables["/system/routerboard"][0].update({name: value for name, value in told.items() if value})
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
