"""Verdict on a measured bandwidth, with the next step. Pure.

Figures are of `ib_write_bw` in Gb/s. Sources: "PR" is NVIDIA/dgx-spark-playbooks pull request 108, "guide" the CRS812
guide capetron/gb10-cluster-guide, "site" one installation's report, "inferred" a limit between two of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.model.rdma_flows import HALF, STALE, STALE_REMEDY, enough_for_half

RUNBOOK = "docs/runbooks/bandwidth.md"

# claim: rdma.bandwidth-borders
BOTH = 172.0
"""Both halves together on a 200G link: 185 to 196 is healthy (guide), 160 is one half on two lanes (site)."""
FORWARDED = (3.0, 8.0)
"""The switch's CPU may forward: 4 to 5 (guide); the borders are inferred. A CRS804 whose chip forwarded carried 6.7
until cables and ports were changed (site), so only the switch's counters decide.
"""
TWO_LANES = (40.0, 62.0)
"""PCIe Gen5 x2 carries half of 109 (51 by one site's 160; the borders are inferred)."""
HALF_SPEED = (90.0, 105.0)
"""Both halves share a link of 100G: 95 to 100 together (guide, site)."""
ONE_RAIL = (105.0, 120.0)
"""Both halves together carry what one carries: 109 to 112 (guide)."""
LANES = 4
"""PCIe lanes of each half."""


@dataclass(frozen=True)
class BandwidthVerdict:
    """A verdict: its name, the next step, and its section in the runbook."""

    name: str
    step: str
    anchor: str

    @property
    def good(self) -> bool:
        """Whether there is nothing to do."""
        return self is HEALTHY


HEALTHY = BandwidthVerdict("healthy", "", "healthy")
FALLBACK = BandwidthVerdict(
    "TCP fallback",
    "the RDMA counters of the device did not move; check its driver, its GID and what disables RDMA",
    "tcp-fallback",
)
SLOW_LINK = BandwidthVerdict(
    "leg at half speed",
    "the link is slower than its cable is declared; force the speed on the switch, then check the cable",
    "half-speed",
)
SINGLE = BandwidthVerdict(
    "one rail",
    "only one of the two halves carries; check address and GID of the other on both ends",
    "one-rail",
)
NARROW = BandwidthVerdict(
    "PCIe x2", "one half has two PCIe lanes instead of four; update the BIOS (ASUS: 0104 or later)", "pcie-x2"
)
STUCK = BandwidthVerdict(
    "stale ConnectX-7",
    STALE_REMEDY,
    "stale",
)
BY_CPU = BandwidthVerdict(
    "CPU-forwarded",
    "the switch's CPU forwards, as its counters show; leave it one bridge only, with hardware offload on every port",
    "cpu-forwarded",
)
BY_CHIP = BandwidthVerdict(
    "slow by the chip",
    "the switch's chip forwards, as its counters show; change the cable, then the port, at both ends",
    "by-chip",
)
SUSPECTED = BandwidthVerdict(
    "perhaps CPU-forwarded",
    "the switch's counters show nothing of it; compare driver-rx-packet with rx-packet of the sender's port by hand",
    "cpu-forwarded",
)
LOW = BandwidthVerdict("too low", "no known pattern; look at drops, pause and MTU, and at what else runs", "too-low")
VERDICTS = (HEALTHY, FALLBACK, SLOW_LINK, SINGLE, NARROW, STUCK, BY_CPU, BY_CHIP, SUSPECTED, LOW)


@dataclass(frozen=True)
class MeasuredFlow:
    """Measurement of one half of a port, or of both at once, towards one neighbour.

    `figures`: Gb/s of each half. `leg`: the cable's speed in the rack. `link`: the slowest of the ends as reported by
    the nodes, `lanes`: the fewest PCIe lanes of the ends; None where a node does not report it. `moved`: whether the
    devices' own counters agree with the tool. `switched`: whether a switch is between. `by_cpu`: whether the switch's
    own counters show that its CPU forwarded; None where they were not read, or show nothing.
    """

    figures: tuple[float, ...]
    leg: int
    link: float | None = None
    lanes: int | None = None
    moved: bool | None = None
    switched: bool = True
    by_cpu: bool | None = None


def judge(measured: MeasuredFlow) -> BandwidthVerdict:
    """The finding. What is known for certain comes before what a figure suggests."""
    total, weakest = sum(measured.figures), min(measured.figures)
    if measured.moved is False:
        return FALLBACK
    if measured.link is not None and measured.link < measured.leg:
        return SLOW_LINK
    if total >= enough(measured):
        return HEALTHY
    if measured.lanes is not None and measured.lanes < LANES:
        return NARROW
    if measured.leg < 100:  # the figures below are all of faster links
        return LOW
    if _is_within(weakest, STALE):
        return STUCK
    if len(measured.figures) > 1:
        if weakest < FORWARDED[0] or _is_within(total, ONE_RAIL):
            return SINGLE if total >= HALF else LOW
        if _is_within(total, HALF_SPEED):
            return SLOW_LINK
    if measured.switched and _is_within(weakest, FORWARDED):
        return {True: BY_CPU, False: BY_CHIP, None: SUSPECTED}[measured.by_cpu]
    return NARROW if measured.lanes is None and _is_within(weakest, TWO_LANES) else LOW


def enough(measured: MeasuredFlow) -> float:
    """Return the lowest healthy rate (Gb/s)."""
    if measured.leg < 100 or len(measured.figures) == 1:
        return enough_for_half(measured.leg)
    return BOTH


def _is_within(figure: float, borders: tuple[float, float]) -> bool:
    return borders[0] <= figure < borders[1]


def moved(before: int, after: int, gbps: float, seconds: int) -> bool:
    """Return whether a device sent at least half of the tool's result: `port_xmit_data` counts words of four bytes."""
    return (after - before) * 4 >= gbps * 1e9 / 8 * seconds / 2


def line(about: str, measured: MeasuredFlow, verdict: BandwidthVerdict) -> str:
    """The finding in one line. `about`: from where to where."""
    figures = " + ".join(f"{figure:.1f}" for figure in measured.figures)
    if verdict.good:
        return f"{about}: {figures} Gb/s"
    return f"{about}: {figures} Gb/s, {verdict.name}: {verdict.step} ({RUNBOOK}#{verdict.anchor})"
