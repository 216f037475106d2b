"""Everything that the screen shows, put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from core.model import ConfigError, Rack
from core.model.errors import printable_line
from core.model.image_lock import read
from core.model.lock_file import lock_path
from roles.blackbox.options import BlackboxOptions
from sparkrack.status import node, switch
from sparkrack.status.collect_answers import Answer, NoAnswer
from sparkrack.status.drills import latest_drills
from sparkrack.status.history import StatusHistoryError, last_drift, last_run
from sparkrack.status.model import (
    About,
    LastDrill,
    LockStatus,
    NodeStatus,
    ServedUnitState,
    Status,
    StatusFinding,
    SwitchStatus,
)
from sparkrack.status.switch import SwitchAnswers
from sparkrack.status.units import unit_states

_T = TypeVar("_T")


def build_status(
    rack: Rack, machines: Collection[str], answers: Mapping[str, Answer], state: Path, made: datetime
) -> Status:
    """Return the status of these hosts. `answers`: the answer of each; `state`: the state folder of the rack;
    `made`: when they were asked.
    """
    pins, lock = _locked_pins(rack), LockStatus(known=False)
    nodes: list[NodeStatus] = []
    switches: list[SwitchStatus] = []
    units: list[ServedUnitState] = []
    for name in machines:
        match answers[name]:
            case SwitchAnswers() as rows:
                switches.append(switch.switch(rack, name, rows))
            case NoAnswer(why) if name in rack.switches:
                switches.append(switch.silent(rack, name, why))
            case NoAnswer(why):
                nodes.append(node.silent(rack, name, why))
                units += unit_states(rack, name, None)
            case str(output):
                one, found = node.node(rack, name, output, pins)
                nodes.append(one)
                units += unit_states(rack, name, output)
                lock = found if found.known else lock
    unknown: list[StatusFinding] = []
    drift = _kept_record(About.LAST_DRIFT, lambda: last_drift(state), unknown)
    run = _kept_record(About.LAST_RUN, lambda: last_run(state), unknown)
    drill = _kept_record(About.LAST_DRILL, lambda: _last_drill(state), unknown)
    return Status(
        rack=rack.rack,
        file=str(rack.source),
        made=made,
        nodes=tuple(nodes),
        switches=tuple(switches),
        lock=lock,
        drift=drift,
        run=run,
        drill=drill,
        blackbox=rack.declared(BlackboxOptions) is not None,
        units=tuple(units),
        unknown=tuple(unknown),
    )


def _last_drill(state: Path) -> LastDrill | None:
    newest = max(latest_drills(state), key=lambda one: one.made, default=None)
    if newest is None:
        return None
    return LastDrill(node=newest.node, level=newest.level, made=newest.made, passed=newest.passed)


def _locked_pins(rack: Rack) -> node.Pins:
    try:
        return read(lock_path(rack.source))
    except ConfigError as fault:
        return node.Unread(printable_line(str(fault)))


def _kept_record(about: About, look: Callable[[], _T | None], unknown: list[StatusFinding]) -> _T | None:
    try:
        return look()
    except StatusHistoryError as fault:
        unknown.append(StatusFinding(about=about, text=str(fault)))
        return None
