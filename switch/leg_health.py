"""State of cabled legs from the switch's monitor: the query, the evaluation of one leg, and the problems of legs that a
run does not change. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.model.errors import printable_line, truncate
from core.routeros.change_plan import AffectedLink, ChangePlan
from core.routeros.errors import UnreadableError
from core.routeros.menus import ETHERNET, Row, Sentence
from core.routeros.reading import Ask, SwitchReading
from core.routeros.values import gbps
from switch.cages import fec_of, lanes_of, speed_of
from switch.lane_differences import lane_words
from switch.link_ends import switch_end
from switch.offload import REMEDY, forwarding
from switch.port_changes import cabled

if TYPE_CHECKING:
    from core.model import Leg, Rack, Switch

MONITOR = f"{ETHERNET.path}/monitor"
LINKED = "link-ok"
RUNBOOK = "docs/runbooks/switch-verdicts.md"

_LINKING = frozenset({"disabled", "auto-negotiation", "speed", "fec-mode"})
"""Fields that decide whether and how a lane links. MTU, L2MTU and pause do not."""


@dataclass(frozen=True)
class LegState:
    """The monitor's state of a leg: its problem, or the missing value; both empty for a healthy leg."""

    wrong: str = ""
    unknown: str = ""


def monitor(ids: Iterable[str]) -> Sentence:
    """The sentence that asks once for what these interfaces do now."""
    return (MONITOR, f"=numbers={','.join(ids)}", "=once=", "=.proplist=name,status,rate,fec")


# claim: switch.monitor.fields
def leg_state(leg: Leg, fec: str, row: Row) -> LegState:
    """Evaluate one leg with the desired `fec-mode` by its own row; `{}` when there is none. The rows of companion lanes
    say nothing about the leg. The monitor does not report the number of lanes: it is part of the forced speed.
    """
    status = row.get("status")
    if status in (None, "", "unknown"):
        return LegState(unknown="the switch does not report whether it is linked")
    if status != LINKED:
        return LegState(wrong=f"has no link, the switch reports {truncate(status)}")
    if gbps(row.get("rate")) is None:
        return LegState(unknown="the switch does not report its speed")
    if fec != "auto" and not row.get("fec"):
        return LegState(unknown="the switch does not report its FEC")
    return LegState(wrong=printable_line(switch_end(leg, fec, row)))


def leg_problems(rack: Rack, switch: Switch, reading: SwitchReading, todo: ChangePlan, ask: Ask) -> tuple[str, ...]:
    """Return every cabled leg that is configured as declared but not linked accordingly, one line each; no run fixes a
    cable.

    A cage whose lanes differ from the declaration is left out: `todo` explains why its legs are down. It does not
    matter whether a leg's node is in the run. Nothing is read when no leg is left. Raises SwitchError when the switch
    does not answer, UnreadableError when its answer lacks a requested leg.
    """
    links = as_declared(rack, switch, reading, todo)
    if not links:
        return ()
    rows = ask(monitor(link.id for link in links))
    wrong: list[str] = []
    unknown: dict[str, list[str]] = {}
    for link in links:
        own = [row for row in rows if row.get("name") == link.name]
        state = leg_state(link.leg, fec_of(switch, link.leg.cage), own[0] if len(own) == 1 else {})
        if state.unknown:
            unknown.setdefault(state.unknown, []).append(str(link.leg))
        elif state.wrong:
            wrong.append(_describe_faulty_leg(switch, link, state.wrong))
    if unknown:
        raise UnreadableError("; ".join(f"{MONITOR}: {text} ({', '.join(legs)})" for text, legs in unknown.items()))
    return tuple(wrong)


def as_declared(rack: Rack, switch: Switch, reading: SwitchReading, todo: ChangePlan) -> list[AffectedLink]:
    """The cabled legs of cages whose lanes are set as declared."""
    return [
        link for link in cabled(rack, switch, reading) if link.leg.cage not in _cages_with_other_settings(switch, todo)
    ]


def forwarded(
    links: Iterable[AffectedLink], before: Sequence[Row], after: Sequence[Row]
) -> tuple[tuple[str, ...], str]:
    """Return the problems of legs whose frames the CPU forwards, by the counters before and after the reading; and
    notes about those without traffic.
    """
    by_name = {link.leg.interface: link for link in links}
    found = forwarding(before, after, by_name)
    faults = (
        f"leg {link.leg} (cage {link.leg.cage}, {lane_words(link.leg.lanes)}, to {link.port.node} port "
        f"{link.port.number}): the CPU forwards its frames, not the chip, although its port says offloaded; {REMEDY} "
        f"({RUNBOOK})"
        for link in map(by_name.__getitem__, found.by_cpu)
    )
    return tuple(faults), found.note


def _cages_with_other_settings(switch: Switch, todo: ChangePlan) -> set[str]:
    """The cages with a lane whose settings for the link differ."""
    lanes = {
        change.row
        for change in todo.changes
        if change.menu is ETHERNET and any(field.name in _LINKING for field in change.fields)
    }
    return {cage for cage in switch.cages if lanes & set(lanes_of(cage))}


def _describe_faulty_leg(switch: Switch, link: AffectedLink, wrong: str) -> str:
    leg = link.leg
    speed = speed_of(switch, leg.cage) or "negotiated"
    return (
        f"leg {leg} (cage {leg.cage}, {lane_words(leg.lanes)}, to {link.port.node} port {link.port.number}): {wrong}; "
        f"set as declared ({speed}, FEC {fec_of(switch, leg.cage)}), so look at the cable and its other end ({RUNBOOK})"
    )
