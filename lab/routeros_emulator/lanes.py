"""The lanes of a cage as legs, and the links of the legs. Pure.

Source: MikroTik manual, 'Wired interface compatibility': a cage has no breakout property; it is split by the speed
forced on the first lane of each leg, and that leg takes the lanes its mode needs. Assignment starts at the first
enabled lane. What the manual does not state (the effect of a wrong setting) is inferred: RouterOS accepts it, and there
is no link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.routeros_emulator.link_modes import LANES, MODES, NEGOTIATED, Mode, may_start


@dataclass(frozen=True)
class Lane:
    """Configuration of one sub-interface of a cage."""

    enabled: bool = True
    negotiates: bool = True
    speed: str | None = None
    fec: str = "auto"


@dataclass(frozen=True)
class LaneGroup:
    """Consecutive lanes that act as one link, named by the first (1-based).

    ``mode`` is None while the cage negotiates it or nothing usable is configured; ``fault`` is the reason why the leg
    can never have a link, None when it can.
    """

    first: int
    lanes: tuple[int, ...]
    mode: Mode | None
    negotiates: bool = False
    fec: str = "auto"
    fault: str | None = None


@dataclass(frozen=True)
class LaneTail:
    """One end of a cable in the cage: its first lane, how many it has and what the peer runs (Gb/s).

    ``fec`` is the FEC that the peer runs; None when it follows that of the switch. ``powered``: whether the peer's
    adapter gives a signal.
    """

    lane: int
    lanes: int
    gbps: int
    medium: str
    present: bool = True
    fec: str | None = None
    powered: bool = True


def legs(kind: str, lanes: Sequence[Lane]) -> tuple[LaneGroup, ...]:
    """Walk a cage's lanes from the first enabled one and give the legs they form, in lane order."""
    found: list[LaneGroup] = []
    number = 1
    while number <= len(lanes):
        lane = lanes[number - 1]
        if not lane.enabled:
            number += 1
            continue
        leg = _group_negotiating_lane(number, lanes) if lane.negotiates else _group_forced_lane(kind, number, lanes)
        found.append(leg)
        number = leg.lanes[-1] + 1
    return tuple(found)


def _group_negotiating_lane(number: int, lanes: Sequence[Lane]) -> LaneGroup:
    """A negotiating lane 1 tries the whole cage as one link; any other can only be part of a breakout.

    claim: switch.lanes.limited-advertise
    """
    lane = lanes[number - 1]
    if number == 1:
        off = [n for n, other in enumerate(lanes, start=1) if not other.enabled]
        fault = f"companion lane {off[0]} is disabled" if off else None
        return LaneGroup(1, tuple(range(1, len(lanes) + 1)), None, negotiates=True, fec=lane.fec, fault=fault)
    fault = "a breakout leg cannot negotiate"
    return LaneGroup(number, (number,), None, negotiates=True, fec=lane.fec, fault=fault)


def _group_forced_lane(kind: str, number: int, lanes: Sequence[Lane]) -> LaneGroup:
    lane = lanes[number - 1]
    mode = MODES.get(lane.speed or "")
    if mode is None:
        return LaneGroup(number, (number,), None, fec=lane.fec, fault="no speed that this cage has")
    taken = tuple(range(number, min(number + mode.lanes, len(lanes) + 1)))
    fault = None
    if not may_start(kind, mode, number):
        fault = f"{mode.word} cannot start at lane {number}"
    elif off := [n for n in taken if not lanes[n - 1].enabled]:
        # Reported from a CRS812: with companions disabled the leg falls back to 50G on its one lane.
        fault = f"companion lane {off[0]} is disabled"
    elif lane.fec not in mode.fec:
        fault = f"{mode.word} does not run with fec-mode {lane.fec}"
    return LaneGroup(number, taken, mode, fec=lane.fec, fault=fault)


def obstacle(kind: str, leg: LaneGroup, tails: Sequence[LaneTail]) -> str | None:
    """Say why a leg has no link with the cable tails in its cage, or None when it has one."""
    if leg.fault is not None:
        return leg.fault
    tail = next((tail for tail in tails if tail.lane == leg.first), None)
    if tail is None or not tail.present:
        return "nothing is plugged in"
    if not tail.powered:
        return "no signal from the peer"
    mode = effective(kind, leg, tail)
    if leg.negotiates and not _can_negotiate(kind, tails, tail):
        return "only a single link can negotiate"
    if mode is None:
        return "no common mode"
    if leg.negotiates and leg.fec not in mode.fec:
        return f"{mode.word} does not run with fec-mode {leg.fec}"
    if mode.medium not in (tail.medium, "any"):
        return f"{mode.word} does not run on {tail.medium}"
    if mode.lanes != tail.lanes:
        return f"the leg has {mode.lanes} lanes, the cable {tail.lanes}"
    if mode.mbps != tail.gbps * 1000:
        return f"the leg runs {mode.mbps // 1000}G, the peer {tail.gbps}G"
    if tail.fec not in (None, mode.fec_shown(leg.fec)):
        return f"the leg runs FEC {mode.fec_shown(leg.fec)}, the peer {tail.fec}"
    return None


def effective(kind: str, leg: LaneGroup, tail: LaneTail) -> Mode | None:
    """The mode a leg runs: the forced one, or what the whole cage negotiates."""
    if not leg.negotiates:
        return leg.mode
    return MODES.get(NEGOTIATED.get((kind, tail.medium), ""))


def _can_negotiate(kind: str, tails: Sequence[LaneTail], tail: LaneTail) -> bool:
    """The manual allows it for a single 400G link only. One lane needs no breakout and may too; 200G in a
    QSFP56 cage is reported not to come up against ConnectX-7."""
    return len(tails) == 1 and tail.lanes == LANES[kind] and (tail.gbps == 400 or LANES[kind] == 1)
