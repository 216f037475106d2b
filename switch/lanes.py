"""Changes of interfaces as batches: the sizes of all at once, then cage after cage, each the canary of the
next. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkrack.fleet.splits import CAGES

from .batch import Batch, Link
from .cages import describe, lanes_of
from .diff import Change
from .offload import rebinds
from .reading import Reading

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch

Words = Callable[[str], str]
"""What a cage shall be, in the user's words."""


def units(reading: Reading) -> dict[str, tuple[str, ...]]:
    """What a write restarts as a whole, by name: the cages with their lanes, and every port outside of one."""
    cages = {cage: lanes_of(cage) for cage in CAGES}
    caged = {lane for lanes in cages.values() for lane in lanes}
    return {**cages, **{name: (name,) for name in reading.ethernet if name not in caged}}


def batches(
    lanes: Mapping[str, tuple[Change, ...]], reading: Reading, links: tuple[Link, ...], words: Words
) -> tuple[Batch, ...]:
    """The batches that carry out the changes of each unit, `lanes`, in the order of its units. `links` are those
    that shall be up afterwards."""
    known = units(reading)
    order = [name for unit in lanes for name in known[unit]]
    sizes = tuple(change for changes in lanes.values() for change in _only(changes, sizes=True))
    sizes = tuple(sorted(sizes, key=lambda change: order.index(change.row)))
    rest = {unit: left for unit, changes in lanes.items() if (left := tuple(_only(changes, sizes=False)))}
    return (
        *_sizes(sizes, reading, tuple(link for link in links if link.leg.cage not in rest)),
        *(_unit(unit, changes, reading, links, words) for unit, changes in rest.items()),
    )


def cabled(rack: Rack, switch: Switch, reading: Reading) -> tuple[Link, ...]:
    """Every leg of a switch that a node is cabled to."""
    found = []
    for leg, port in rack.cabling.legs(switch.name):
        row = reading.ethernet[leg.interface]
        found.append(Link(row[".id"], row["name"], leg, port))
    return tuple(found)


def nodes(links: Iterable[Link]) -> str:
    """The nodes behind some links, for people."""
    return ", ".join(dict.fromkeys(link.port.node for link in links)) or "no node"


def _only(changes: Iterable[Change], *, sizes: bool) -> Iterator[Change]:
    """Part a lane's change in two. A row whose l2mtu changes takes its mtu along in the same write: mtu may
    never exceed l2mtu, whichever way they move."""
    for change in changes:
        names = {field.name for field in change.fields}
        early = {"l2mtu", "mtu"} if "l2mtu" in names else set()
        fields = tuple(field for field in change.fields if (field.name in early) == sizes)
        if fields:
            yield replace(change, fields=fields)


def _sizes(changes: tuple[Change, ...], reading: Reading, settles: tuple[Link, ...]) -> Iterator[Batch]:
    if changes:
        # MikroTik manual, 'MTU in RouterOS': changing l2mtu takes all interfaces of the switch down and up.
        effect = f"bounces all {len(reading.ethernet)} ports"
        title = f"l2mtu of {len(changes)} lane{'s' if len(changes) != 1 else ''}"
        yield Batch(title, effect, changes, settles, rebinds(reading, settles))


def _unit(unit: str, changes: tuple[Change, ...], reading: Reading, links: tuple[Link, ...], words: Words) -> Batch:
    if unit not in CAGES:
        return Batch(f"port {unit}", f"restarts port {unit}", changes)
    names = {change.row: str(field.new) for change in changes for field in change.fields if field.name == "name"}
    mine = (link for link in links if link.leg.cage == unit)
    # A link is looked up by its name, which this very batch may change.
    settles = tuple(replace(link, name=names.get(link.leg.interface, link.name)) for link in mine)
    found, wanted = describe(unit, reading.ethernet), words(unit)
    told = f"lanes of {wanted}" if found == wanted else f"{found} -> {wanted}"
    # MikroTik manual, 'Wired interface compatibility': reconfiguring any lane restarts the whole cage.
    effect = f"restarts cage {unit} ({nodes(settles)})"
    return Batch(f"cage {unit}, {told}", effect, changes, settles, rebinds(reading, settles))
