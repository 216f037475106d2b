"""Evaluation of a switch's answers by rack.yaml. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.model import Leg, Port, Rack
from core.model.errors import printable_line, truncate
from core.routeros.errors import UnreadableError
from core.routeros.menus import Row
from core.routeros.values import milliseconds
from sparkrack.status.model import About, LegStatus, StatusFinding, SwitchStatus
from switch.advisories import COMPROMISED, marked_as_compromised, release_faults, release_notes
from switch.cages import fec_of
from switch.leg_health import LINKED, leg_state
from switch.offload import REMEDY, Forwarding


@dataclass(frozen=True)
class SwitchAnswers:
    """Answers of a switch: its own data, the monitor of each cabled leg by its interface, the rows of its sensors (None
    if its reader may not see them), the rollback timers on it, whether a session holds safe mode, how the frames of the
    linked legs are forwarded, and its device mode (None if it does not report it).
    """

    resource: Row
    identity: Row
    links: Mapping[str, Row]
    health: Sequence[Row] | None
    armed: Sequence[str] = ()
    safe_mode: bool = False
    frames: Forwarding = field(default_factory=Forwarding)
    device_mode: Sequence[Row] | None = ()


@dataclass
class _SwitchFindings:
    wrong: list[StatusFinding] = field(default_factory=list)
    unknown: list[StatusFinding] = field(default_factory=list)

    def add_unknown(self, about: About, text: str) -> None:
        self.unknown.append(StatusFinding(about=about, text=text))


def switch(rack: Rack, name: str, answers: SwitchAnswers) -> SwitchStatus:
    """Evaluate the answers of a switch."""
    found = _SwitchFindings()
    sensors = dict(_sensor_values(answers.health or ()))
    heat = [float(value) for sensor, value in sensors.items() if "temperature" in sensor and _is_number(value)]
    running = tuple(_armed_timers(answers, found))
    known = tuple(_judge_advisories(rack, name, answers, found))
    states = [f"{sensor} is {truncate(value)}" for sensor, value in sensors.items() if sensor.endswith("-state")]
    return SwitchStatus(
        name=name,
        reachable=True,
        uptime=_uptime_seconds(answers.resource, found),
        version=_known_text(answers.resource.get("version"), About.VERSION, found),
        identity=_judge_identity(rack, name, answers.identity, found),
        legs=tuple(
            _leg_status(rack, leg, port, answers.links.get(leg.interface, {}), answers.frames.by_cpu, found)
            for leg, port in _cabled_legs(rack, name)
        ),
        temperature=max(heat, default=None),
        wrong=tuple(found.wrong),
        unknown=tuple(found.unknown),
        # A power supply without a cable is nothing that rack.yaml forbids.
        notes=(
            *running,
            *known,
            *filter(None, [answers.frames.note]),
            *(state for state in states if not state.endswith(" is ok")),
        ),
    )


def silent(rack: Rack, name: str, why: str) -> SwitchStatus:
    """Return the status of a switch that did not answer."""
    legs = tuple(LegStatus(interface=leg.interface, port=str(port)) for leg, port in _cabled_legs(rack, name))
    return SwitchStatus(
        name=name, reachable=False, legs=legs, unknown=(StatusFinding(about=About.ALL, text=printable_line(why)),)
    )


def _cabled_legs(rack: Rack, name: str) -> tuple[tuple[Leg, Port], ...]:
    return rack.cabling.legs(name)


def _known_text(value: str | None, about: About, found: _SwitchFindings) -> str | None:
    if not value:
        found.add_unknown(about, f"the switch does not report its {about}")
        return None
    return truncate(value)


def _uptime_seconds(row: Row, found: _SwitchFindings) -> int | None:
    try:
        return milliseconds(row.get("uptime", "")) // 1000
    except ValueError:
        found.add_unknown(About.UPTIME, "the switch does not report its uptime")
        return None


def _judge_identity(rack: Rack, name: str, row: Row, found: _SwitchFindings) -> str | None:
    identity, wanted = _known_text(row.get("name"), About.IDENTITY, found), rack.switches[name].identity
    if identity is not None and wanted not in (None, row["name"]):
        found.wrong.append(StatusFinding(about=About.IDENTITY, text=f"identity is {identity}, wanted {wanted}"))
    return identity


def _leg_status(
    rack: Rack, leg: Leg, port: Port, row: Row, by_cpu: Collection[str], found: _SwitchFindings
) -> LegStatus:
    state = leg_state(leg, fec_of(rack.switches[leg.switch], leg.cage), row)
    if state.unknown:
        found.add_unknown(About.LEGS, f"leg {leg.interface} ({port}): {state.unknown}")
    if state.wrong:
        found.wrong.append(StatusFinding(about=About.LEGS, text=f"leg {leg.interface} ({port}): {state.wrong}"))
    if leg.interface in by_cpu:
        text = f"leg {leg.interface} ({port}): the CPU forwards its frames, not the chip; {REMEDY}"
        found.wrong.append(StatusFinding(about=About.LEGS, text=text))
    status, rate = row.get("status"), row.get("rate")
    if status in (None, "", "unknown"):
        return LegStatus(interface=leg.interface, port=str(port))
    return LegStatus(
        interface=leg.interface,
        port=str(port),
        status=truncate(status),
        rate=rate and truncate(rate),
        up=status == LINKED,
    )


def _armed_timers(answers: SwitchAnswers, found: _SwitchFindings) -> Iterator[str]:
    """During a run a timer is armed, and that run holds safe mode nearly all the time; a timer that is armed without it
    was left by an interrupted run.
    """
    for name in map(truncate, answers.armed):
        if answers.safe_mode:
            yield f"a run is in progress: rollback timer {name} is armed and safe mode is held"
        else:
            text = f"rollback timer {name} is armed and will undo an interrupted run; disarm it: sparkrack apply"
            found.wrong.append(StatusFinding(about=About.ROLLBACK_TIMER, text=text))


def _judge_advisories(rack: Rack, name: str, answers: SwitchAnswers, found: _SwitchFindings) -> Iterator[str]:
    """Judge the release and RouterOS's mark of a break-in; yield what is only a note."""
    version = answers.resource.get("version", "")
    found.wrong += [
        StatusFinding(about=About.VERSION, text=printable_line(text))
        for text in release_faults(rack.switches[name], version)
    ]
    yield from map(printable_line, release_notes(rack.switches[name], version))
    try:
        marked = None if answers.device_mode is None else marked_as_compromised(answers.device_mode)
    except UnreadableError:
        marked = None
    if marked is None:
        found.add_unknown(About.DEVICE_MODE, "the switch does not report whether RouterOS has marked it as compromised")
    elif marked:
        found.wrong.append(StatusFinding(about=About.DEVICE_MODE, text=COMPROMISED))


def _sensor_values(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    for row in rows:
        if "name" in row and "value" in row:
            yield truncate(row["name"]), row["value"]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,3}(\.\d{1,3})?", text, re.ASCII) is not None
