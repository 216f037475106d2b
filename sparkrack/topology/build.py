"""Build the topology from a rack and the observations. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from core.model import Cable, CageSpec, Leg, Port, Rack, Switch, addresses_of
from core.model.cable_resolver import declared_legs
from sparkrack.topology.compare import compared
from sparkrack.topology.model import CageBox, DesiredLink, Edge, HalfBox, LegBox, NodeBox, PortBox, SwitchBox, Topology
from sparkrack.topology.observed import Observations


def draw(rack: Rack, seen: Observations | None = None, limit: Collection[str] = ()) -> Topology:
    """Build the topology of a rack; with `seen`, each link is compared with the observations.

    `limit` names nodes and switches: then only they are drawn, with their cables and the other ends.
    """
    cables = picked(rack, limit)
    edges = [_declared_edge(rack, cable) for cable in cables]
    if seen is not None:
        edges = [compared(rack, cable, edge, seen) for cable, edge in zip(cables, edges, strict=True)]
    return Topology(
        rack=rack.rack,
        topology=rack.topology,
        compared=seen is not None,
        nodes=tuple(_node_boxes(rack, cables, limit)),
        switches=tuple(_build_switch_boxes(rack, cables, limit)),
        edges=tuple(edges),
    )


def picked(rack: Rack, limit: Collection[str] = ()) -> tuple[Cable, ...]:
    """The cables with an end at a machine that `limit` names; all of them when it names none."""
    return tuple(cable for cable in rack.cabling.cables if not limit or _machines_of_cable(cable) & set(limit))


def _machines_of_cable(cable: Cable) -> set[str]:
    return {port.node for port in cable.ports} | ({cable.b.switch} if isinstance(cable.b, Leg) else set())


def _declared_edge(rack: Rack, cable: Cable) -> Edge:
    lanes = cable.b.lanes if isinstance(cable.b, Leg) else ()
    wanted = DesiredLink(gbps=cable.gbps, lanes=lanes, mtu=rack.fabric.mtu)
    return Edge(a=str(cable.a), b=str(cable.b), wanted=wanted)


def _node_boxes(rack: Rack, cables: Sequence[Cable], limit: Collection[str]) -> Iterator[NodeBox]:
    ends = {port for cable in cables for port in cable.ports}
    there = {port.node for port in ends}
    for node in rack.nodes.values():
        if not limit or node.name in limit or node.name in there:
            ports = tuple(_port_box(rack, port) for port in rack.cabling.ports_of(node.name) if port in ends)
            yield NodeBox(name=node.name, address=str(node.address), vendor=node.vendor, ports=ports)


def _port_box(rack: Rack, port: Port) -> PortBox:
    halves = tuple(
        HalfBox(
            interface=address.half.interface,
            device=address.device,
            address=str(address.interface),
            vlan=address.vlan,
        )
        for address in addresses_of(rack, port.node)
        if address.half in port.halves
    )
    return PortBox(name=str(port), number=port.number, halves=halves)


def _build_switch_boxes(rack: Rack, cables: Sequence[Cable], limit: Collection[str]) -> Iterator[SwitchBox]:
    used = {(cable.b.switch, cable.b.cage) for cable in cables if isinstance(cable.b, Leg)}
    for switch in rack.switches.values():
        cages = tuple(
            _cage_box(rack, switch, cage)
            for cage in switch.cages.values()
            if not limit or switch.name in limit or (switch.name, cage.name) in used
        )
        if not limit or switch.name in limit or cages:
            yield SwitchBox(
                name=switch.name, address=str(switch.address), mtu=switch.mtu, l2mtu=switch.l2mtu, cages=cages
            )


def _cage_box(rack: Rack, switch: Switch, cage: CageSpec) -> CageBox:
    legs = []
    for leg in declared_legs(switch, cage):
        port = rack.cabling.port_at(leg.interface, switch.name)
        legs.append(
            LegBox(
                name=str(leg),
                interface=leg.interface,
                lanes=leg.lanes,
                gbps=leg.gbps,
                port=str(port) if port else None,
            )
        )
    return CageBox(name=cage.name, split=cage.split, medium=cage.medium, legs=tuple(legs))
