"""Which ports the units of a rack use on their nodes, so that several units run on one node. Pure: from rack.yaml.

Units with the same head have each their own; they follow each other in the order of rack.yaml, so that a unit that is
written below the others leaves theirs as they are. Gates meet on each node of a unit, so that there a unit has another
port than each with which it shares a node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from serving.options import ServedUnit

MASTER_PORT = 29501
"""The port by which the ranks of the first unit of a head find each other, on the head."""
MASTER_STEP = 20
"""Ports from one unit to the next: SGLang derives up to 6 and its data-parallel ranks above its own (PortArgs of its
server_args.py)."""
MEETING_PORT = 18664
"""Where the gates of the first unit meet, on each half: above the ports of their tools, below 18700."""

Nodes = Sequence[str] | Mapping[str, object]
"""The names of all nodes of a rack, in the order of its file."""


def head_place(units: Mapping[str, ServedUnit], nodes: Nodes, unit: ServedUnit) -> int:
    """Return the place of a unit, from 0, among the units with the same head; a file with wrong nodes has no head."""
    head = unit.ranks(nodes)[:1]
    return [one.name for one in units.values() if one.ranks(nodes)[:1] == head].index(unit.name)


def coordinator_port(first: int, units: Mapping[str, ServedUnit], nodes: Nodes, unit: ServedUnit) -> int:
    """Return the port of the coordinator of a unit. `first`: serving.port."""
    return first + head_place(units, nodes, unit)


def master_port(units: Mapping[str, ServedUnit], nodes: Nodes, unit: ServedUnit) -> int:
    """Return the port by which the ranks of a unit find each other, on its head."""
    return MASTER_PORT + MASTER_STEP * head_place(units, nodes, unit)


def meeting_port(units: Mapping[str, ServedUnit], nodes: Nodes, unit: ServedUnit) -> int:
    """Return the port where the gates of a unit meet on all its nodes: the first one that no unit has which is written
    above it and shares a node with it."""
    ports: dict[str, int] = {}
    for one in units.values():
        members = set(one.ranks(nodes))
        taken = {port for name, port in ports.items() if members & set(units[name].ranks(nodes))}
        ports[one.name] = next(port for port in range(MEETING_PORT, 2**16) if port not in taken)
    return ports[unit.name]
