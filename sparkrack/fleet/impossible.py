"""Why a cage cannot be split as somebody wrote, and the split he most likely wants."""

from __future__ import annotations

import re
from difflib import get_close_matches

from sparkrack.fleet.splits import SPLITS, Split, cage_kind, lane_count

_LEGS_AND_SPEED = re.compile(r"\s*([0-9]{1,4})\s*[xX*×]\s*([0-9]{1,6})\s*([gG]([bB](it|ps|/s|it/s)?)?)?\s*")
_SPEED_AND_LEGS = re.compile(r"\s*([0-9]{1,6})\s*[gG]\s*[xX*×]\s*([0-9]{1,4})\s*")
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def refusal(cage: str, text: str) -> tuple[str, str]:
    """What is wrong with `text`, which is no split of `cage`, and what would be right.

    `{value}` stands for the text as it is written in the file. The split that is named is always a possible one.
    """
    known = SPLITS[cage_kind(cage)]
    shape = _shape(text)
    if shape is None:
        near = get_close_matches(text, known, 1)
        right = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
        return "{value} is not a split, which is written as legs and their speed", right
    legs, gbps = shape
    split = nearest(cage, legs, gbps)
    if (len(split.first_lanes), split.gbps) == shape:
        return "{value} is not how a split is written", f"write {split.name}"
    spare = " and leave a leg without a cable" if gbps == split.gbps and legs < len(split.first_lanes) else ""
    return f"{cage} cannot be {{value}}: {_reason(cage, gbps)}", f"write {split.name}{spare}"


def nearest(cage: str, legs: int, gbps: int) -> Split:
    """The split of `cage` whose speed is nearest to `gbps`, by ratio, and then its number of legs to `legs`."""

    def distance(split: Split) -> tuple[float, int]:
        wanted = max(gbps, 1)
        return max(split.gbps, wanted) / min(split.gbps, wanted), abs(len(split.first_lanes) - legs)

    return min(SPLITS[cage_kind(cage)].values(), key=distance)


def _shape(text: str) -> tuple[int, int] | None:
    """Legs and speed, also where they are not written as this project writes them."""
    if found := _LEGS_AND_SPEED.fullmatch(text):
        return int(found[1]), int(found[2])
    if found := _SPEED_AND_LEGS.fullmatch(text):
        return int(found[2]), int(found[1])
    return None


def _reason(cage: str, gbps: int) -> str:
    lanes = lane_count(cage_kind(cage))
    own = f"its {lanes} lanes carry" if lanes > 1 else "its one lane carries"
    counts = sorted(len(split.first_lanes) for split in SPLITS[cage_kind(cage)].values() if split.gbps == gbps)
    if counts:
        return f"{own} {' or '.join(_NUMBERS[n] for n in counts)} leg{'s' if counts[-1] > 1 else ''} of {gbps}G"
    takes = [split.lanes_per_leg for splits in SPLITS.values() for split in splits.values() if split.gbps == gbps]
    if takes:
        return f"a leg of {gbps}G takes {min(takes)} lanes, and it has {_NUMBERS[lanes]}"
    return f"no leg of a CRS812 runs at {gbps}G"
