"""The pairs of a report as square tables, sender by receiver: one for each half, and one for both halves at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.verify.measurements import Bandwidth, Reachability
from core.verify.report import Report

State = Literal["good", "bad", "unknown", "none"]


SIGNS: dict[State, str] = {"bad": "✗", "unknown": "?", "good": "✓", "none": ""}
"""Signs for the states, readable without colour; worst first."""


@dataclass(frozen=True)
class NodePair:
    """One field, from the node of its row to the node of its column: its state, the figures if any were measured, all
    of it in words, and the name of what was found wrong with the figures."""

    state: State
    figures: str
    detail: str
    verdict: str = ""

    @property
    def text(self) -> str:
        """The text of the field."""
        return f"{SIGNS[self.state]} {self.figures}".strip()


@dataclass(frozen=True)
class PairMatrix:
    """One table. `pairs` has a row for each sender, with one field for each receiver."""

    title: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    pairs: tuple[tuple[NodePair, ...], ...]


NOTHING = NodePair("none", "", "no cable or subnet in common")


def pair_matrices(report: Report) -> tuple[PairMatrix, ...]:
    """The tables of a report; none when no check of the fabric ran."""
    values: list[Reachability | Bandwidth] = [*report.reach, *report.bandwidth]
    nodes = dict.fromkeys(name for value in values for name in (value.sender, value.receiver))
    # In the order of the rack; a neighbour that was not checked itself comes after.
    receivers = sorted(nodes, key=lambda name: (name not in report.hosts, list(nodes).index(name)))
    senders = [name for name in receivers if any(value.sender == name for value in values)]
    made = []
    for half in (0, 1):
        reach = [value for value in report.reach if value.half == half]
        alone = [value for value in report.bandwidth if value.halves == (half,)]
        if reach or alone:
            made.append(_build_matrix(f"Half {half}: {_list_devices(reach, alone)}", senders, receivers, reach, alone))
    both = [value for value in report.bandwidth if len(value.halves) > 1]
    if both:
        made.append(_build_matrix("Both halves at once", senders, receivers, [], both))
    return tuple(made)


def _list_devices(reach: Sequence[Reachability], bandwidth: Sequence[Bandwidth]) -> str:
    names = [value.sender_device for value in reach] or [value.sender_devices[0] for value in bandwidth]
    return ", ".join(dict.fromkeys(names))


def _build_matrix(
    title: str,
    senders: Sequence[str],
    receivers: Sequence[str],
    reach: Sequence[Reachability],
    bandwidth: Sequence[Bandwidth],
) -> PairMatrix:
    rows = []
    for sender in senders:
        row = []
        for receiver in receivers:
            pairs = [value for value in reach if (value.sender, value.receiver) == (sender, receiver)]
            flows = [value for value in bandwidth if (value.sender, value.receiver) == (sender, receiver)]
            row.append(_combine_findings([*map(_judge_reachability, pairs), *map(_judge_bandwidth, flows)]))
        rows.append(tuple(row))
    return PairMatrix(title, tuple(senders), tuple(receivers), tuple(rows))


def _judge_reachability(value: Reachability) -> NodePair:
    way = f"{value.sender_device} to {value.receiver_device}"
    if value.reached is None:
        return NodePair("unknown", "", f"{way}: could not be asked")
    if value.reached:
        return NodePair("good", "", f"{way}: frames of {value.mtu} bytes arrive")
    return NodePair("bad", "", f"{way}: frames of {value.mtu} bytes do not arrive")


def _judge_bandwidth(value: Bandwidth) -> NodePair:
    figures = " + ".join(f"{figure:.1f}" for figure in value.gbps)
    if value.good is None:
        return NodePair("unknown", "", value.reason)
    if value.good:
        return NodePair("good", figures, f"{figures} Gbit/s, {value.least:g} is enough")
    return NodePair("bad", figures, f"{figures} Gbit/s, {value.verdict}: {value.reason}", value.verdict)


def _combine_findings(found: Sequence[NodePair]) -> NodePair:
    """One field of several findings about the same two nodes: the worst state, and all words."""
    if not found:
        return NOTHING
    state = min((pair.state for pair in found), key=list(SIGNS).index)
    figures = ", ".join(pair.figures for pair in found if pair.figures)
    verdicts = ", ".join(pair.verdict for pair in found if pair.verdict)
    return NodePair(state, figures, "; ".join(pair.detail for pair in found), verdicts)
