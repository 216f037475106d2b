"""Which addresses reach what a unit has open on each of its nodes: settings of systemd that the kernel enforces. Pure.

The kernel judges each packet of each socket in a control group (systemd.resource-control, IPAddressDeny=), whatever
port it has and whichever program chose it. RDMA does not pass there.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network

from core.model import Rack
from core.model.reachability import addresses_of
from roles.watch.options import WatchOptions, server
from serving.options import ServedUnit, gateway_of


def unit_addresses(rack: Rack, unit: ServedUnit) -> tuple[IPv4Address, ...]:
    """Return every address of every node of a unit, in rank order: ranks, agents and gates use those of the fabric, and
    a node reaches itself by each of its own.
    """
    return tuple(address for name in unit.ranks(rack.nodes) for address in _of_node(rack, name))


def rank_sources(rack: Rack, unit: ServedUnit, node: str) -> tuple[IPv4Address | IPv4Network, ...]:
    """Return what reaches the rank of a unit on a node, beside loopback.

    On the head also the gateway, the server of the watch that reads the metrics, and `api.direct`; nothing of these
    where the engine listens on loopback.
    """
    found: dict[IPv4Address | IPv4Network, None] = dict.fromkeys(unit_addresses(rack, unit))
    if node == unit.ranks(rack.nodes)[0] and unit.api.listen != "local":
        for name in _list_client_nodes(rack):
            found |= dict.fromkeys(_of_node(rack, name))
        found |= dict.fromkeys(unit.api.direct or ())
    return tuple(found)


# claim: serving.closed
def setting(sources: tuple[IPv4Address | IPv4Network, ...]) -> str:
    """Return the value of IPAddressAllow= for these addresses and loopback."""
    return " ".join(["localhost", *map(str, sources)])


def _of_node(rack: Rack, name: str) -> Iterator[IPv4Address]:
    yield rack.nodes[name].address
    for address in addresses_of(rack, name):
        yield address.interface.ip


def _list_client_nodes(rack: Rack) -> Iterator[str]:
    """The nodes with the gateway and with the server of the watch."""
    if gateway := gateway_of(rack):
        yield gateway.node
    if rack.declared(WatchOptions) is not None and (watching := server(rack)) is not None:
        yield watching.name
