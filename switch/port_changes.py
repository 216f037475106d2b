"""Changes of interfaces as batches: the sizes of all at once, then cage after cage, each the canary of the
next. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from core.routeros.change_plan import AffectedLink, ChangeBatch
from core.routeros.diff import RowChange
from core.routeros.menus import BRIDGE_VLAN
from core.routeros.reading import SwitchReading
from switch.cages import describe, lanes_of
from switch.offload import rebinds

if TYPE_CHECKING:
    from core.hardware.switch_model import SwitchModel
    from core.model import Rack, Switch

Words = Callable[[str], str]
"""The desired configuration of a cage, in the user's words."""


def units(hardware: SwitchModel, reading: SwitchReading) -> dict[str, tuple[str, ...]]:
    """Return the units that a write restarts as a whole, by name: the cages with their lanes, and every port outside of
    one.
    """
    cages = {cage: lanes_of(cage) for cage in hardware.cages}
    caged = {lane for lanes in cages.values() for lane in lanes}
    return {**cages, **{name: (name,) for name in reading.ethernet if name not in caged}}


def batches(
    hardware: SwitchModel,
    lanes: Mapping[str, tuple[RowChange, ...]],
    reading: SwitchReading,
    links: tuple[AffectedLink, ...],
    words: Words,
) -> tuple[ChangeBatch, ...]:
    """Return the batches that make the changes of each unit, `lanes`, in the order of its units. `links` are those that
    must be up afterwards.
    """
    known = units(hardware, reading)
    order = [name for unit in lanes for name in known[unit]]
    sizes = tuple(change for changes in lanes.values() for change in _split_change(changes, sizes=True))
    sizes = tuple(sorted(sizes, key=lambda change: order.index(change.row)))
    rest = {unit: left for unit, changes in lanes.items() if (left := tuple(_split_change(changes, sizes=False)))}
    return (
        *_size_batches(sizes, reading, tuple(link for link in links if link.leg.cage not in rest)),
        *(
            _cage_batch(unit, changes, reading, links, words)
            if unit in hardware.cages
            else ChangeBatch(f"port {unit}", f"restarts port {unit}", changes)
            for unit, changes in rest.items()
        ),
    )


def cabled(rack: Rack, switch: Switch, reading: SwitchReading) -> tuple[AffectedLink, ...]:
    """Every leg of a switch that a node is cabled to."""
    found = []
    for leg, port in rack.cabling.legs(switch.name):
        row = reading.ethernet[leg.interface]
        found.append(AffectedLink(row[".id"], row["name"], leg, port))
    return tuple(found)


def nodes(links: Iterable[AffectedLink]) -> str:
    """The nodes behind some links, for people."""
    return ", ".join(dict.fromkeys(link.port.node for link in links)) or "no node"


def _split_change(changes: Iterable[RowChange], *, sizes: bool) -> Iterator[RowChange]:
    """Part a lane's change in two. A row whose l2mtu changes takes its mtu along in the same write: mtu may
    never exceed l2mtu, whichever way they move."""
    for change in changes:
        names = {field.name for field in change.fields}
        early = {"l2mtu", "mtu"} if "l2mtu" in names else set()
        fields = tuple(field for field in change.fields if (field.name in early) == sizes)
        if fields:
            yield replace(change, fields=fields)


def _size_batches(
    changes: tuple[RowChange, ...], reading: SwitchReading, settles: tuple[AffectedLink, ...]
) -> Iterator[ChangeBatch]:
    if changes:
        # MikroTik manual, 'MTU in RouterOS': changing l2mtu takes all interfaces of the switch down and up.
        effect = f"bounces all {len(reading.ethernet)} ports"
        title = f"l2mtu of {len(changes)} lane{'s' if len(changes) != 1 else ''}"
        yield ChangeBatch(title, effect, changes, settles, rebinds(reading, _lane_names(settles)))


def _cage_batch(
    cage: str, changes: tuple[RowChange, ...], reading: SwitchReading, links: tuple[AffectedLink, ...], words: Words
) -> ChangeBatch:
    names = {change.row: str(field.new) for change in changes for field in change.fields if field.name == "name"}
    own = (link for link in links if link.leg.cage == cage)
    # A link is looked up by its name, which this very batch may change.
    settles = tuple(replace(link, name=names.get(link.leg.interface, link.name)) for link in own)
    found, wanted = describe(cage, reading.ethernet), words(cage)
    lanes = f"lanes of {wanted}" if found == wanted else f"{found} -> {wanted}"
    # MikroTik manual, 'Wired interface compatibility': reconfiguring any lane restarts the whole cage.
    effect = f"restarts cage {cage} ({nodes(settles)})"
    return ChangeBatch(f"cage {cage}, {lanes}", effect, changes, settles, rebinds(reading, _lane_names(settles)))


def _lane_names(links: Iterable[AffectedLink]) -> tuple[str, ...]:
    return tuple(link.leg.interface for link in links)


_PORT_LISTS = ("tagged", "untagged")
_UNLISTABLE = re.compile(r"[,;]|^[!*]")
"""What separates the values of a list, excludes one, or begins an id in its place."""


def unlistable_names(changes: Iterable[RowChange], reading: SwitchReading) -> Iterator[str]:
    """Interfaces in a list of a VLAN whose name a list cannot hold: RouterOS would read another name, or two."""
    lists = [
        f",{field.new}," for c in changes if c.menu is BRIDGE_VLAN for field in c.fields if field.name in _PORT_LISTS
    ]
    for default, row in reading.ethernet.items():
        name = row["name"]
        if _UNLISTABLE.search(name) and any(f",{name}," in ports for ports in lists):
            yield (
                f"{default} is named {name!r} on the switch, and the ports of a VLAN are a list, which cannot hold "
                f"that name: rename it (/interface/ethernet/set [find default-name={default}] name={default})"
            )
