"""A cable as declared against what its two ends say. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparkrack.fleet import Address, Cable, Leg, Port, Rack
from sparkrack.fleet.errors import one_line, shown
from switch.ends import End, misplaced, whereabouts
from switch.values import gbps

from .model import Edge, SeenHalf, SeenLeg, SeenLink
from .said import Device, NodeSaid, Seen, SwitchSaid


@dataclass
class _Findings:
    """Sentences: what is known to be otherwise than declared, and what could not be told."""

    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add(self, known: bool, text: str) -> None:
        (self.wrong if known else self.unknown).append(text)


_Finding = tuple[bool, str]
"""Whether it is known to be wrong, and in which words."""


def compared(rack: Rack, cable: Cable, edge: Edge, seen: Seen) -> Edge:
    """The edge of a cable with what was said of it, and where that is not as declared."""
    found = _Findings()
    halves = tuple(half for port in cable.ports for half in _port(rack, cable, port, seen, found))
    leg, behind = None, None
    if isinstance(cable.b, Leg):
        said = seen.switches.get(cable.b.switch, f"{cable.b.switch} was not asked")
        if isinstance(said, str):
            found.add(False, one_line(said))
        else:
            leg = _leg(rack, cable.b, said, found)
            behind = _place(rack, cable.b, cable.a, said, seen, found)
    there = SeenLink(halves=halves, leg=leg, behind=behind) if halves or leg else None
    return edge.model_copy(update={"seen": there, "mismatches": tuple(found.wrong), "unknown": tuple(found.unknown)})


def _port(rack: Rack, cable: Cable, port: Port, seen: Seen, found: _Findings) -> Iterator[SeenHalf]:
    said = seen.nodes.get(port.node, "was not asked")
    if isinstance(said, str):
        found.add(False, f"{port.node}: {one_line(said)}")
        return
    addresses = {address.half: address for address in rack.addresses}
    told: dict[_Finding, list[str]] = {}
    for half in port.halves:
        end, address = said.ends[half], addresses[half]
        for finding in (*_link(cable, end), *_network(rack, end, address, said)):
            told.setdefault(finding, []).append(half.interface)
        own, holder = said.devices.get(half.interface), said.devices.get(address.device)
        yield SeenHalf(
            name=str(half),
            carrier={"yes": True, "no": False}.get(end.link or ""),
            gbps=_node_gbps(end),
            mtu=own.mtu if own else None,
            addresses=tuple(map(shown, holder.addresses)) if holder else None,
        )
    for (known, text), names in told.items():
        found.add(known, f"{port.node} {' and '.join(names)}: {text}")


def _link(cable: Cable, end: End) -> Iterator[_Finding]:
    if not end.mac:
        yield True, "there is no such interface"
    elif end.link == "no":
        yield True, "no carrier"
    elif end.link != "yes":
        yield False, f"whether there is a carrier is unknown (ethtool: {shown(end.why)})"
    elif (rate := _node_gbps(end)) is None:
        yield False, "its speed is unknown"
    elif rate != cable.gbps:
        yield True, f"is at {rate:g}G, wanted {cable.gbps}G"


def _network(rack: Rack, end: End, address: Address, said: NodeSaid) -> Iterator[_Finding]:
    if not end.mac:
        return
    own, holder = end.half.interface, address.device
    for name in dict.fromkeys((own, holder)):
        device, of = said.devices.get(name), "" if name == own else f"{name}: "
        if device is None:
            yield True, f"there is no {name}"
            continue
        if device.mtu is None:
            yield False, f"{of}MTU unknown"
        elif device.mtu != rack.fabric.mtu:
            yield True, f"{of}MTU {device.mtu}, wanted {rack.fabric.mtu}"
        if name == holder:
            yield from ((True, f"{of}{text}") for text in _holder(device, address))
        elif device.addresses:
            yield True, f"has address {shown(', '.join(device.addresses))} below its VLAN, wanted none"


def _holder(device: Device, address: Address) -> Iterator[str]:
    if device.vlan != address.vlan:
        yield f"VLAN {shown(device.vlan or 'none')}, wanted {address.vlan or 'none'}"
    if device.addresses != (str(address.interface),):
        yield f"address {shown(', '.join(device.addresses) or 'none')}, wanted {address.interface}"


def _leg(rack: Rack, leg: Leg, said: SwitchSaid, found: _Findings) -> SeenLeg:
    row, settings = said.links.get(leg.interface, {}), said.ethernet.get(leg.interface, {})
    switch, name = rack.switches[leg.switch], f"leg {leg.interface}"
    status, rate = row.get("status"), gbps(row.get("rate"))
    if status in (None, "", "unknown"):
        found.add(False, f"{name}: the switch does not tell whether it is linked")
    elif status != "link-ok":
        found.add(True, f"{name}: no carrier (the switch says {shown(status)})")
    elif rate is None:
        found.add(False, f"{name}: its speed is unknown")
    elif rate != leg.gbps:
        found.add(True, f"{name} is at {rate:g}G, wanted {leg.gbps}G")
    sizes = {key: _whole(settings.get(key)) for key in ("mtu", "l2mtu")}
    for key, wanted in (("mtu", switch.mtu), ("l2mtu", switch.l2mtu)):
        if sizes[key] is None:
            found.add(False, f"{name}: {key.upper()} unknown")
        elif sizes[key] != wanted:
            found.add(True, f"{name}: {key.upper()} {sizes[key]}, wanted {wanted}")
    return SeenLeg(status=status and shown(status), gbps=rate, **sizes)


def _place(rack: Rack, leg: Leg, port: Port, said: SwitchSaid, seen: Seen, found: _Findings) -> tuple[str, ...] | None:
    """Behind which interfaces the switch hears a port; None when its node does not tell its addresses."""

    def where(other: Port) -> Mapping[str, list[str]] | None:
        node = seen.nodes.get(other.node)
        if not isinstance(node, NodeSaid):
            return None
        # Who has no carrier cannot be heard: that is said already, and is no matter of place.
        return whereabouts([node.ends[half] for half in other.halves if node.ends[half].link == "yes"], said.hosts)

    places = where(port)
    if places is None:
        return None
    for text in misplaced(rack, leg, port, places, where):
        found.add(True, one_line(text))
    return tuple(place for place in places if place)


def _node_gbps(end: End) -> float | None:
    speed = re.fullmatch(r"(\d+)Mb/s", end.speed or "", re.ASCII)
    return int(speed[1]) / 1000 if speed else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None
