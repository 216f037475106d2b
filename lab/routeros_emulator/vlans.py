"""VLANs of each interface in a bridge, by its table and by the PVIDs of its ports.

Source: MikroTik manual, 'Bridging and switching', 'Bridge VLAN table': a port is untagged in the VLAN of its PVID
unless the table has it tagged there; a VLAN that comes only from PVIDs is a dynamic row. Inferred: a port that admits
only tagged frames adds no VLAN, and the current state is shown for running interfaces.

The bridge of a Linux machine may lack the filter, so a node's own kernel does the filtering of the switch's port: it
gets the VLANs of its leg.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.routeros_emulator.menu import Values
from lab.routeros_emulator.numbers import numbers

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice

BRIDGE, PORT, VLAN = "/interface/bridge", "/interface/bridge/port", "/interface/bridge/vlan"


@dataclass(frozen=True)
class VlanEntry:
    """One row of the table as it is in force; ``row`` is the id of the stored row, None for a dynamic one."""

    row: int | None
    ids: frozenset[int]
    tagged: tuple[str, ...]
    untagged: tuple[str, ...]


@dataclass(frozen=True)
class Membership:
    """VLANs of one port of a filtering bridge; ``pvid`` is None if it accepts no untagged frames."""

    pvid: int | None
    tagged: tuple[int, ...]
    untagged: tuple[int, ...]

    def as_json(self) -> dict[str, object]:
        """Form of a node's state file."""
        return {"pvid": self.pvid, "tagged": list(self.tagged), "untagged": list(self.untagged)}


def membership(device: EmulatedDevice, name: str) -> Membership | None:
    """Return the VLANs of an interface, by its present name; None if it is in no bridge or that bridge does
    not filter.
    """
    port = device.membership(name)
    if port is None or not filters(device, port.values["bridge"]):
        return None
    found, name = entries(device, port.values["bridge"]), port.values["interface"]
    return Membership(
        int(port.values["pvid"]) if _admits_untagged(port.values) else None,
        tuple(sorted(number for entry in found if name in entry.tagged for number in entry.ids)),
        tuple(sorted(number for entry in found if name in entry.untagged for number in entry.ids)),
    )


def filters(device: EmulatedDevice, bridge: str) -> bool:
    """Return whether a bridge filters by VLAN."""
    found = device.store.find(BRIDGE, bridge)
    return found is not None and found.values["vlan-filtering"] == "true"


def entries(device: EmulatedDevice, bridge: str) -> list[VlanEntry]:
    """Return the effective table of a bridge, static rows first; nothing while the bridge does not filter."""
    if not filters(device, bridge):
        return []
    wanted = _list_pvids(device, bridge)
    found: list[VlanEntry] = []
    for row in device.store.rows(VLAN):
        if row.values["bridge"] != bridge or row.values["disabled"] == "true":
            continue
        ids, tagged = frozenset(numbers(row.values["vlan-ids"])), _split_names(row.values.get("tagged", ""))
        untagged = _split_names(row.values.get("untagged", ""))
        by_pvid = [name for name, pvid in wanted.items() if pvid in ids and name not in tagged + untagged]
        found.append(VlanEntry(row.id, ids, tagged, (*untagged, *by_pvid)))
    static = frozenset[int]().union(*(entry.ids for entry in found))
    for number in sorted(set(wanted.values()) - static):
        members = tuple(name for name, pvid in wanted.items() if pvid == number)
        found.append(VlanEntry(None, frozenset({number}), (), members))
    return found


def current(device: EmulatedDevice, bridge: str, names: Iterable[str]) -> str:
    """The comma list of those names that take part now: the bridge itself, and its ports that run."""
    return ",".join(name for name in names if name == bridge or _is_running_port(device, bridge, name))


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _list_pvids(device: EmulatedDevice, bridge: str) -> dict[str, int]:
    """The PVID of the bridge itself and of each of its ports that admits untagged frames."""
    own = device.store.find(BRIDGE, bridge)
    ports = [row.values for row in device.store.rows(PORT) if row.values["bridge"] == bridge]
    rows = [(bridge, own.values)] if own else []
    rows += [(port["interface"], port) for port in ports if port["disabled"] == "false"]
    return {name: int(values["pvid"]) for name, values in rows if _admits_untagged(values)}


def _admits_untagged(values: Values) -> bool:
    return values["frame-types"] != "admit-only-vlan-tagged"


def _is_running_port(device: EmulatedDevice, bridge: str, name: str) -> bool:
    member = device.membership(name)
    if member is None or member.values["bridge"] != bridge or member.values["disabled"] == "true":
        return False
    return device.runs(name)
