"""Parts of a rack in the lab: links and their names, hardware addresses, management network. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from core.model import Cable, Half, Leg, Port, Rack, Switch
from core.model.fields import MAX_L2MTU
from lab.errors import LabError

MANAGEMENT = "br-mgmt"
FABRIC = "br-fabric"
REPOSITORY = 8090
"""Port of the package repository, on the operator's address."""
REGISTRY = 5000
"""Port of the image registry, on the operator's address."""
FRAME = MAX_L2MTU
"""MTU of everything that is only wire: what the ports of any switch can at most."""


FROM_THE_BOX = IPv4Interface("192.168.88.1/24")
"""The address that a switch has from the factory."""


@dataclass(frozen=True)
class Wire:
    """One half of a port as the lab wires it: the tap on this side, and what carries it into the node."""

    half: Half
    tap: str
    mac: str
    """Hardware address of the device that carries it; the interface has 5a in place of 5b."""
    device: int
    """Number of the kernel's vector device behind the interface."""


@dataclass(frozen=True)
class Layout:
    """Layout of one rack in its namespace."""

    rack: Rack

    @cached_property
    def rank(self) -> dict[str, int]:
        """Number of each node, from 1, in the order of the file."""
        return {name: number for number, name in enumerate(self.rack.nodes, 1)}

    def management_tap(self, node: str) -> str:
        """The tap of a node's management interface."""
        return f"n{self.rank[node]}-m"

    def management_mac(self, node: str) -> str:
        """The hardware address of a node's management interface."""
        return f"02:5a:00:{self.rank[node]:02x}:ff:00"

    def switch_link(self, switch: str) -> str:
        """The link that carries a switch's own addresses, and nothing else."""
        return f"sw{list(self.rack.switches).index(switch) + 1}"

    @cached_property
    def beside_the_box(self) -> IPv4Interface | None:
        """The operator's address in the network of a switch from its box; None when that is management's anyway."""
        beside = IPv4Interface((FROM_THE_BOX.ip + 1, FROM_THE_BOX.network.prefixlen))
        return None if beside.network.overlaps(self.management) else beside

    def wires(self, node: str) -> tuple[Wire, ...]:
        """The wires of a node's cabled ports."""
        number = self.rank[node]
        return tuple(
            Wire(
                half=half,
                tap=f"n{number}-p{half.port}h{half.index}",
                mac=f"02:5b:00:{number:02x}:{half.port:02x}:{half.index:02x}",
                device=2 * half.port + half.index,
            )
            for port in self.rack.cabling.ports_of(node)
            for half in port.halves
        )

    def taps(self, port: Port) -> tuple[str, ...]:
        """The taps of both halves of a port."""
        return tuple(wire.tap for wire in self.wires(port.node) if wire.half.port == port.number)

    @cached_property
    def direct_cables(self) -> tuple[tuple[str, Cable], ...]:
        """Cables between nodes, each with the stem of its bridges' names (one bridge a half)."""
        cables = (cable for cable in self.rack.cabling.cables if isinstance(cable.b, Port))
        return tuple((f"cable{number}", cable) for number, cable in enumerate(cables))

    def cage_cables(self, switch: Switch) -> dict[str, list[tuple[Leg, Port]]]:
        """Return the cables of each cage of a switch: its legs and the ports at their ends."""
        plugged: dict[str, list[tuple[Leg, Port]]] = {}
        for leg, port in self.rack.cabling.legs(switch.name):
            plugged.setdefault(leg.cage, []).append((leg, port))
        return plugged

    @cached_property
    def management(self) -> IPv4Network:
        """The smallest network that holds every management address and one more for the operator."""
        used = self._management_addresses
        for length in range(24, 15, -1):
            network = IPv4Network((used[0], length), strict=False)
            if all(address in network for address in used):
                return network
        raise LabError(
            "the management addresses of this rack do not fit into one /16; the lab has one network for them"
        )

    @cached_property
    def operator(self) -> IPv4Interface:
        """The address that the operator's commands come from: the first one that is free."""
        taken = {*self._management_addresses, FROM_THE_BOX.ip}
        free = next(host for host in self.management.hosts() if host not in taken)
        return IPv4Interface((free, self.management.prefixlen))

    @property
    def repository(self) -> str:
        """URL of the nodes' package repository."""
        return f"http://{self.operator.ip}:{REPOSITORY}/"

    @property
    def registry(self) -> str:
        """Registry of the nodes' images: host and port, as in the name of an image."""
        return f"{self.operator.ip}:{REGISTRY}"

    @cached_property
    def _management_addresses(self) -> list[IPv4Address]:
        nodes = [node.address for node in self.rack.nodes.values()]
        return nodes + [switch.address for switch in self.rack.switches.values()]
