"""What a switch's answers mean, judged by rack.yaml. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkrack.fleet import Leg, Port, Rack
from sparkrack.fleet.errors import one_line, shown
from sparkrack.status.model import About, Finding, LegStatus, SwitchStatus
from switch.cages import split_of
from switch.legs import LINKED, judged
from switch.menus import Row
from switch.offload import REMEDY, Forwarding
from switch.values import milliseconds


@dataclass(frozen=True)
class SwitchSaid:
    """What a switch says: of itself, the monitor of each cabled leg by its interface, the rows of its sensors (None
    where its reader may not see them), the rollback timers on it, whether a session holds safe mode, and who forwards
    the frames of the legs that are linked."""

    resource: Row
    identity: Row
    links: Mapping[str, Row]
    health: Sequence[Row] | None
    armed: Sequence[str] = ()
    safe_mode: bool = False
    frames: Forwarding = field(default_factory=Forwarding)


@dataclass
class _Findings:
    wrong: list[Finding] = field(default_factory=list)
    unknown: list[Finding] = field(default_factory=list)

    def untold(self, about: About, text: str) -> None:
        self.unknown.append(Finding(about=about, text=text))


def switch(rack: Rack, name: str, said: SwitchSaid) -> SwitchStatus:
    """What a switch that answered says."""
    found = _Findings()
    told = dict(_sensors(said.health or ()))
    heat = [float(value) for sensor, value in told.items() if "temperature" in sensor and _is_number(value)]
    running = tuple(_timers(said, found))
    states = [f"{sensor} is {shown(value)}" for sensor, value in told.items() if sensor.endswith("-state")]
    return SwitchStatus(
        name=name,
        reachable=True,
        uptime=_uptime(said.resource, found),
        version=_text(said.resource.get("version"), About.VERSION, found),
        identity=_identity(rack, name, said.identity, found),
        legs=tuple(
            _leg(rack, leg, port, said.links.get(leg.interface, {}), said.frames.by_cpu, found)
            for leg, port in _legs(rack, name)
        ),
        temperature=max(heat, default=None),
        wrong=tuple(found.wrong),
        unknown=tuple(found.unknown),
        # A power supply without a cable is nothing that rack.yaml forbids.
        notes=(
            *running,
            *filter(None, [said.frames.note]),
            *(state for state in states if not state.endswith(" is ok")),
        ),
    )


def silent(rack: Rack, name: str, why: str) -> SwitchStatus:
    """A switch that did not answer."""
    legs = tuple(LegStatus(interface=leg.interface, port=str(port)) for leg, port in _legs(rack, name))
    return SwitchStatus(name=name, reachable=False, legs=legs, unknown=(Finding(about=About.ALL, text=one_line(why)),))


def _legs(rack: Rack, name: str) -> tuple[tuple[Leg, Port], ...]:
    return rack.cabling.legs(name)


def _text(value: str | None, about: About, found: _Findings) -> str | None:
    if not value:
        found.untold(about, f"the switch does not tell its {about}")
        return None
    return shown(value)


def _uptime(row: Row, found: _Findings) -> int | None:
    try:
        return milliseconds(row.get("uptime", "")) // 1000
    except ValueError:
        found.untold(About.UPTIME, "the switch does not tell its uptime")
        return None


def _identity(rack: Rack, name: str, row: Row, found: _Findings) -> str | None:
    identity, wanted = _text(row.get("name"), About.IDENTITY, found), rack.switches[name].identity
    if identity is not None and wanted not in (None, row["name"]):
        found.wrong.append(Finding(about=About.IDENTITY, text=f"identity is {identity}, wanted {wanted}"))
    return identity


def _leg(rack: Rack, leg: Leg, port: Port, row: Row, by_cpu: Collection[str], found: _Findings) -> LegStatus:
    said = judged(leg, split_of(rack.switches[leg.switch], leg.cage), row)
    if said.untold:
        found.untold(About.LEGS, f"leg {leg.interface} ({port}): {said.untold}")
    if said.wrong:
        found.wrong.append(Finding(about=About.LEGS, text=f"leg {leg.interface} ({port}): {said.wrong}"))
    if leg.interface in by_cpu:
        text = f"leg {leg.interface} ({port}): the CPU forwards its frames, not the chip; {REMEDY}"
        found.wrong.append(Finding(about=About.LEGS, text=text))
    status, rate = row.get("status"), row.get("rate")
    if status in (None, "", "unknown"):
        return LegStatus(interface=leg.interface, port=str(port))
    return LegStatus(
        interface=leg.interface, port=str(port), status=shown(status), rate=rate and shown(rate), up=status == LINKED
    )


def _timers(said: SwitchSaid, found: _Findings) -> Iterator[str]:
    """A timer is armed while a run is in progress, and that run holds safe mode nearly all the time; one that is armed
    otherwise was left by a run that was interrupted."""
    for name in map(shown, said.armed):
        if said.safe_mode:
            yield f"a run is in progress: rollback timer {name} is armed and safe mode is held"
        else:
            text = f"rollback timer {name} is armed and will undo an interrupted run; disarm it: sparkrack apply"
            found.wrong.append(Finding(about=About.ROLLBACK_TIMER, text=text))


def _sensors(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    for row in rows:
        if "name" in row and "value" in row:
            yield shown(row["name"]), row["value"]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?\d{1,3}(\.\d{1,3})?", text, re.ASCII) is not None
