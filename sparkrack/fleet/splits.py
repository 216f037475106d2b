"""How a cage of the CRS812 may be split into legs, and on which lanes each leg stands.

Source: MikroTik manual, "Wired interface compatibility". A leg is driven through the interface of its first
lane; it consumes the other lanes it occupies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Split:
    """One way to divide a cage: the legs' speed in Gb/s, how many lanes each takes, and where each begins."""

    name: str
    gbps: int
    lanes_per_leg: int
    first_lanes: tuple[int, ...]


_LANES = {"qsfp56-dd": 8, "qsfp56": 4, "sfp56": 1}

# Cage kind, legs, Gb/s and lanes of each leg. A speed is told apart by its lanes: 100G on two lanes is PAM4 with
# 50 Gb/s a lane, 100G on four is NRZ with 25. A new split is a new row; the largest legs come first.
_ROWS = (
    ("qsfp56-dd", 1, 400, 8),
    ("qsfp56-dd", 2, 200, 4),
    ("qsfp56-dd", 4, 100, 2),
    ("qsfp56-dd", 8, 50, 1),
    ("qsfp56-dd", 2, 40, 4),
    ("qsfp56-dd", 8, 25, 1),
    ("qsfp56-dd", 8, 10, 1),
    ("qsfp56-dd", 8, 1, 1),
    ("qsfp56", 1, 200, 4),
    ("qsfp56", 2, 100, 2),
    ("qsfp56", 1, 100, 4),
    ("qsfp56", 4, 50, 1),
    ("qsfp56", 2, 50, 2),
    ("qsfp56", 1, 40, 4),
    ("qsfp56", 4, 25, 1),
    ("qsfp56", 4, 10, 1),
    ("qsfp56", 4, 1, 1),
    ("sfp56", 1, 50, 1),
    ("sfp56", 1, 25, 1),
    ("sfp56", 1, 10, 1),
    ("sfp56", 1, 1, 1),
)


def _split(legs: int, gbps: int, lanes_per_leg: int) -> Split:
    return Split(f"{legs}x{gbps}G", gbps, lanes_per_leg, tuple(range(1, legs * lanes_per_leg + 1, lanes_per_leg)))


SPLITS: dict[str, dict[str, Split]] = {
    kind: {split.name: split for of, *shape in _ROWS if of == kind for split in (_split(*shape),)} for kind in _LANES
}
"""The splits of each kind of cage by name."""

CAGES: tuple[str, ...] = (
    *(f"sfp56-{number}" for number in range(1, 9)),
    *(f"qsfp56-{number}" for number in (1, 2)),
    *(f"qsfp56-dd-{number}" for number in (1, 2)),
)
"""The cages of a CRS812-8DS-2DQ-2DDQ (MikroTik manual, "Wired interface compatibility")."""

_CAGE = re.compile(r"(qsfp56-dd|qsfp56|sfp56)-[1-9][0-9]?")


def cage_kind(cage_name: str) -> str:
    """The kind of a cage ("qsfp56-dd-1" is a "qsfp56-dd"); ValueError for what is not the name of a cage."""
    found = _CAGE.fullmatch(cage_name)
    if not found:
        raise ValueError(f"{cage_name!r} is not the name of a cage")
    return found.group(1)


def lane_count(kind: str) -> int:
    """The electrical lanes of a kind of cage; KeyError for an unknown kind."""
    return _LANES[kind]


def lane_interface(cage: str, lane: int) -> str:
    """The interface of a lane, from 1: "qsfp56-dd-1-3"; a cage of one lane is its own, "sfp56-1"."""
    return cage if lane_count(cage_kind(cage)) == 1 else f"{cage}-{lane}"
