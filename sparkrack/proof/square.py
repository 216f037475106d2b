"""The pairs of a report as square tables, from whom to whom: one for each half, and one for both halves at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sparkrack.proof.found import Bandwidth, Reach
from sparkrack.proof.report import Report

State = Literal["good", "bad", "unknown", "none"]


SIGNS: dict[State, str] = {"bad": "✗", "unknown": "?", "good": "✓", "none": ""}
"""What says a state without its colour; the worst first."""


@dataclass(frozen=True)
class Pair:
    """One field, from the node of its row to the node of its column: its state, the figures if any were measured, all
    of it in words, and the name of what was found wrong with the figures."""

    state: State
    figures: str
    detail: str
    verdict: str = ""

    @property
    def text(self) -> str:
        """What stands in the field."""
        return f"{SIGNS[self.state]} {self.figures}".strip()


@dataclass(frozen=True)
class Square:
    """One table. `pairs` has a row for each sender, with one field for each receiver."""

    title: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    pairs: tuple[tuple[Pair, ...], ...]


NOTHING = Pair("none", "", "no cable or subnet in common")


def squares(report: Report) -> tuple[Square, ...]:
    """The tables of a report; none when nothing of the fabric was looked at."""
    values: list[Reach | Bandwidth] = [*report.reach, *report.bandwidth]
    nodes = dict.fromkeys(name for value in values for name in (value.sender, value.receiver))
    # In the order of the rack; a neighbour that was not looked at itself comes after.
    receivers = sorted(nodes, key=lambda name: (name not in report.machines, list(nodes).index(name)))
    senders = [name for name in receivers if any(value.sender == name for value in values)]
    made = []
    for half in (0, 1):
        reach = [value for value in report.reach if value.half == half]
        alone = [value for value in report.bandwidth if value.halves == (half,)]
        if reach or alone:
            made.append(_square(f"Half {half}: {_devices(reach, alone)}", senders, receivers, reach, alone))
    both = [value for value in report.bandwidth if len(value.halves) > 1]
    if both:
        made.append(_square("Both halves at once", senders, receivers, [], both))
    return tuple(made)


def _devices(reach: Sequence[Reach], bandwidth: Sequence[Bandwidth]) -> str:
    names = [value.sender_device for value in reach] or [value.sender_devices[0] for value in bandwidth]
    return ", ".join(dict.fromkeys(names))


def _square(
    title: str,
    senders: Sequence[str],
    receivers: Sequence[str],
    reach: Sequence[Reach],
    bandwidth: Sequence[Bandwidth],
) -> Square:
    rows = []
    for sender in senders:
        row = []
        for receiver in receivers:
            pairs = [value for value in reach if (value.sender, value.receiver) == (sender, receiver)]
            flows = [value for value in bandwidth if (value.sender, value.receiver) == (sender, receiver)]
            row.append(_together([*map(_reached, pairs), *map(_carries, flows)]))
        rows.append(tuple(row))
    return Square(title, tuple(senders), tuple(receivers), tuple(rows))


def _reached(value: Reach) -> Pair:
    way = f"{value.sender_device} to {value.receiver_device}"
    if value.reached is None:
        return Pair("unknown", "", f"{way}: could not be asked")
    if value.reached:
        return Pair("good", "", f"{way}: frames of {value.mtu} bytes arrive")
    return Pair("bad", "", f"{way}: frames of {value.mtu} bytes do not arrive")


def _carries(value: Bandwidth) -> Pair:
    figures = " + ".join(f"{figure:.1f}" for figure in value.gbps)
    if value.good is None:
        return Pair("unknown", "", value.why)
    if value.good:
        return Pair("good", figures, f"{figures} Gbit/s, {value.least:g} is enough")
    return Pair("bad", figures, f"{figures} Gbit/s, {value.verdict}: {value.why}", value.verdict)


def _together(found: Sequence[Pair]) -> Pair:
    """One field of several findings about the same two nodes: the worst state, and all words."""
    if not found:
        return NOTHING
    state = min((pair.state for pair in found), key=list(SIGNS).index)
    figures = ", ".join(pair.figures for pair in found if pair.figures)
    verdicts = ", ".join(pair.verdict for pair in found if pair.verdict)
    return Pair(state, figures, "; ".join(pair.detail for pair in found), verdicts)
