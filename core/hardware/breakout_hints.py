"""What is wrong with a text that is not a breakout of a cage, and which breakout would be right."""

from __future__ import annotations

import re
from difflib import get_close_matches

from core.hardware.switch_model import Breakout, CageKind, SwitchModel

_LEGS_AND_SPEED = re.compile(r"\s*([0-9]{1,4})\s*[xX*×]\s*([0-9]{1,6})\s*([gG]([bB](it|ps|/s|it/s)?)?)?\s*")
_SPEED_AND_LEGS = re.compile(r"\s*([0-9]{1,6})\s*[gG]\s*[xX*×]\s*([0-9]{1,4})\s*")
_ONE_CHARACTER = 0.9
"""How alike two splits are, by difflib, that differ in one character."""
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


def suggest_breakout(model: SwitchModel, cage: str, text: str) -> tuple[str, str]:
    """What is wrong with `text`, which is not a breakout of `cage`, and what would be right.

    `{value}` stands for the text as it is written in the file. The breakout that is named is always a possible one.
    """
    kind = model.cages[cage]
    shape = _parse_shape(text)
    if shape is None:
        near = get_close_matches(text, kind.breakouts, 1)
        right = f"did you mean {near[0]}?" if near else f"choose from {', '.join(kind.breakouts)}"
        return "{value} is not a split, which is written as legs and their speed", right
    legs, gbps = shape
    split = nearest(kind, legs, gbps)
    if (len(split.first_lanes), split.gbps) == shape:
        return "{value} is not how a split is written", f"write {split.name}"
    speeds = {split.gbps for other in model.kinds for split in other.breakouts.values()}
    if gbps not in speeds and (misspelled := get_close_matches(text, kind.breakouts, 1, _ONE_CHARACTER)):
        split = kind.breakouts[misspelled[0]]
    spare = " and leave a leg without a cable" if gbps == split.gbps and legs < len(split.first_lanes) else ""
    return f"{cage} cannot be {{value}}: {_refusal_reason(model, kind, gbps)}", f"write {split.name}{spare}"


def nearest(kind: CageKind, legs: int, gbps: int) -> Breakout:
    """The breakout whose speed is nearest to `gbps`, by ratio, and then its number of legs to `legs`: one that has as
    many legs goes before one that has too few.
    """

    def distance(split: Breakout) -> tuple[float, bool, int]:
        wanted, has = max(gbps, 1), len(split.first_lanes)
        return max(split.gbps, wanted) / min(split.gbps, wanted), has < legs, abs(has - legs)

    return min(kind.breakouts.values(), key=distance)


def _parse_shape(text: str) -> tuple[int, int] | None:
    """Legs and speed, also where they are not written as this project writes them."""
    if found := _LEGS_AND_SPEED.fullmatch(text):
        return int(found[1]), int(found[2])
    if found := _SPEED_AND_LEGS.fullmatch(text):
        return int(found[2]), int(found[1])
    return None


def _refusal_reason(model: SwitchModel, kind: CageKind, gbps: int) -> str:
    own = f"its {kind.lanes} lanes carry" if kind.lanes > 1 else "its one lane carries"
    counts = sorted(len(split.first_lanes) for split in kind.breakouts.values() if split.gbps == gbps)
    if counts:
        return f"{own} {' or '.join(_NUMBERS[n] for n in counts)} leg{'s' if counts[-1] > 1 else ''} of {gbps}G"
    every = (split for other in model.kinds for split in other.breakouts.values())
    takes = [split.lanes_per_leg for split in every if split.gbps == gbps]
    if takes:
        return f"a leg of {gbps}G takes {min(takes)} lanes, and it has {_NUMBERS[kind.lanes]}"
    return f"no leg of a {model.title} runs at {gbps}G"
