"""A cage in the user's words (4x100G copper) and as rows of /interface/ethernet, in both directions.

RouterOS has no breakout property: a cage is split by the `speed` forced on the first lane of each leg, its master. The
other lanes are companions, consumed by the master below them; their own speed is ignored, but lanes are assigned from
the first enabled one, so they must stay enabled. Source: MikroTik manual, 'Wired interface compatibility'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from core.hardware.cage_kinds import cage_kind, lane_interface
from core.hardware.fec import default_fec
from core.hardware.switch_model import Breakout
from core.routeros.diff import DesiredRow, RowChange
from core.routeros.menus import BRIDGE_PORT, ETHERNET, Row
from core.routeros.values import ValueKind, canonical

if TYPE_CHECKING:
    from core.model import Switch
    from core.routeros.reading import SwitchReading

NEGOTIATED = "auto-negotiated"
"""A lane, or a cage, that negotiates its speed."""

_YES = ("yes", "true")

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
    """The `fec-mode` of the legs of a declared cage: the declared one, or the one that its split and medium need; legs
    that negotiate their speed have `auto`."""
    spec = switch.cages[cage]
    if spec.fec or spec.speed == "forced":
        return spec.fec or default_fec(split_of(switch, cage), spec.medium)
    return "auto"


def speed_of(switch: Switch, cage: str) -> str:
    """The `speed` word that the legs of a declared cage are forced to; "" for legs that negotiate it."""
    spec, split = switch.cages[cage], split_of(switch, cage)
    return SPEED[spec.medium][split.gbps, split.lanes_per_leg] if spec.speed == "forced" else ""


def declared_words(switch: Switch, cage: str) -> str:
    """The declared configuration of a cage in the words of `describe`."""
    spec = switch.cages[cage]
    return f"{spec.split} {spec.medium}" if spec.speed == "forced" else NEGOTIATED


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

    Companions and lanes that no leg takes get mtu and l2mtu too; `with_effect` leaves out what no frame notices.

    A lane that no leg takes is disabled, as in the published configuration of a module of four lanes in a QSFP56-DD
    cage: enabled, it could start a leg of its own with a speed that was forced before. In a cage that negotiates no
    speed is forced, and such a lane is left alone.
    """
    masters, unused, speed = masters_of(switch, cage), unused_lanes(switch, cage), speed_of(switch, cage)
    enabled = {"disabled": "no", "l2mtu": str(switch.l2mtu), "mtu": str(switch.mtu)}
    paused = "on" if switch.lossless == "pause" else "off"
    flow = {} if switch.lossless == "leave" else {"rx-flow-control": paused, "tx-flow-control": paused}
    link = {"auto-negotiation": "no", "speed": speed} if speed else {"auto-negotiation": "yes"}
    leg = {**enabled, **link, "fec-mode": fec_of(switch, cage), **flow}
    companions = (name for name in lanes_of(cage) if name not in (*masters, *unused))
    return (
        *(DesiredRow((name,), leg) for name in masters),
        *(DesiredRow((name,), enabled) for name in companions),
        *(DesiredRow((name,), {**enabled, "disabled": "yes"}) for name in unused if speed),
    )


# claim: switch.lanes.companion-sizes
def with_effect(
    switch: Switch, reading: SwitchReading, lanes: Mapping[str, tuple[RowChange, ...]]
) -> dict[str, tuple[RowChange, ...]]:
    """The changes of each cage without those that no frame notices, unless their interruption happens anyway.

    Frames of a leg pass its master only, so the sizes of other lanes have no effect. One exception is inferred: the
    l2mtu of a bridge is the smallest of its enabled ports (general RouterOS behaviour), and companions are ports by
    default. Disabling an unused lane that negotiates has no effect either. A restart of a cage, or the bounce of all
    ports that a change of any l2mtu causes, takes the rest along.
    """
    legs = {name for cage in lanes for name in masters_of(switch, cage)}
    ports = {
        row.get("interface")
        for row in reading.rows(BRIDGE_PORT)
        if row.get("bridge") == switch.bridge and row.get("disabled", "no") not in _YES
    }

    def needed(change: RowChange) -> set[str]:
        names, row = {field.name for field in change.fields}, change.before
        if change.row in legs:
            return names
        if ("disabled", "yes") in change.values and row.get("auto-negotiation", "yes") in _YES:
            names.discard("disabled")
        return names - {"mtu"} if row.get("name") in ports else names - {"mtu", "l2mtu"}

    bounces = any("l2mtu" in needed(change) for changes in lanes.values() for change in changes)

    def kept(change: RowChange, *, restarts: bool) -> RowChange:
        values, names = dict(change.values), needed(change)
        if bounces:
            names |= {"l2mtu"}
        l2mtu = values.get("l2mtu") if "l2mtu" in names else change.before.get("l2mtu")
        if restarts:
            names |= {"disabled"}
            # RouterOS refuses an mtu above the l2mtu.
            if str(l2mtu or "").isdecimal() and int(str(l2mtu)) >= int(str(values.get("mtu", 0))):
                names |= {"mtu"}
        return replace(change, fields=tuple(field for field in change.fields if field.name in names))

    found = {}
    for cage, changes in lanes.items():
        restarts = bounces or any(map(needed, changes))
        some = (kept(change, restarts=restarts) for change in changes)
        found[cage] = tuple(change for change in some if change.fields)
    return found


def describe(cage: str, rows: Mapping[str, Row]) -> str:
    """Describe the configuration of a cage from its rows (by default-name), in the user's words: "4x100G copper",
    "auto-negotiated".

    A configuration without such a word is described by lane: "lane 1 400G-baseCR8, lanes 2-8 auto-negotiated".
    """
    lanes = [_lane_text(rows[name]) for name in lanes_of(cage)]
    for split in cage_kind(cage).breakouts.values():
        for medium, words in SPEED.items():
            word = words[split.gbps, split.lanes_per_leg]
            masters = {lanes[first - 1] for first in split.first_lanes}
            used = {lanes[number - 1] for number in split.lanes}
            unused = {lane for number, lane in enumerate(lanes, start=1) if number not in split.lanes}
            if masters == {word} and "disabled" not in used and unused <= {"disabled", NEGOTIATED}:
                return f"{split.name} {medium}"
    if set(lanes) == {NEGOTIATED}:
        return NEGOTIATED
    return ", ".join(_lane_runs(lanes))


def _lane_text(row: Row) -> str:
    def flag(name: str) -> bool:
        default = ETHERNET.fields[name].default or "no"
        return canonical(ValueKind.FLAG, row.get(name, default)) == "yes"

    if flag("disabled"):
        return "disabled"
    return NEGOTIATED if flag("auto-negotiation") else row.get("speed", "forced to no speed")


def _lane_runs(lanes: list[str]) -> list[str]:
    runs: list[tuple[int, int, str]] = []
    for number, lane in enumerate(lanes, start=1):
        if runs and runs[-1][2] == lane:
            runs[-1] = (runs[-1][0], number, lane)
        else:
            runs.append((number, number, lane))
    return [f"lane {a} {lane}" if a == b else f"lanes {a}-{b} {lane}" for a, b, lane in runs]
