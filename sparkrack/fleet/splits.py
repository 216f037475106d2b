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

# A new split is a new row.
_ROWS = (
    ("qsfp56-dd", Split("1x400G", 400, 8, (1,))),
    ("qsfp56-dd", Split("2x200G", 200, 4, (1, 5))),
    ("qsfp56-dd", Split("4x100G", 100, 2, (1, 3, 5, 7))),
    ("qsfp56", Split("1x200G", 200, 4, (1,))),
    ("qsfp56", Split("2x100G", 100, 2, (1, 3))),
)

SPLITS: dict[str, dict[str, Split]] = {
    kind: {split.name: split for of, split in _ROWS if of == kind} for kind in _LANES
}
"""The splits of each kind of cage by name; a kind without any exists but cannot be declared yet."""

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
