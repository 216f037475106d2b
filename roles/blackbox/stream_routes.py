"""Which node receives what another node sends, and where it listens. Pure.

Every node sends to the server, and the server to the node after it. Only management addresses are used: the fabric may
be what fails.
"""

from __future__ import annotations

from core.model import Node, Rack
from roles.blackbox import clock_cap
from roles.blackbox.options import BlackboxOptions

JOURNAL_PORT = 19532
"""TCP port of received journals: that of systemd-journal-remote."""
NETCONSOLE_PORT = 6666
"""UDP port of received messages of kernels: that of netconsole."""


def server(rack: Rack) -> Node:
    """Return the declared server; without one the first node that has no clock cap, else the first node.

    A cap is declared for nodes that lose their power, so a node without one is the safer place.
    """
    nodes = list(rack.nodes.values())
    options = rack.declared(BlackboxOptions)
    if options is None:
        return nodes[0]
    if options.server:
        return rack.nodes[options.server]
    return next((node for node in nodes if clock_cap.cap(rack, node) is None), nodes[0])


def receiver(rack: Rack, node: Node) -> Node | None:
    """Return the node to which a node sends; None in a rack of one node."""
    nodes = list(rack.nodes.values())
    if len(nodes) == 1:
        return None
    first = server(rack)
    if node.name != first.name:
        return first
    return nodes[(list(rack.nodes).index(first.name) + 1) % len(nodes)]


def senders(rack: Rack, node: Node) -> list[Node]:
    """Return the nodes that send to a node, in the order of rack.yaml."""
    return [
        other
        for other in rack.nodes.values()
        if (found := receiver(rack, other)) is not None and found.name == node.name
    ]


def address(node: Node) -> str:
    """Return the address at which a node receives, and from which it sends: that of its management interface."""
    return str(node.address)
