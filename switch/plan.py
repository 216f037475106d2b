"""What a run would do to a switch, in which order, and whom it would disturb. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .cages import describe, lanes_of, masters_of, wanted_lanes
from .diff import Change, Wanted, diff
from .gate import refusals
from .menus import BRIDGE_PORT, ETHERNET, IDENTITY
from .reading import Reading

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch
    from sparkrack.fleet.cabling import Leg, Port

MOST_WRITES = 80
"""Rows written in one go. The switch's history holds 100 actions, and beyond that safe mode ends without a
word and undoes nothing (MikroTik manual, 'Configuration management'); the rest is left for what else a
session may do."""


class RefusedError(ValueError):
    """This switch must not be changed; `reasons` say why, one line each."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(reasons))


@dataclass(frozen=True)
class Link:
    """A cabled leg: the switch's interface (its .id and its name of the day) and the port of a node behind
    it."""

    id: str
    name: str
    leg: Leg
    port: Port


@dataclass(frozen=True)
class Batch:
    """Changes that are written one after the other, what they disturb, and the links that are up when they
    settled."""

    title: str
    effect: str
    changes: tuple[Change, ...]
    settles: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Everything that differs, as batches in the order they are written; () = the switch is as declared."""

    batches: tuple[Batch, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for batch in self.batches for change in batch.changes)

    @property
    def effects(self) -> tuple[str, ...]:
        """One line a batch: what is changed and whom it disturbs."""
        return tuple(f"{batch.title}: {batch.effect}" for batch in self.batches)

    @property
    def lines(self) -> tuple[str, ...]:
        """The effects, below each the rows it changes with old and new value of each field."""
        return tuple(line for batch in self.batches for line in _lines(batch))

    def portions(self, most: int) -> tuple[tuple[Batch, ...], ...]:
        """The batches dealt into transactions of at most `most` rows, never cutting a batch."""
        portions: list[list[Batch]] = []
        for batch in self.batches:
            size = sum(len(done.changes) for done in portions[-1]) if portions else 0
            if portions and size + len(batch.changes) <= most:
                portions[-1].append(batch)
            else:
                portions.append([batch])
        return tuple(tuple(portion) for portion in portions)


def plan(rack: Rack, switch: Switch, reading: Reading) -> Plan:
    """Compare a switch with its declaration. Raises RefusedError if it is not the switch that is meant or may
    not be changed, UnreadableError if what was read cannot be compared."""
    reasons = refusals(switch, reading)
    if reasons:
        raise RefusedError(reasons)
    rows = tuple(reading.ethernet.values())
    lanes = {cage: diff(ETHERNET, wanted_lanes(switch, cage), rows) for cage in switch.cages}
    order = [name for cage in switch.cages for name in lanes_of(cage)]
    sizes = tuple(change for cage in lanes.values() for change in _only(cage, sizes=True))
    sizes = tuple(sorted(sizes, key=lambda change: order.index(change.row)))
    cages = {cage: rest for cage, all_ in lanes.items() if (rest := tuple(_only(all_, sizes=False)))}
    links = _links(rack, switch, reading)
    batches = [
        *_sizes(sizes, reading, tuple(link for link in links if link.leg.cage not in cages)),
        *(_cage(switch, reading, cage, changes, links) for cage, changes in cages.items()),
        *_ports(switch, reading, links),
        *_identity(switch, reading),
    ]
    return Plan(tuple(batches))


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
        yield Batch(f"l2mtu of {_count(len(changes), 'lane')}", effect, changes, settles)


def _cage(switch: Switch, reading: Reading, cage: str, changes: tuple[Change, ...], links: tuple[Link, ...]) -> Batch:
    settles = tuple(link for link in links if link.leg.cage == cage)
    found, wanted = (
        describe(cage, reading.ethernet),
        f"{switch.cages[cage].split} {switch.cages[cage].medium}",
    )
    words = f"lanes of {wanted}" if found == wanted else f"{found} -> {wanted}"
    # MikroTik manual, 'Wired interface compatibility': reconfiguring any lane restarts the whole cage.
    return Batch(f"cage {cage}, {words}", f"restarts cage {cage} ({_nodes(settles)})", changes, settles)


def _ports(switch: Switch, reading: Reading, links: tuple[Link, ...]) -> Iterator[Batch]:
    masters = [reading.ethernet[name]["name"] for cage in switch.cages for name in masters_of(switch, cage)]
    wanted = (Wanted(name, {"bridge": switch.bridge, "disabled": "no"}) for name in masters)
    changes = diff(BRIDGE_PORT, wanted, tuple(reading.ports.values()))
    if changes:
        names = {change.row for change in changes}
        touched = tuple(link for link in links if link.name in names)
        effect = f"interrupts {_count(len(changes), 'port')} ({_nodes(touched)})"
        yield Batch(f"{_count(len(changes), 'port')} of bridge {switch.bridge}", effect, changes)


def _identity(switch: Switch, reading: Reading) -> Iterator[Batch]:
    if switch.identity is None:
        return
    changes = diff(IDENTITY, (Wanted("", {"name": switch.identity}),), (reading.identity,))
    if changes:
        yield Batch("identity", "disturbs nothing", changes)


def _links(rack: Rack, switch: Switch, reading: Reading) -> tuple[Link, ...]:
    found = []
    for leg, port in rack.cabling.legs(switch.name):
        row = reading.ethernet[leg.interface]
        found.append(Link(row[".id"], row["name"], leg, port))
    return tuple(found)


def _nodes(links: Iterable[Link]) -> str:
    return ", ".join(dict.fromkeys(link.port.node for link in links)) or "no node"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _lines(batch: Batch) -> Iterator[str]:
    yield f"{batch.title}: {batch.effect}"
    for change in batch.changes:
        fields = ", ".join(f"{f.name} {'(none)' if f.old is None else f.old} -> {f.new}" for f in change.fields)
        yield f"  {'+' if change.adds else '~'} {change.menu.path} {change.row}".rstrip() + f": {fields}"
