"""Cabling of the rack: ports, their halves, legs of the switch and the cables between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from core.hardware import gb10
from core.hardware.cage_kinds import lane_interface


@dataclass(frozen=True, order=True)
class Half:
    """One of the two network interfaces behind a port: index 0, and its twin with index 1."""

    node: str
    port: int
    index: int

    @property
    def interface(self) -> str:
        """The name of the interface on the node, "enp1s0f1np1" or "enP2p1s0f1np1"."""
        return gb10.half_interface(self.port, self.index)

    def __str__(self) -> str:
        return f"{self.node}/{self.interface}"


@dataclass(frozen=True, order=True)
class Port:
    """One of the two cages of a node; 0 is the one next to the RJ45."""

    node: str
    number: int

    @property
    def halves(self) -> tuple[Half, Half]:
        """Both interfaces behind this port; a 200G link needs both, a 100G link is filled by one."""
        return Half(self.node, self.number, 0), Half(self.node, self.number, 1)

    def __str__(self) -> str:
        return f"{self.node}/{self.number}"


@dataclass(frozen=True, order=True)
class Leg:
    """One link a cage of the switch is split into: its first lane names it, `lanes` are all it occupies."""

    switch: str
    cage: str
    lane: int
    lanes: tuple[int, ...]
    gbps: int

    @property
    def interface(self) -> str:
        """The interface of the switch that drives this leg, "qsfp56-dd-1-3" or "sfp56-1"."""
        return lane_interface(self.cage, self.lane)

    def __str__(self) -> str:
        return f"{self.switch}/{self.interface}"


@dataclass(frozen=True)
class Cable:
    """A link at `gbps` Gb/s from port `a` to port or leg `b`; between nodes, `a` is the one of lower rank."""

    a: Port
    b: Port | Leg
    gbps: int

    @property
    def ports(self) -> tuple[Port, ...]:
        """Ends that are ports of nodes."""
        return (self.a, self.b) if isinstance(self.b, Port) else (self.a,)


@dataclass(frozen=True)
class Cabling:
    """All cables of a rack, by rank of the first end, then by its port; each end belongs to one cable."""

    cables: tuple[Cable, ...]

    def __init__(self, cables: Iterable[Cable]) -> None:
        object.__setattr__(self, "cables", tuple(cables))

    @cached_property
    def _by_port(self) -> dict[Port, Cable]:
        return {port: cable for cable in self.cables for port in cable.ports}

    @cached_property
    def _by_leg(self) -> dict[tuple[str, str], tuple[Leg, Port]]:
        return {(c.b.switch, c.b.interface): (c.b, c.a) for c in self.cables if isinstance(c.b, Leg)}

    @cached_property
    def _by_node(self) -> dict[str, tuple[Port, ...]]:
        found: dict[str, list[Port]] = {}
        for port in sorted(self._by_port):
            found.setdefault(port.node, []).append(port)
        return {node: tuple(ports) for node, ports in found.items()}

    def cable_of(self, port: Port) -> Cable | None:
        """Return the cable in `port`, or None."""
        return self._by_port.get(port)

    def leg_of(self, port: Port) -> Leg | None:
        """The leg of a switch that `port` is cabled to; None for no cable or one to another node."""
        cable = self._by_port.get(port)
        return cable.b if cable and isinstance(cable.b, Leg) else None

    def port_at(self, interface: str, switch: str) -> Port | None:
        """The port behind the leg that `interface` of `switch` drives, or None."""
        found = self._by_leg.get((switch, interface))
        return found[1] if found else None

    def legs(self, switch: str) -> tuple[tuple[Leg, Port], ...]:
        """Every cabled leg of `switch` with the port at its end, by cage and lane."""
        return tuple(sorted(pair for (of, _), pair in self._by_leg.items() if of == switch))

    def ports_of(self, node: str) -> tuple[Port, ...]:
        """The ports of `node` that hold a cable, whichever end it was written at, in port order."""
        return self._by_node.get(node, ())
