"""A cage in the user's words (4x100G copper) and as rows of /interface/ethernet, in both directions.

RouterOS has no breakout property: a cage is split by the `speed` forced on the first lane of each leg, its master. The
other lanes are companions, consumed by the master below them; their own speed is ignored, but lanes are assigned from
the first enabled one, so they must stay enabled. Source: MikroTik manual, 'Wired interface compatibility'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from core.hardware.cage_kinds import cage_kind, lane_interface
from core.hardware.fec import default_fec
from core.hardware.switch_model import Breakout
from core.routeros.diff import DesiredRow
from core.routeros.menus import ETHERNET, Row
from core.routeros.values import ValueKind, canonical

if TYPE_CHECKING:
    from core.model import Switch

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


def fec_of(switch: Switch, cage: str) -> str:
    """The `fec-mode` of the legs of a declared cage: the declared one, or the one that its split and medium need."""
    spec = switch.cages[cage]
    return spec.fec or default_fec(split_of(switch, cage), spec.medium)


def split_of(switch: Switch, cage: str) -> Breakout:
    """The split that `cage` is declared to have."""
    return switch.hardware.cages[cage].breakouts[switch.cages[cage].split]


def lanes_of(cage: str) -> tuple[str, ...]:
    """The interfaces (default names) of a cage in lane order; a cage of one lane is its own interface."""
    return tuple(lane_interface(cage, lane) for lane in range(1, cage_kind(cage).lanes + 1))


def masters_of(switch: Switch, cage: str) -> tuple[str, ...]:
    """The interfaces that drive the legs of a declared cage."""
    lanes = lanes_of(cage)
    return tuple(lanes[first - 1] for first in split_of(switch, cage).first_lanes)


def unused_lanes(switch: Switch, cage: str) -> tuple[str, ...]:
    """The interfaces of a declared cage that no leg takes."""
    used = split_of(switch, cage).lanes
    return tuple(name for number, name in enumerate(lanes_of(cage), start=1) if number not in used)


# claim: switch.breakout.first-lane, switch.lanes.companions, switch.lanes.restart
def wanted_lanes(switch: Switch, cage: str) -> tuple[DesiredRow, ...]:
    """Return every lane of a declared cage in its desired state: masters, companions, then lanes that no leg takes.

    Companions get mtu and l2mtu too: they are ports of the bridge by default, and a bridge has the smallest of its
    ports' (general RouterOS behaviour, inferred for this model). It costs no further restart, since one change of any
    l2mtu bounces every port, and one write to any lane restarts its cage, however many lanes are written.

    A lane that no leg takes is disabled, as in the published configuration of a module of four lanes in a QSFP56-DD
    cage: enabled, it could start a leg of its own with a speed that was forced before.
    """
    split = split_of(switch, cage)
    masters = masters_of(switch, cage)
    enabled = {"disabled": "no", "l2mtu": str(switch.l2mtu), "mtu": str(switch.mtu)}
    speed = SPEED[switch.cages[cage].medium][split.gbps, split.lanes_per_leg]
    paused = "on" if switch.lossless == "pause" else "off"
    flow = {"rx-flow-control": paused, "tx-flow-control": paused}
    forced = {"auto-negotiation": "no", "speed": speed, "fec-mode": fec_of(switch, cage), **flow}
    unused = unused_lanes(switch, cage)
    companions = (name for name in lanes_of(cage) if name not in (*masters, *unused))
    return (
        *(DesiredRow((name,), {**enabled, **forced}) for name in masters),
        *(DesiredRow((name,), enabled) for name in companions),
        *(DesiredRow((name,), {**enabled, "disabled": "yes"}) for name in unused),
    )


def describe(cage: str, rows: Mapping[str, Row]) -> str:
    """Describe the configuration of a cage from its rows (by default-name), in the user's words: "4x100G copper",
    "auto-negotiated".

    A configuration without such a word is described by lane: "lane 1 400G-baseCR8, lanes 2-8 auto-negotiated".
    """
    lanes = [_lane(rows[name]) for name in lanes_of(cage)]
    for split in cage_kind(cage).breakouts.values():
        for medium, words in SPEED.items():
            word = words[split.gbps, split.lanes_per_leg]
            masters = {lanes[first - 1] for first in split.first_lanes}
            used = {lanes[number - 1] for number in split.lanes}
            unused = {lane for number, lane in enumerate(lanes, start=1) if number not in split.lanes}
            if masters == {word} and "disabled" not in used and unused <= {"disabled", "auto-negotiated"}:
                return f"{split.name} {medium}"
    if set(lanes) == {"auto-negotiated"}:
        return "auto-negotiated"
    return ", ".join(_runs(lanes))


def _lane(row: Row) -> str:
    def flag(name: str) -> bool:
        default = ETHERNET.fields[name].default or "no"
        return canonical(ValueKind.FLAG, row.get(name, default)) == "yes"

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
