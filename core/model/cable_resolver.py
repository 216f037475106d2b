"""From the ends written at the nodes to the cables between them, with every end that cannot be."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Literal

from core.hardware.breakout_hints import nearest
from core.hardware.gb10 import PORT_GBPS
from core.model.cabling import Cable, Cabling, Leg, Port
from core.model.errors import RuleViolation
from core.model.sections import Node
from core.model.switch_schema import CageSpec, Switch

_LANE = re.compile(r"(?P<cage>.+)-[0-9]{1,2}")


def topology(cabling: Cabling) -> Literal["direct", "ring", "switch"]:
    """Topology that the cables form: a switch with its legs, a node between two others (ring), or pairs (direct)."""
    peers: dict[str, set[str]] = {}
    for cable in cabling.cables:
        if isinstance(cable.b, Leg):
            return "switch"
        peers.setdefault(cable.a.node, set()).add(cable.b.node)
        peers.setdefault(cable.b.node, set()).add(cable.a.node)
    return "ring" if any(len(others) > 1 for others in peers.values()) else "direct"


def declared_legs(switch: Switch, cage: CageSpec) -> Iterator[Leg]:
    """The legs a declared cage is split into, in lane order."""
    split = switch.hardware.cages[cage.name].breakouts[cage.split]
    for first in split.first_lanes:
        lanes = tuple(range(first, first + split.lanes_per_leg))
        yield Leg(switch.name, cage.name, first, lanes, split.gbps)


def resolve_cables(
    nodes: Mapping[str, Node], switches: Mapping[str, Switch], unread: Collection[str] = ()
) -> tuple[Cabling, list[RuleViolation]]:
    """The cables that the nodes declare, and a problem for every end without a cable.

    `unread` names nodes and switches that are declared but invalid themselves: their ends are not checked.
    """
    return _CableResolver(nodes, switches, unread).run()


class _CableResolver:
    def __init__(self, nodes: Mapping[str, Node], switches: Mapping[str, Switch], unread: Collection[str]) -> None:
        self.nodes, self.switches, self.unread = nodes, switches, unread
        self.rank = {name: place for place, name in enumerate(nodes)}
        self.ends = {Port(node.name, number): end for node in nodes.values() for number, end in node.ports.items()}
        self.legs = {
            str(leg): leg
            for switch in switches.values()
            for cage in switch.cages.values()
            for leg in declared_legs(switch, cage)
        }
        self.taken: dict[str, Port] = {}
        self.cables: list[Cable] = []
        self.problems: list[RuleViolation] = []

    def run(self) -> tuple[Cabling, list[RuleViolation]]:
        for port, end in self.ends.items():
            name, _, place = end.partition("/")
            if name in self.unread:
                continue
            if name in self.switches:
                found = self._to_leg(port, end, self.switches[name], place)
            elif name in self.nodes:
                found = self._to_node(port, end, name, place)
            else:
                found = self._describe_unknown_host(name)
            if found:
                self.problems.append(RuleViolation(("nodes", port.node, "ports", port.number), *found))
        self.cables.sort(key=lambda cable: (self.rank[cable.a.node], cable.a.number))
        return Cabling(self.cables), self.problems

    def _describe_unknown_host(self, name: str) -> tuple[str, str]:
        known = [*self.switches, *self.nodes, *self.unread]
        near = get_close_matches(name, known, 1)
        return (
            f"there is no switch or node called {name}",
            f"did you mean {near[0]}?" if near else "write the name of a switch or node in this file",
        )

    def _to_leg(self, port: Port, end: str, switch: Switch, place: str) -> tuple[str, str] | None:
        leg = self.legs.get(end)
        if leg is None:
            return self._no_leg(end, switch, place)
        if leg.gbps > PORT_GBPS:
            fits = nearest(switch.hardware.cages[leg.cage], 1, PORT_GBPS).name
            return (
                f"{end} runs at {leg.gbps}G and the port of a node at most at {PORT_GBPS}G",
                f"write split: {fits} at switches.{switch.name}.cages.{leg.cage}",
            )
        if end in self.taken:
            other = self.taken[end]
            owner = other.node if other.node != port.node else f"port {other.number} of {other.node}"
            return f"{end} is already used by {owner}", self._free_leg_hint(switch, leg.gbps)
        self.taken[end] = port
        self.cables.append(Cable(port, leg, leg.gbps))
        return None

    def _no_leg(self, end: str, switch: Switch, place: str) -> tuple[str, str]:
        found = _LANE.fullmatch(place)
        hardware = switch.hardware
        cage = place if place in hardware.cages else found["cage"] if found else ""
        if cage not in hardware.cages:
            near = get_close_matches(
                place, [leg.interface for leg in self.legs.values() if leg.switch == switch.name], 1
            )
            right = f"did you mean {switch.name}/{near[0]}?" if near else "write cage and lane, like qsfp56-dd-1-1"
            return f"{end} names no cage of a {hardware.title}", right
        spec = switch.cages.get(cage)
        if spec is None:
            declared = ", ".join(switch.cages) or "none"
            return (
                f"cage {cage} is not declared",
                f"add it to switches.{switch.name}.cages (declared: {declared})",
            )
        legs = ", ".join(f"{switch.name}/{leg.interface}" for leg in declared_legs(switch, spec))
        many = "legs are" if "," in legs else "leg is"
        return f"{end} is not a leg of cage {cage}, which is split {spec.split}", f"its {many} {legs}"

    def _free_leg_hint(self, switch: Switch, gbps: int) -> str:
        if self.unread:
            return "give every port a leg of its own"
        wanted = set(self.ends.values())
        free = [name for name, leg in self.legs.items() if leg.switch == switch.name and name not in wanted]
        # a leg of the same speed first: the other nodes of the rack most likely run at it
        free.sort(key=lambda name: self.legs[name].gbps != gbps)
        return f"{free[0]} is free" if free else f"no leg of {switch.name} is free"

    def _to_node(self, port: Port, end: str, name: str, place: str) -> tuple[str, str] | None:
        if place not in ("0", "1"):
            return f"{end} is not the port of a node", f"write {name}/0 or {name}/1"
        peer = Port(name, int(place))
        if name == port.node:
            return f"{end} is on the same node", "a cable joins two nodes"
        written = self.ends.get(peer)
        if written is not None and written != str(port):
            return (
                f"the cable ends at {end}, but that end is declared as {written}",
                f"write {port} at nodes.{peer.node}.ports.{peer.number}, or another end here",
            )
        if end in self.taken:
            return f"{end} is already used by {self.taken[end]}", "give every cable a port of its own"
        self.taken[end] = port
        if written is None or self.rank[port.node] < self.rank[name]:
            first, second = sorted((port, peer), key=lambda side: self.rank[side.node])
            self.cables.append(Cable(first, second, PORT_GBPS))
        return None
