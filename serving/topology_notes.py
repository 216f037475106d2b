"""Where the cables of a rack slow or stop the ranks of a unit: what `sparkrack check` warns of. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from core.advisories.advisories import NCCL, RING, known_against
from core.model import Rack
from core.model.errors import RuleViolation
from serving.options import ServedUnit


def notes(rack: Rack, unit: ServedUnit, nccl: str | None) -> Iterator[RuleViolation]:
    """Yield a warning for ranks that no cable joins, and for ranks whose links have different speeds.

    NCCL before 2.30 connects each rank with each other one (reported of rings of four and six nodes). A rank with 100G
    beside ranks with 200G sets the pace of all, and switches were reported to drop frames towards it.

    nccl: the version in the unit's image; None where it is unknown.
    """
    ranks = unit.ranks(rack.nodes)
    apart = ranks_apart(rack, unit)
    if apart and (nccl is None or any(row.feature == RING for row in known_against(NCCL, nccl, (RING,)))):
        pairs = ", ".join(" and ".join(pair) for pair in apart)
        subject = "NCCL before 2.30" if nccl is None else f"NCCL {nccl} of the image"
        yield RuleViolation(
            ("nodes",),
            f"no cable joins {pairs}: {subject} does not connect such ranks (reported)",
            "take an image with NCCL 2.30 or later, or with a mesh plugin",
        )
    speeds = {name: _sum_cable_gbps(rack, name) for name in ranks}
    if len(set(speeds.values())) > 1:
        shown = ", ".join(f"{name} {gbps}G" for name, gbps in speeds.items())
        yield RuleViolation(
            ("nodes",),
            f"the links of its ranks differ in speed: {shown}; the slowest sets the pace, and a switch can drop frames "
            "towards it",
            "split the cages of these nodes alike",
        )


def ranks_apart(rack: Rack, unit: ServedUnit) -> list[tuple[str, str]]:
    """Return the pairs of ranks that no cable joins, in a ring; nothing elsewhere."""
    if rack.topology != "ring":
        return []
    joined = {frozenset(port.node for port in cable.ports) for cable in rack.cabling.cables}
    return [pair for pair in combinations(unit.ranks(rack.nodes), 2) if frozenset(pair) not in joined]


def _sum_cable_gbps(rack: Rack, node: str) -> int:
    """Return the speed of all cables of a node together."""
    cables = [rack.cabling.cable_of(port) for port in rack.cabling.ports_of(node)]
    return sum(cable.gbps for cable in cables if cable is not None)
