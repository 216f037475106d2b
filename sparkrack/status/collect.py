"""Everything that the screen shows, put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from sparkrack.fleet import Rack, RackError
from sparkrack.fleet.errors import one_line
from sparkrack.fleet.pins import lock_path, read
from sparkrack.status import node, switch
from sparkrack.status.ask import Said, Silent
from sparkrack.status.history import HistoryError, last_drift, last_run
from sparkrack.status.model import About, Finding, Lock, NodeStatus, Status, SwitchStatus
from sparkrack.status.switch import SwitchSaid

_T = TypeVar("_T")


def collect(rack: Rack, machines: Collection[str], said: Mapping[str, Said], state: Path, made: datetime) -> Status:
    """The status of these machines. `said`: what each answered; `state`: the state folder of the rack; `made`: when
    they were asked."""
    pins, lock = _pins(rack), Lock(told=False)
    nodes: list[NodeStatus] = []
    switches: list[SwitchStatus] = []
    for name in machines:
        match said[name]:
            case SwitchSaid() as rows:
                switches.append(switch.switch(rack, name, rows))
            case Silent(why) if name in rack.switches:
                switches.append(switch.silent(rack, name, why))
            case Silent(why):
                nodes.append(node.silent(rack, name, why))
            case str(output):
                one, found = node.node(rack, name, output, pins)
                nodes.append(one)
                lock = found if found.told else lock
    unknown: list[Finding] = []
    drift = _kept(About.LAST_DRIFT, lambda: last_drift(state), unknown)
    run = _kept(About.LAST_RUN, lambda: last_run(state), unknown)
    return Status(
        rack=rack.rack,
        file=str(rack.source),
        made=made,
        nodes=tuple(nodes),
        switches=tuple(switches),
        lock=lock,
        drift=drift,
        run=run,
        unknown=tuple(unknown),
    )


def _pins(rack: Rack) -> node.Pins:
    try:
        return read(lock_path(rack.source))
    except RackError as fault:
        return node.Unread(one_line(str(fault)))


def _kept(about: About, look: Callable[[], _T | None], unknown: list[Finding]) -> _T | None:
    try:
        return look()
    except HistoryError as fault:
        unknown.append(Finding(about=about, text=str(fault)))
        return None
