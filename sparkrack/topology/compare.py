"""Comparison of a declared cable with the observations of its two ends. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from core.model import Address, Cable, Leg, Port, Rack
from core.model.errors import printable_line, truncate
from core.routeros.values import gbps
from sparkrack.topology.model import Edge, SeenHalf, SeenLeg, SeenLink
from sparkrack.topology.observed import NodeObservation, Observations, ObservedDevice, SwitchObservation
from switch.link_ends import LinkEnd, mac_locations, miscabled


@dataclass
class _CableFindings:
    """Messages: differences from the declaration, and unknown values."""

    wrong: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add(self, known: bool, text: str) -> None:
        (self.wrong if known else self.unknown).append(text)


_Finding = tuple[bool, str]
"""Whether it is a known difference, and its text."""


def compared(rack: Rack, cable: Cable, edge: Edge, seen: Observations) -> Edge:
    """Return the edge of a cable with its observations, and their differences from the declaration."""
    found = _CableFindings()
    halves = tuple(half for port in cable.ports for half in _compare_port(rack, cable, port, seen, found))
    leg, behind = None, None
    if isinstance(cable.b, Leg):
        reported = seen.switches.get(cable.b.switch, f"{cable.b.switch} was not asked")
        if isinstance(reported, str):
            found.add(False, printable_line(reported))
        else:
            leg = _compare_leg(rack, cable.b, reported, found)
            behind = _learned_interfaces(rack, cable.b, cable.a, reported, seen, found)
    there = SeenLink(halves=halves, leg=leg, behind=behind) if halves or leg else None
    return edge.model_copy(update={"seen": there, "mismatches": tuple(found.wrong), "unknown": tuple(found.unknown)})


def _compare_port(
    rack: Rack, cable: Cable, port: Port, seen: Observations, found: _CableFindings
) -> Iterator[SeenHalf]:
    reported = seen.nodes.get(port.node, "was not asked")
    if isinstance(reported, str):
        found.add(False, f"{port.node}: {printable_line(reported)}")
        return
    addresses = {address.half: address for address in rack.addresses}
    findings: dict[_Finding, list[str]] = {}
    for half in port.halves:
        end, address = reported.ends[half], addresses[half]
        for finding in (*_link_findings(cable, end), *_network_findings(rack, end, address, reported)):
            findings.setdefault(finding, []).append(half.interface)
        own, holder = reported.devices.get(half.interface), reported.devices.get(address.device)
        yield SeenHalf(
            name=str(half),
            carrier=end.report.carrier,
            gbps=_node_gbps(end),
            mtu=own.mtu if own else None,
            addresses=tuple(map(truncate, holder.addresses)) if holder else None,
        )
    for (known, text), names in findings.items():
        found.add(known, f"{port.node} {' and '.join(names)}: {text}")


def _link_findings(cable: Cable, end: LinkEnd) -> Iterator[_Finding]:
    if not end.mac:
        yield True, "there is no such interface"
    elif end.link == "no":
        yield True, "no carrier"
    elif end.link != "yes":
        yield False, f"whether there is a carrier is unknown (ethtool: {truncate(end.why)})"
    elif (rate := _node_gbps(end)) is None:
        yield False, "its speed is unknown"
    elif rate != cable.gbps:
        yield True, f"is at {rate:g}G, wanted {cable.gbps}G"


def _network_findings(rack: Rack, end: LinkEnd, address: Address, reported: NodeObservation) -> Iterator[_Finding]:
    if not end.mac:
        return
    own, holder = end.half.interface, address.device
    for name in dict.fromkeys((own, holder)):
        device, of = reported.devices.get(name), "" if name == own else f"{name}: "
        if device is None:
            yield True, f"there is no {name}"
            continue
        if device.mtu is None:
            yield False, f"{of}MTU unknown"
        elif device.mtu != rack.fabric.mtu:
            yield True, f"{of}MTU {device.mtu}, wanted {rack.fabric.mtu}"
        if name == holder:
            yield from ((True, f"{of}{text}") for text in _address_findings(device, address))
        elif device.addresses:
            yield True, f"has address {truncate(', '.join(device.addresses))} below its VLAN, wanted none"


def _address_findings(device: ObservedDevice, address: Address) -> Iterator[str]:
    if device.vlan != address.vlan:
        yield f"VLAN {truncate(device.vlan or 'none')}, wanted {address.vlan or 'none'}"
    if device.addresses != (str(address.interface),):
        yield f"address {truncate(', '.join(device.addresses) or 'none')}, wanted {address.interface}"


def _compare_leg(rack: Rack, leg: Leg, reported: SwitchObservation, found: _CableFindings) -> SeenLeg:
    row, settings = reported.links.get(leg.interface, {}), reported.ethernet.get(leg.interface, {})
    switch, name = rack.switches[leg.switch], f"leg {leg.interface}"
    status, rate = row.get("status"), gbps(row.get("rate"))
    if status in (None, "", "unknown"):
        found.add(False, f"{name}: the switch does not report whether it is linked")
    elif status != "link-ok":
        found.add(True, f"{name}: no carrier (the switch reports {truncate(status)})")
    elif rate is None:
        found.add(False, f"{name}: its speed is unknown")
    elif rate != leg.gbps:
        found.add(True, f"{name} is at {rate:g}G, wanted {leg.gbps}G")
    sizes = {key: _whole_number(settings.get(key)) for key in ("mtu", "l2mtu")}
    for key, wanted in (("mtu", switch.mtu), ("l2mtu", switch.l2mtu)):
        if sizes[key] is None:
            found.add(False, f"{name}: {key.upper()} unknown")
        elif sizes[key] != wanted:
            found.add(True, f"{name}: {key.upper()} {sizes[key]}, wanted {wanted}")
    return SeenLeg(status=status and truncate(status), gbps=rate, **sizes)


def _learned_interfaces(
    rack: Rack, leg: Leg, port: Port, reported: SwitchObservation, seen: Observations, found: _CableFindings
) -> tuple[str, ...] | None:
    """Return the interfaces on which the switch learned a port; None when its node does not report its addresses."""

    def where(other: Port) -> Mapping[str, list[str]] | None:
        node = seen.nodes.get(other.node)
        if not isinstance(node, NodeObservation):
            return None
        # Without a carrier the switch learns no address: that is reported already, and is not a wrong leg.
        return mac_locations(
            [node.ends[half] for half in other.halves if node.ends[half].link == "yes"], reported.hosts
        )

    places = where(port)
    if places is None:
        return None
    for text in miscabled(rack, leg, port, places, where):
        found.add(True, printable_line(text))
    return tuple(place for place in places if place)


def _node_gbps(end: LinkEnd) -> float | None:
    return None if end.report.mbps is None else end.report.mbps / 1000


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() else None
