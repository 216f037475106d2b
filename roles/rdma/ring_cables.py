"""Cables that Linux routes over and NCCL does not: what `sparkrack check` warns of. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.model import Rack
from core.model.cabling import Port
from core.model.errors import RuleViolation


def notes(rack: Rack) -> Iterator[RuleViolation]:
    """Yield a warning for each cable of a ring that joins ports of one number.

    NCCL pairs the devices of two ranks by their place in its list. In a ring with a cable from port 0 to port 0 it
    pairs ports that no cable joins: `ibv_modify_qp` ends with 110 after every check of the network has passed (reported
    of three nodes; each cable from port 0 to port 1 worked at once, and NVIDIA wires a ring so).
    """
    if rack.topology != "ring":
        return
    for cable in rack.cabling.cables:
        if isinstance(cable.b, Port) and cable.a.number == cable.b.number:
            yield RuleViolation(
                ("nodes", cable.a.node, "ports", cable.a.number),
                f"this cable of the ring joins port {cable.a.number} of {cable.a.node} to port {cable.b.number} of "
                f"{cable.b.node}, and NCCL then pairs ports that no cable joins (reported)",
                "plug each cable of the ring from port 0 of one node into port 1 of the next, and write it so",
            )
