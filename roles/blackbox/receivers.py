"""Which node receives what another one sends: each node to the server, the server to the node after it. Pure."""

from __future__ import annotations

from core.model import Node, Rack
from roles.blackbox import clock_cap
from roles.blackbox.options import BlackboxOptions


def server(rack: Rack) -> Node:
    """Return the node that receives: the first without a clock cap, else the first."""
    nodes = list(rack.nodes.values())
    capped = rack.declared(BlackboxOptions) is not None
    return next((node for node in nodes if not capped or clock_cap.cap(rack, node) is None), nodes[0])


def receiver(rack: Rack, node: Node) -> Node | None:
    """Return the node that receives what `node` sends; None in a rack of one node."""
    names = list(rack.nodes)
    if len(names) == 1:
        return None
    first = server(rack)
    if node.name != first.name:
        return first
    return rack.nodes[names[(names.index(node.name) + 1) % len(names)]]
