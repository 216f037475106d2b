"""Inference of the cables from the addresses that both ends learn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from core.model import Half, Port
from core.model.errors import truncate
from sparkrack.discovery.node_facts import HalfFacts, NodeFacts
from sparkrack.discovery.switch_facts import SwitchFacts


@dataclass(frozen=True)
class Cabled:
    """Where the cable of a port ends, as rack.yaml writes it, and the reason."""

    end: str
    why: str


@dataclass(frozen=True)
class Cables:
    """The cables that were found by port, and for each port that holds one whose end is not clear: why."""

    found: Mapping[Port, Cabled]
    unclear: Mapping[Port, str]


def infer(nodes: Iterable[NodeFacts], switches: Iterable[SwitchFacts], *, switched: bool) -> Cables:
    """The cables of nodes and switches. A port is on a leg when a switch hears one of its addresses there, or knows it
    as a neighbour there; on another node when no switch is named, and those two alone share its subnets."""
    ports = {port: halves for node in nodes for port, halves in _linked_ports(node).items()}
    seen = tuple(switches)
    found: dict[Port, Cabled] = {}
    unclear: dict[Port, str] = {}
    for port, halves in ports.items():
        ends = dict(_legs_of_macs(halves.values(), seen))
        if len(ends) == 1:
            ((end, why),) = ends.items()
            found[port] = Cabled(end, why)
        elif ends:
            unclear[port] = f"was learned at several places: {', '.join(map(truncate, ends))}"
    taken: dict[str, list[Port]] = {}
    for port, cabled in found.items():
        taken.setdefault(cabled.end, []).append(port)
    for end, there in taken.items():
        for port in there if len(there) > 1 else ():
            del found[port]
            unclear[port] = (
                f"was learned at {truncate(end)}, and so was {', '.join(str(one) for one in there if one != port)}"
            )
    if not switched:  # behind a switch two nodes share their subnets, too
        _infer_cables_between_nodes(ports, found, unclear)
    return Cables(found, unclear)


def without_uplinks(nodes: Iterable[NodeFacts], switches: Iterable[SwitchFacts]) -> tuple[SwitchFacts, ...]:
    """The switches with `uplinks`: the interfaces that lead to another of them, and nothing that is heard there, since
    the nodes behind it are on the other one. Such an interface has the other switch as a neighbour, by its identity, or
    hears several nodes of which the other hears one."""
    seen = tuple(switches)
    owner = {facts.mac: node.name for node in nodes for facts in node.halves.values() if facts.mac}
    heard = {switch.name: {owner[mac] for mac in switch.hosts if mac in owner} for switch in seen}
    found = []
    for switch in seen:
        others = [other for other in seen if other.name != switch.name]
        identities = {other.identity: other.name for other in others if other.identity}
        links = {one.interface: identities[one.identity] for one in switch.neighbours if one.identity in identities}
        behind: dict[str, set[str]] = {}
        for mac, place in switch.hosts.items():
            if mac in owner:
                behind.setdefault(place, set()).add(owner[mac])
        for place, names in behind.items():
            there = [other.name for other in others if names & heard[other.name]]
            if len(names) > 1 and there:
                links.setdefault(place, there[0])
        found.append(
            replace(
                switch,
                hosts={mac: place for mac, place in switch.hosts.items() if place not in links},
                neighbours=tuple(one for one in switch.neighbours if one.interface not in links),
                uplinks=links,
            )
        )
    return tuple(found)


def _linked_ports(node: NodeFacts) -> dict[Port, dict[Half, HalfFacts]]:
    found: dict[Port, dict[Half, HalfFacts]] = {}
    for half, facts in node.halves.items():
        found.setdefault(Port(node.name, half.port), {})[half] = facts
    return found


def _legs_of_macs(halves: Iterable[HalfFacts], switches: Iterable[SwitchFacts]) -> Iterator[tuple[str, str]]:
    macs = [facts.mac for facts in halves if facts.mac]
    for switch in switches:
        for mac in macs:
            if mac in switch.hosts:
                yield f"{switch.name}/{switch.hosts[mac]}", f"{switch.name} hears {mac} there"
        for neighbour in switch.neighbours:
            if neighbour.mac in macs and neighbour.mac not in switch.hosts:
                yield f"{switch.name}/{neighbour.interface}", f"{switch.name} has {neighbour.mac} as a neighbour there"


def _infer_cables_between_nodes(
    ports: Mapping[Port, Mapping[Half, HalfFacts]], found: dict[Port, Cabled], unclear: dict[Port, str]
) -> None:
    """Cables between nodes, among the ports that no switch hears."""
    free = {port: halves for port, halves in ports.items() if port not in found and port not in unclear}
    peers = {port: frozenset(_possible_peers(port, free)) for port in free}
    for port, others in peers.items():
        if len(others) == 1:
            (other,) = others
            if peers[other] == {port}:
                found[port] = Cabled(str(other), "both have addresses in the same subnets, and in no others")
            else:
                unclear[port] = f"{other} could be its other end, and has several"
        elif others:
            names = ", ".join(map(str, sorted(others)))
            unclear[port] = f"{names} share its subnets; is there a switch between them that was not read?"


def _possible_peers(port: Port, free: Mapping[Port, Mapping[Half, HalfFacts]]) -> Iterator[Port]:
    """The ports of other nodes that have an address in a subnet of this one's, each half for itself."""
    for other, halves in free.items():
        if other.node == port.node:
            continue
        for half, facts in free[port].items():
            twin = halves.get(Half(other.node, other.number, half.index))
            nets = {own.network for own in facts.addresses}
            if twin and any(address.network in nets for address in twin.addresses):
                yield other


def heard_by_neighbours(nodes: Iterable[NodeFacts], cables: Cables) -> dict[Port, Cabled]:
    """Return cables between nodes that no address shows: each of the two has only the other's MAC address on that port.
    For ports that `infer` could not place."""
    ports = {port: halves for node in nodes for port, halves in _linked_ports(node).items()}
    owner = {facts.mac: port for port, halves in ports.items() for facts in halves.values() if facts.mac}
    seen: dict[Port, set[Port]] = {}
    for node in nodes:
        for half in node.halves:
            macs = node.neighbours.get(half.interface, frozenset())
            seen.setdefault(Port(node.name, half.port), set()).update(owner[mac] for mac in macs if mac in owner)
    found = {}
    for port, others in seen.items():
        others.discard(port)
        placed = port in cables.found or port in cables.unclear
        if len(others) == 1 and not placed:
            (other,) = others
            if seen.get(other) == {port} and other not in cables.found:
                found[port] = Cabled(str(other), "each has only the other as a neighbour there")
    return found
