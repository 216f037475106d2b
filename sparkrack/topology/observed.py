"""Observations of nodes and switches about the cables. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.model import Half, Port
from core.probes.links import IpLink
from core.probes.protocol import parse_commands
from core.routeros.menus import Row
from switch.link_ends import LinkEnd, node_ends


@dataclass(frozen=True)
class ObservedDevice:
    """A network device of a node: MTU in bytes, IPv4 addresses with prefix, VLAN; None is an unknown value, or for the
    VLAN none.
    """

    mtu: int | None
    addresses: tuple[str, ...]
    vlan: int | None


@dataclass(frozen=True)
class NodeObservation:
    """A node's report of the halves of its cabled ports, and of all its network devices by name."""

    ends: Mapping[Half, LinkEnd]
    devices: Mapping[str, ObservedDevice]


@dataclass(frozen=True)
class SwitchObservation:
    """A switch's report: the monitor and the settings of each leg by its interface, and the interface on which each MAC
    address (lower case) was learned.
    """

    links: Mapping[str, Row]
    ethernet: Mapping[str, Row]
    hosts: Mapping[str, str]


@dataclass(frozen=True)
class Observations:
    """The report of each host, or why it could not be asked, in one line; a host that was not asked is missing."""

    nodes: Mapping[str, NodeObservation | str] = field(default_factory=dict)
    switches: Mapping[str, SwitchObservation | str] = field(default_factory=dict)


def parse_observation(output: str, ports: Sequence[Port]) -> NodeObservation:
    """Parse a node's answer to `switch.link_ends.node_end_script`. Raises ValueError for an invalid answer."""
    ends, links = node_ends(parse_commands(output), ports)
    return NodeObservation(ends, {name: _observed_device(link) for name, link in links.items()})


def _observed_device(link: IpLink) -> ObservedDevice:
    return ObservedDevice(link.mtu, link.addresses or (), link.vlan.number if link.vlan else None)
