"""/interface/bridge/vlan. Arguments: schema of RouterOS 7.23; the trap for a VLAN that is there already: field
reports. That a port cannot be tagged and untagged in one row is inferred."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import BRIDGE, ETHERNET, Device
from ..errors import failure
from ..kinds import Bool, Reference, Text
from ..menu import FULL, Field, Menu, Row, Values
from ..numbers import Ranges, numbers
from ..vlans import VLAN, current, entries

_DYNAMIC_ID = 0x80000000

FIELDS = (
    Field("bridge", Reference((BRIDGE,)), required=True),
    Field("vlan-ids", Ranges(1, 4094), required=True),
    Field("tagged", Reference((BRIDGE, ETHERNET), many=True), ""),
    Field("untagged", Reference((BRIDGE, ETHERNET), many=True), ""),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
)


def _show(device: Device, row: Row) -> Values:
    bridge = row.values["bridge"]
    mine = next((entry for entry in entries(device, bridge) if entry.row == row.id), None)
    shown = {"dynamic": "false", "current-tagged": "", "current-untagged": ""}
    if mine is not None:
        shown["current-tagged"] = current(device, bridge, mine.tagged)
        shown["current-untagged"] = current(device, bridge, mine.untagged)
    return shown


def _dynamic(device: Device) -> Iterator[Values]:
    """VLANs that only PVIDs bring, in each bridge; the ids of their rows are inferred."""
    for bridge in device.store.rows(BRIDGE):
        name = bridge.values["name"]
        for entry in entries(device, name):
            if entry.row is None:
                (number,) = entry.ids
                yield {
                    ".id": f"*{_DYNAMIC_ID + (bridge.id << 12) + number:X}",
                    "bridge": name,
                    "vlan-ids": str(number),
                    "tagged": "",
                    "untagged": "",
                    "current-tagged": "",
                    "current-untagged": current(device, name, entry.untagged),
                    "disabled": "false",
                    "dynamic": "true",
                }


def _check(device: Device, row: Row, _old: Row | None) -> None:
    both = {name: set(row.values[name].split(",")) - {""} for name in ("tagged", "untagged")}
    if both["tagged"] & both["untagged"]:
        raise failure("interface can not be in tagged and untagged at the same time")
    mine = set(numbers(row.values["vlan-ids"]))
    for other in device.store.rows(VLAN):
        same = other.id != row.id and other.values["bridge"] == row.values["bridge"]
        if same and mine & set(numbers(other.values["vlan-ids"])):
            raise failure("vlan already added")


BRIDGE_VLAN = Menu(
    VLAN,
    FIELDS,
    verbs=FULL | {"listen"},
    show=_show,
    dynamic=_dynamic,
    check=_check,
)
