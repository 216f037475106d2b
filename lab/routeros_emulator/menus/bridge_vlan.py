"""/interface/bridge/vlan. Arguments: schema of RouterOS 7.23; the trap for a VLAN that is there already: field
reports. That a port cannot be tagged and untagged in one row is inferred."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Reference, Text
from lab.routeros_emulator.device import BONDING, BRIDGE, ETHERNET, EmulatedDevice
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.numbers import Ranges, numbers
from lab.routeros_emulator.vlans import VLAN, current, entries, filters

_DYNAMIC_ID = 0x80000000
#: First release that warns of VLANs that have no effect (release notes of 7.25beta5).
_WARNS = (7, 25)

FIELDS = (
    EmulatedField("bridge", Reference((BRIDGE,)), required=True),
    EmulatedField("vlan-ids", Ranges(1, 4094), required=True),
    EmulatedField("tagged", Reference((BRIDGE, ETHERNET, BONDING), many=True), ""),
    EmulatedField("untagged", Reference((BRIDGE, ETHERNET, BONDING), many=True), ""),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
)


def _show_row(device: EmulatedDevice, row: EmulatedRow) -> Values:
    bridge = row.values["bridge"]
    mine = next((entry for entry in entries(device, bridge) if entry.row == row.id), None)
    shown = {"dynamic": "false", "current-tagged": "", "current-untagged": ""}
    if mine is not None:
        shown["current-tagged"] = current(device, bridge, mine.tagged)
        shown["current-untagged"] = current(device, bridge, mine.untagged)
    return shown


def _list_dynamic_vlans(device: EmulatedDevice) -> Iterator[Values]:
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


def _check_row(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    both = {name: set(row.values[name].split(",")) - {""} for name in ("tagged", "untagged")}
    if both["tagged"] & both["untagged"]:
        raise failure("interface can not be in tagged and untagged at the same time")
    bridge, ids = row.values["bridge"], row.values["vlan-ids"]
    if device.version >= _WARNS and not filters(device, bridge):
        device.tell("bridge,warning", f"VLAN {ids} has no effect: vlan-filtering of {bridge} is disabled")
    mine = set(numbers(row.values["vlan-ids"]))
    for other in device.store.rows(VLAN):
        same = other.id != row.id and other.values["bridge"] == row.values["bridge"]
        if same and mine & set(numbers(other.values["vlan-ids"])):
            raise failure("vlan already added")


BRIDGE_VLAN = EmulatedMenu(
    VLAN,
    FIELDS,
    verbs=FULL,
    show=_show_row,
    dynamic=_list_dynamic_vlans,
    check=_check_row,
)
