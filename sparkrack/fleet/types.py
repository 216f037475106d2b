"""The rack as typed, frozen data: one class for each section of the file, one field for each key."""

from __future__ import annotations

from functools import cached_property
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, model_validator

from sparkrack.fleet import addressing, wiring
from sparkrack.fleet.cabling import Cabling
from sparkrack.fleet.frozen import FrozenMap
from sparkrack.fleet.scalars import (
    Address,
    End,
    Given,
    HostName,
    Image,
    Name,
    Pool,
    SshPath,
    Subnet,
    UserName,
    Vendor,
    refuse,
)
from sparkrack.fleet.section import Frozen, Mtu, Section, TcpPort
from sparkrack.fleet.settings import Docker, Driver, Leave, Memory, Preflight, Rdma
from sparkrack.fleet.switches import Switch

Vlan = Annotated[StrictInt, Field(ge=2, le=4094)]
"""A VLAN's number; 1 is what untagged frames belong to on a bridge that is left alone."""


class Access(Section):
    """How the operator's machine reaches the nodes: by ssh key only, to host keys that are already known.

    `hardening` closes every other way in by ssh: passwords, and root.
    """

    user: UserName = Field(examples=["ops"])
    key: SshPath = Field(examples=["~/.ssh/id_ed25519"])
    known_hosts: SshPath = Field(examples=["known_hosts"])
    port: TcpPort = 22
    hardening: StrictBool = True


def _port_number(value: object) -> object:
    if isinstance(value, str) and value in ("0", "1"):
        raise refuse("the port number is in quotes", f"write {value} without them")
    if type(value) is not int or value not in (0, 1):
        raise refuse("a node has no such port", "write 0 (the cage next to the RJ45) or 1")
    return value


PortNumber = Annotated[int, BeforeValidator(_port_number)]


class Node(Section):
    """A GB10 machine. `ports` says where the cable in each of its two cages ends.

    `ports` may be empty when the cable is written at its other end; `Rack.cabling` knows both ends.
    `host` is the node's number in each of the fabric's subnets; None means its rank, from 1.
    """

    name: HostName
    address: Address = Field(examples=["10.77.0.11"])
    vendor: Vendor = Field(examples=["asus"])
    ports: Frozen[PortNumber, End] = Field(examples=["{1: crs812/qsfp56-dd-1-1}"])
    host: Annotated[Annotated[StrictInt, Field(ge=1, le=2**24 - 2)] | None, Given] = None


class Fabric(Section):
    """The fast network: its MTU in bytes, and where its addresses come from, `subnets` or `pool`.

    `vlans` are two, the tagged VLAN of each half of a port; None sends the frames untagged. `adopt`: a netplan file of
    others that defines nothing but fabric interfaces is not refused: it stays while it says what ours would, and is
    taken over as soon as anything differs. `hotplug`: whether DGX OS may remove a ConnectX-7 function whose cable or
    peer is down (/etc/nvidia/cx7-hotplug-enabled); None leaves that alone.
    """

    mtu: Mtu = 9000
    subnets: Annotated[tuple[Subnet, ...] | None, Given] = Field(
        default=None, examples=["[192.168.100.0/24, 192.168.101.0/24]"]
    )
    pool: Annotated[Pool | None, Given] = Field(default=None, examples=["10.100.0.0/20"])
    vlans: Annotated[tuple[Vlan, ...] | None, Given] = Field(default=None, examples=["[1100, 1101]"])
    adopt: StrictBool = False
    hotplug: Annotated[StrictBool | None, Given] = None

    @model_validator(mode="after")
    def _one_source_of_addresses(self) -> Fabric:
        if (self.subnets is None) == (self.pool is None):
            raise refuse(
                "has neither subnets nor pool" if self.pool is None else "has both subnets and pool",
                "write one: subnets for two nodes or a switch, pool for a ring",
            )
        return self


class Rack(Section):
    """One rack: its nodes in order of rank, its switches, and how they are cabled and kept.

    `leave`: what is declared for these roles is neither applied nor judged, as in a rack that is taken over bit by bit.
    """

    rack: Name = Field(examples=["spark8"])
    access: Access = Field(examples=["{user: ops, key: ~/.ssh/id_ed25519, known_hosts: known_hosts}"])
    nodes: Frozen[str, Node] = Field(examples=["{spark1: {address: 10.77.0.11, vendor: asus, ports: {1: spark2/1}}}"])
    switches: Frozen[str, Switch] = FrozenMap({})
    fabric: Fabric = Field(examples=["{subnets: [192.168.100.0/24, 192.168.101.0/24]}"])
    driver: Annotated[Driver | None, Given] = None
    memory: Memory = Memory()
    docker: Docker = Docker()
    rdma: Rdma = Rdma()
    preflight: Preflight = Preflight()
    images: tuple[Image, ...] = Field(default=(), examples=["[scitrera/dgx-spark-sglang:0.5.12]"])
    leave: Leave = Field(default=(), examples=["[memory, docker]"])
    source: Path

    def keeps(self, role: str) -> bool:
        """Whether a role is applied and judged."""
        return role not in self.leave

    @cached_property
    def cabling(self) -> Cabling:
        """Every cable of the rack, known from both of its ends."""
        return wiring.trace(self.nodes, self.switches)[0]

    @cached_property
    def addresses(self) -> tuple[addressing.Address, ...]:
        """The fabric address of every half of every cabled port, by rank, port and half."""
        if self.fabric.pool is not None:
            return tuple(addressing.from_pool(tuple(self.nodes), self.cabling, self.fabric.pool))
        fabric, hosts = self.fabric, addressing.hosts(self.nodes)
        return tuple(addressing.from_subnets(hosts, self.cabling, fabric.subnets or (), fabric.vlans))

    @cached_property
    def addresses_by_node(self) -> dict[str, tuple[addressing.Address, ...]]:
        """The same by the name of the node; one without cables is not there."""
        found: dict[str, list[addressing.Address]] = {}
        for address in self.addresses:
            found.setdefault(address.half.node, []).append(address)
        return {name: tuple(held) for name, held in found.items()}

    @cached_property
    def addresses_by_subnet(self) -> dict[IPv4Network, tuple[addressing.Address, ...]]:
        """The same by the subnet that they share."""
        found: dict[IPv4Network, list[addressing.Address]] = {}
        for address in self.addresses:
            found.setdefault(address.interface.network, []).append(address)
        return {subnet: tuple(held) for subnet, held in found.items()}

    @cached_property
    def topology(self) -> Literal["direct", "ring", "switch"]:
        """What the cables make of the rack: never declared, it follows."""
        return wiring.topology(self.cabling)
