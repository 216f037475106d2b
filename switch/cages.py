"""A cage in the user's words (4x100G copper) and as rows of /interface/ethernet, both ways.

RouterOS has no breakout property: a cage is split by the `speed` forced on the first lane of each leg, its
master. The other lanes are companions, consumed by the master below them; their own speed is ignored, but
lanes are dealt out from the first enabled one, so they must stay enabled. Source: MikroTik manual, 'Wired
interface compatibility'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkrack.fleet.splits import SPLITS, Split, cage_kind, lane_count

from .diff import Wanted
from .menus import ETHERNET, Row
from .values import Kind, canonical

if TYPE_CHECKING:
    from sparkrack.fleet import Switch

SPEED = {
    "copper": {
        (400, 8): "400G-baseCR8",
        (200, 4): "200G-baseCR4",
        (100, 4): "100G-baseCR4",
        (100, 2): "100G-baseCR2",
        (50, 2): "50G-baseCR2",
        (50, 1): "50G-baseCR",
        (40, 4): "40G-baseCR4",
        (25, 1): "25G-baseCR",
        (10, 1): "10G-baseCR",
        (1, 1): "1G-baseX",
    },
    "optic": {
        (400, 8): "400G-baseSR8-LR8",
        (200, 4): "200G-baseSR4-LR4",
        (100, 4): "100G-baseSR4-LR4",
        (100, 2): "100G-baseSR2-LR2",
        (50, 2): "50G-baseSR2-LR2",
        (50, 1): "50G-baseSR-LR",
        (40, 4): "40G-baseSR4-LR4",
        (25, 1): "25G-baseSR-LR",
        (10, 1): "10G-baseSR-LR",
        (1, 1): "1G-baseX",
    },
}
"""The `speed` word of a leg by medium, then by Gb/s and lanes. The number at the end of a word is its lane
count: 100G-baseCR4 is four lanes of 25G and does not fit a leg of two (same manual page)."""


def fec_of(split: Split) -> str:
    """The `fec-mode` of a split's legs.

    Lanes of 50 Gb/s need fec91; lanes of 25 take fec74 or fec91, and fec91 is what both ends of a 100G NRZ
    link have; 40G has fec74 only, slower lanes none (same manual page: a mode without FEC is left on auto,
    which means off there).
    """
    lane = split.gbps / split.lanes_per_leg
    return "fec91" if lane >= 25 else "fec74" if split.gbps == 40 else "auto"


def split_of(switch: Switch, cage: str) -> Split:
    """The split that `cage` is declared to have."""
    return SPLITS[cage_kind(cage)][switch.cages[cage].split]


def lanes_of(cage: str) -> tuple[str, ...]:
    """The interfaces (default names) of a cage in lane order; a cage of one lane is its own interface."""
    count = lane_count(cage_kind(cage))
    return (cage,) if count == 1 else tuple(f"{cage}-{lane}" for lane in range(1, count + 1))


def masters_of(switch: Switch, cage: str) -> tuple[str, ...]:
    """The interfaces that drive the legs of a declared cage."""
    lanes = lanes_of(cage)
    return tuple(lanes[first - 1] for first in split_of(switch, cage).first_lanes)


def wanted_lanes(switch: Switch, cage: str) -> tuple[Wanted, ...]:
    """Every lane of a declared cage as it shall be, masters first.

    Companions get mtu and l2mtu too: they are ports of the bridge by default, and a bridge has the smallest
    of its ports' (general RouterOS behaviour, inferred for this model). It costs no further restart, since
    one change of any l2mtu bounces every port, and one write to any lane restarts its cage, however many
    lanes are written.
    """
    split = split_of(switch, cage)
    masters = masters_of(switch, cage)
    enabled = {"disabled": "no", "l2mtu": str(switch.l2mtu), "mtu": str(switch.mtu)}
    speed = SPEED[switch.cages[cage].medium][split.gbps, split.lanes_per_leg]
    paused = "on" if switch.lossless == "pause" else "off"
    flow = {"rx-flow-control": paused, "tx-flow-control": paused}
    forced = {"auto-negotiation": "no", "speed": speed, "fec-mode": fec_of(split), **flow}
    companions = (name for name in lanes_of(cage) if name not in masters)
    return (
        *(Wanted((name,), {**enabled, **forced}) for name in masters),
        *(Wanted((name,), enabled) for name in companions),
    )


def describe(cage: str, rows: Mapping[str, Row]) -> str:
    """What the rows (by default-name) make of a cage, in the user's words: "4x100G copper",
    "auto-negotiated".

    What has no such word is told by lane: "lane 1 400G-baseCR8, lanes 2-8 auto-negotiated".
    """
    lanes = [_lane(rows[name]) for name in lanes_of(cage)]
    for split in SPLITS[cage_kind(cage)].values():
        for medium, words in SPEED.items():
            word = words[split.gbps, split.lanes_per_leg]
            masters = {lanes[first - 1] for first in split.first_lanes}
            if masters == {word} and "disabled" not in lanes:
                return f"{split.name} {medium}"
    if set(lanes) == {"auto-negotiated"}:
        return "auto-negotiated"
    return ", ".join(_runs(lanes))


def _lane(row: Row) -> str:
    def flag(name: str) -> bool:
        default = ETHERNET.fields[name].default or "no"
        return canonical(Kind.FLAG, row.get(name, default)) == "yes"

    if flag("disabled"):
        return "disabled"
    return "auto-negotiated" if flag("auto-negotiation") else row.get("speed", "forced to no speed")


def _runs(lanes: list[str]) -> list[str]:
    runs: list[tuple[int, int, str]] = []
    for number, lane in enumerate(lanes, start=1):
        if runs and runs[-1][2] == lane:
            runs[-1] = (runs[-1][0], number, lane)
        else:
            runs.append((number, number, lane))
    return [f"lane {a} {lane}" if a == b else f"lanes {a}-{b} {lane}" for a, b, lane in runs]
