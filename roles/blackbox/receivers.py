"""Which node receives what another one sends before it dies. Pure."""

from __future__ import annotations

from core.model import Node, Rack
from roles.blackbox import clock_cap
from roles.blackbox.options import BlackboxOptions


def server(rack: Rack) -> Node:
    """Return the node that receives from all others: the declared one, else the first without a clock cap."""
    nodes = list(rack.nodes.values())
    if name := getattr(rack.options(BlackboxOptions), "server", None):
        return rack.nodes[name]
    return next((node for node in nodes if clock_cap.cap(rack, node) is None), nodes[0])


def receiver(rack: Rack, node: Node) -> Node | None:
    """Return the node that receives from this one, None in a rack of one node: what the server sends goes to the node
    after it.
    """
    nodes = list(rack.nodes.values())
    if len(nodes) == 1:
        return None
    first = server(rack)
    return first if node.name != first.name else nodes[(nodes.index(first) + 1) % len(nodes)]
