"""The kinds of cages that MikroTik's switches with 50 Gb/s lanes have, and how RouterOS names cages and lanes.

Source: MikroTik manual, "Wired interface compatibility". Two breakouts of a QSFP56-DD cage are not in it: 1x100G, one
QSFP28 module on the first four lanes (an owner's public configuration of a CRS804 with 7.23), and 4x50G of two lanes a
leg, to which one site of eight nodes fell back on a 4x100G cable (CRS812, 7.20.8).
"""

from __future__ import annotations

import re

from core.hardware.switch_model import Breakout, CageKind


def _cage_kind(name: str, lanes: int, *rows: tuple[int, int, int]) -> CageKind:
    """A kind from its breakouts as rows of legs, Gb/s of a leg and lanes of a leg."""
    breakouts = (
        Breakout(f"{legs}x{gbps}G", gbps, width, tuple(range(1, legs * width + 1, width))) for legs, gbps, width in rows
    )
    return CageKind(name, lanes, {breakout.name: breakout for breakout in breakouts})


# Legs, Gb/s and lanes of each leg. A speed is identified by its lanes: 100G on two lanes is PAM4 with 50 Gb/s a lane,
# 100G on four is NRZ with 25. A new breakout is a new row; the largest legs come first.
# claim: switch.breakout.first-lane
QSFP56_DD = _cage_kind(
    "qsfp56-dd",
    8,
    (1, 400, 8),
    (2, 200, 4),
    # claim: switch.breakout.linked
    (4, 100, 2),
    # claim: switch.breakout.1x100g
    (1, 100, 4),
    (8, 50, 1),
    # claim: switch.breakout.4x50g
    (4, 50, 2),
    (2, 40, 4),
    (8, 25, 1),
    (8, 10, 1),
    (8, 1, 1),
)
QSFP56 = _cage_kind(
    "qsfp56",
    4,
    (1, 200, 4),
    (2, 100, 2),
    (1, 100, 4),
    (4, 50, 1),
    (2, 50, 2),
    (1, 40, 4),
    (4, 25, 1),
    (4, 10, 1),
    (4, 1, 1),
)
SFP56 = _cage_kind("sfp56", 1, (1, 50, 1), (1, 25, 1), (1, 10, 1), (1, 1, 1))

KINDS = {kind.name: kind for kind in (QSFP56_DD, QSFP56, SFP56)}

_CAGE = re.compile(r"(qsfp56-dd|qsfp56|sfp56)-[1-9][0-9]?")


def cage_kind(cage: str) -> CageKind:
    """The kind of a cage by the name of the cage ("qsfp56-dd-1"), on any model.

    Raises ValueError for what is not the name of a cage.
    """
    found = _CAGE.fullmatch(cage)
    if not found:
        raise ValueError(f"{cage!r} is not the name of a cage")
    return KINDS[found.group(1)]


def lane_interface(cage: str, lane: int) -> str:
    """The interface of a lane, from 1: "qsfp56-dd-1-3"; a cage of one lane is its own, "sfp56-1"."""
    return cage if cage_kind(cage).lanes == 1 else f"{cage}-{lane}"


def cage_of(interface: str) -> str | None:
    """The cage that an interface (name from the factory) is a lane of; None for any other interface."""
    for cage in (interface, interface.rpartition("-")[0]):
        if _CAGE.fullmatch(cage) and (cage_kind(cage).lanes == 1) == (cage == interface):
            return cage
    return None
