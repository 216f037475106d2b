"""The sections of a rack file about nodes, the login to them, and the network between them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, model_validator

from core.model import defaults
from core.model.fields import (
    SSH_PORT,
    Address,
    End,
    Frozen,
    FrozenDict,
    HostName,
    Mtu,
    NotEmpty,
    Pool,
    Section,
    SshPath,
    Subnet,
    TcpPort,
    UserName,
    Vendor,
    invalid,
)

Vlan = Annotated[StrictInt, Field(ge=2, le=4094)]
"""A VLAN's number; 1 is the VLAN of untagged frames on an unconfigured bridge."""


class Access(Section):
    """Access of the operator's machine to the nodes: by ssh key only, to pinned host keys.

    `hardening` disables every other ssh login: passwords, and root. What is not written is the operator's own:
    `core.model.defaults`.
    """

    user: Annotated[UserName, defaults.LoginUser] = Field(
        default_factory=defaults.not_written, validate_default=True, examples=["ops"]
    )
    key: Annotated[SshPath, defaults.LoginKey] = Field(
        default_factory=defaults.not_written, validate_default=True, examples=["~/.ssh/id_ed25519"]
    )
    known_hosts: Annotated[SshPath, defaults.KnownHosts] = Field(
        default_factory=defaults.not_written, validate_default=True, examples=["known_hosts"]
    )
    port: TcpPort = SSH_PORT
    hardening: StrictBool = True


def _port_number(value: object) -> object:
    if isinstance(value, str) and value in ("0", "1"):
        raise invalid("the port number is in quotes", f"write {value} without them")
    if type(value) is not int or value not in (0, 1):
        raise invalid("a node has no such port", "write 0 (the cage next to the RJ45) or 1")
    return value


PortNumber = Annotated[int, BeforeValidator(_port_number)]


class Node(Section):
    """A GB10 machine. `ports` has the end of the cable in each of its two cages.

    A cable is written at one of its ends or at both; `Rack.cabling` has both ends. `vendor` None: any maker of a GB10;
    what depends on the maker is read from the node. `host` is the node's number in each of the fabric's subnets; None
    means its rank, from 1.
    """

    name: HostName
    address: Address = Field(examples=["10.77.0.11"])
    vendor: Annotated[Vendor | None, NotEmpty] = Field(default=None, examples=["asus"])
    ports: Frozen[PortNumber, End] = Field(default=FrozenDict({}), examples=["{1: crs812/qsfp56-dd-1-1}"])
    host: Annotated[Annotated[StrictInt, Field(ge=1, le=2**24 - 2)] | None, NotEmpty] = None


class Fabric(Section):
    """The fast network: its MTU in bytes, and the source of its addresses, `subnets` or `pool`.
    `addressing.sourced` has the source that applies when neither is written.

    `vlans` are two, the tagged VLAN of each half of a port; None sends the frames untagged. `adopt`: an existing
    netplan file that defines only fabric interfaces is not refused: it stays while it has the same effect as ours, and
    is taken over as soon as anything differs. `hotplug`: whether DGX OS may remove a ConnectX-7 function whose cable or
    peer is down (/etc/nvidia/cx7-hotplug-enabled); None does not manage that. `switch_links`: nodes may be on several
    switches, whose cables to each other are configured by hand: no run sets them, and no check judges them.
    """

    mtu: Mtu = 9000
    subnets: Annotated[tuple[Subnet, ...] | None, NotEmpty] = Field(
        default=None, examples=["[192.168.100.0/24, 192.168.101.0/24]"]
    )
    pool: Annotated[Pool | None, NotEmpty] = Field(default=None, examples=["10.100.0.0/20"])
    vlans: Annotated[tuple[Vlan, ...] | None, NotEmpty] = Field(default=None, examples=["[1100, 1101]"])
    adopt: StrictBool = False
    hotplug: Annotated[StrictBool | None, NotEmpty] = None
    switch_links: Annotated[Literal["by-hand"] | None, NotEmpty] = Field(default=None, examples=["by-hand"])

    @model_validator(mode="after")
    def _one_source_of_addresses(self) -> Fabric:
        if self.subnets is not None and self.pool is not None:
            raise invalid("has both subnets and pool", "write one: subnets for two nodes or a switch, pool for a ring")
        return self
