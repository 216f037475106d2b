"""Fabric addresses of the halves of each cabled port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

from core.model.cabling import Cabling, Half, Leg
from core.model.sections import Fabric, Node

CARVED = 24
"""The prefix length of the subnets carved from a pool."""
VLAN_DEVICES = ("fabric0", "fabric1")
"""Names of the VLAN interfaces on the halves of a port. Two names are enough, since behind a switch a node uses one
port; `enP2p1s0f1np1.1100` would be longer than the 15 characters that Linux allows.
"""

SUBNETS = (IPv4Network("192.168.100.0/24"), IPv4Network("192.168.101.0/24"))
POOL = IPv4Network("10.100.0.0/20")
"""What the fabric has when rack.yaml names neither subnets nor pool: the same on every operator's machine."""


@dataclass(frozen=True)
class Address:
    """The fabric address of one half of a port, with the subnet it stands in, and its VLAN if it is tagged."""

    half: Half
    interface: IPv4Interface
    vlan: int | None = None

    @property
    def device(self) -> str:
        """The network device of the node that holds this address: the half itself, or the VLAN interface on it."""
        return self.half.interface if self.vlan is None else VLAN_DEVICES[self.half.index]

    def __str__(self) -> str:
        return f"{self.half} {self.interface}"


def sourced(fabric: Fabric, cabling: Cabling) -> Fabric:
    """Return the fabric with the source of its addresses: what is written, else `POOL` where several cables join
    nodes without a switch, and `SUBNETS` otherwise."""
    if fabric.subnets is not None or fabric.pool is not None:
        return fabric
    switched = any(isinstance(cable.b, Leg) for cable in cabling.cables)
    if switched or len(cabling.cables) < 2:
        return fabric.model_copy(update={"subnets": SUBNETS})
    return fabric.model_copy(update={"pool": POOL})


def candidates() -> tuple[IPv4Network, ...]:
    """Subnets to choose from for the halves of the ports, the defaults first."""
    return (*SUBNETS, *(IPv4Network(f"10.{200 + number}.0.0/24") for number in range(20)))


def hosts(nodes: Mapping[str, Node]) -> dict[str, int]:
    """The number of each node in the fabric's subnets: what is written for it, else its rank, from 1."""
    return {name: rank if node.host is None else node.host for rank, (name, node) in enumerate(nodes.items(), 1)}


def from_subnets(
    numbers: Mapping[str, int], cabling: Cabling, subnets: Sequence[IPv4Network], vlans: Sequence[int] | None = None
) -> Iterator[Address]:
    """A node of number N gets host N in the subnet of each half, on the VLAN of that half."""
    for node, number in numbers.items():
        for port in cabling.ports_of(node):
            for half in port.halves:
                subnet = subnets[half.index]
                vlan = vlans[half.index] if vlans else None
                yield Address(half, IPv4Interface((subnet[number], subnet.prefixlen)), vlan)


def from_pool(nodes: Sequence[str], cabling: Cabling, pool: IPv4Network) -> Iterator[Address]:
    """Each half of each cable, in order, gets the next /24 of `pool`: host 1 at end a, host 2 at end b."""
    placed: dict[Half, Address] = {}
    first = int(pool.network_address)
    for row, cable in enumerate(cabling.cables):
        for host, port in enumerate(cable.ports, 1):
            for half in port.halves:
                subnet = first + ((2 * row + half.index) << (32 - CARVED))
                placed[half] = Address(half, IPv4Interface((subnet + host, CARVED)))
    for node in nodes:
        for port in cabling.ports_of(node):
            yield from (placed[half] for half in port.halves)


def pool_size(pool: IPv4Network) -> int:
    """Return the number of subnets that `pool` holds."""
    return 2 ** (CARVED - pool.prefixlen) if pool.prefixlen <= CARVED else 0


def pool_need(cabling: Cabling) -> int:
    """Return the number of subnets that the cables need: one for each half."""
    return 2 * len(cabling.cables)
