"""What the switch's monitor says of cabled legs: how it is asked, one leg judged, and what is wrong with those that a
run leaves as they are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrack.fleet.errors import one_line, shown

from .batch import Link, Plan
from .cages import SPEED, fec_of, lanes_of, split_of
from .drift_lanes import lane_words
from .ends import switch_end
from .errors import UnreadableError
from .lanes import cabled
from .menus import ETHERNET, Row, Sentence
from .offload import REMEDY, forwarding
from .reading import Ask, Reading
from .values import gbps

if TYPE_CHECKING:
    from sparkrack.fleet import Leg, Rack, Split, Switch

MONITOR = f"{ETHERNET.path}/monitor"
LINKED = "link-ok"
RUNBOOK = "docs/runbooks/switch-verdicts.md"

_LINKING = frozenset({"disabled", "auto-negotiation", "speed", "fec-mode"})
"""What decides whether a lane links, and how. MTU, L2MTU and pause do not."""


@dataclass(frozen=True)
class Judged:
    """What the monitor says of a leg: what is wrong with it, or what it does not tell; both empty when all is well."""

    wrong: str = ""
    untold: str = ""


def monitor(ids: Iterable[str]) -> Sentence:
    """The sentence that asks once for what these interfaces do now."""
    return (MONITOR, f"=numbers={','.join(ids)}", "=once=", "=.proplist=name,status,rate,fec")


def judged(leg: Leg, split: Split, row: Row) -> Judged:
    """One leg by its own row; `{}` when there is none. Companion lanes have rows of their own, which say nothing of
    the leg. The monitor tells no count of lanes: that is in the speed which is forced."""
    status = row.get("status")
    if status in (None, "", "unknown"):
        return Judged(untold="the switch does not tell whether it is linked")
    if status != LINKED:
        return Judged(wrong=f"has no link, the switch says {shown(status)}")
    if gbps(row.get("rate")) is None:
        return Judged(untold="the switch does not tell its speed")
    if fec_of(split) != "auto" and not row.get("fec"):
        return Judged(untold="the switch does not tell its FEC")
    return Judged(wrong=one_line(switch_end(leg, split, row)))


def faults(rack: Rack, switch: Switch, reading: Reading, todo: Plan, ask: Ask) -> tuple[str, ...]:
    """Every cabled leg that is set as declared and does not link so, one line each; no run mends a cable.

    A cage whose lanes are not set as declared is left out: that its legs are down is what `todo` is about. Whether a
    leg's node is in the run makes no difference. Nothing is asked when no leg is left. Raises SwitchError when the
    switch does not answer, UnreadableError when it does not tell of every leg that it was asked for.
    """
    links = as_declared(rack, switch, reading, todo)
    if not links:
        return ()
    rows = ask(monitor(link.id for link in links))
    wrong: list[str] = []
    untold: dict[str, list[str]] = {}
    for link in links:
        mine = [row for row in rows if row.get("name") == link.name]
        said = judged(link.leg, split_of(switch, link.leg.cage), mine[0] if len(mine) == 1 else {})
        if said.untold:
            untold.setdefault(said.untold, []).append(str(link.leg))
        elif said.wrong:
            wrong.append(_told(switch, link, said.wrong))
    if untold:
        raise UnreadableError("; ".join(f"{MONITOR}: {text} ({', '.join(legs)})" for text, legs in untold.items()))
    return tuple(wrong)


def as_declared(rack: Rack, switch: Switch, reading: Reading, todo: Plan) -> list[Link]:
    """The cabled legs of cages whose lanes are set as declared."""
    return [link for link in cabled(rack, switch, reading) if link.leg.cage not in _otherwise(switch, todo)]


def forwarded(links: Iterable[Link], before: Sequence[Row], after: Sequence[Row]) -> tuple[tuple[str, ...], str]:
    """The faults of legs whose frames the CPU forwards, by the counters before and after the look; and what is to be
    known of those without traffic."""
    by_name = {link.leg.interface: link for link in links}
    found = forwarding(before, after, by_name)
    faults = (
        f"leg {link.leg} (cage {link.leg.cage}, {lane_words(link.leg.lanes)}, to {link.port.node} port "
        f"{link.port.number}): the CPU forwards its frames, not the chip, although its port says offloaded; {REMEDY} "
        f"({RUNBOOK})"
        for link in map(by_name.__getitem__, found.by_cpu)
    )
    return tuple(faults), found.note


def _otherwise(switch: Switch, todo: Plan) -> set[str]:
    """The cages with a lane whose settings for the link differ."""
    lanes = {
        change.row
        for change in todo.changes
        if change.menu is ETHERNET and any(field.name in _LINKING for field in change.fields)
    }
    return {cage for cage in switch.cages if lanes & set(lanes_of(cage))}


def _told(switch: Switch, link: Link, wrong: str) -> str:
    leg, split = link.leg, split_of(switch, link.leg.cage)
    speed = SPEED[switch.cages[leg.cage].medium][split.gbps, split.lanes_per_leg]
    return (
        f"leg {leg} (cage {leg.cage}, {lane_words(leg.lanes)}, to {link.port.node} port {link.port.number}): {wrong}; "
        f"set as declared ({speed}, FEC {fec_of(split)}), so look at the cable and its other end ({RUNBOOK})"
    )
