"""What Prometheus has of the switches: their last readings, and why one has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core.model import Rack
from roles.watch import desired, switch_reader
from roles.watch.options import WatchOptions
from sparkrack.watch.model import WatchedLeg, WatchedSwitch
from sparkrack.watch.prometheus_api import Sample

SWITCH_QUERIES: Mapping[str, str] = {
    "age": "min by (switch) (time() - sparkrack_switch_reading_timestamp_seconds)",
    "up": "max by (switch) (sparkrack_switch_up)",
    "temperature": "max by (switch) (sparkrack_switch_temperature_celsius)",
    "fans": "count by (switch) (sparkrack_switch_fan_rpm)",
    "fans_turning": "sum by (switch) (sparkrack_switch_fan_rpm > bool 0)",
    "psus_ok": "sum by (switch) (sparkrack_switch_psu_ok)",
    "psus_expected": "max by (switch) (sparkrack_switch_psus_expected)",
    # Counters are read once a minute.
    "pauses": "sum by (switch) (rate(sparkrack_switch_leg_pause_frames_total[5m]))",
    "drops": "sum by (switch) (rate(sparkrack_switch_leg_drops_total[5m]))",
}
"""One value a switch."""
LEG_QUERIES: Mapping[str, str] = {
    "up": "max by (switch, leg) (sparkrack_switch_leg_up)",
    "rate": "max by (switch, leg) (sparkrack_switch_leg_bits_per_second)",
    "fec": "max by (switch, leg, mode) (sparkrack_switch_leg_fec)",
}
"""One value a leg."""
STATE_QUERIES: Mapping[str, str] = {
    "problem": "sparkrack_switch_problem == 1",
    "unread": "sparkrack_switch_part_read == 0",
}
"""Series of the reasons for which there are no values."""
_COUNTED = ("fans", "fans_turning", "psus_ok", "psus_expected")

Samples = Mapping[str, Sequence[Sample]]
Ask = Callable[[str, str], list[Sample]]
"""Gives the samples of a query, by the name of what it is about."""


def collect_switches(
    rack: Rack, names: Sequence[str], ask: Ask, nodes_up: Mapping[str, float]
) -> tuple[WatchedSwitch, ...]:
    """Return the last readings of these switches. Raises what `ask` does."""
    if not set(names) & switch_reader.switches(rack).keys():
        return tuple(_unread_switch(rack, name, _not_declared(rack, name), declared=False) for name in names)
    found = {key: ask(f"switches: {key}", query) for key, query in (*SWITCH_QUERIES.items(), *STATE_QUERIES.items())}
    legs = {key: ask(f"legs: {key}", query) for key, query in LEG_QUERIES.items()}
    return tuple(_watched_switch(rack, name, found, legs, nodes_up) for name in names)


def _watched_switch(
    rack: Rack, name: str, found: Samples, legs: Samples, nodes_up: Mapping[str, float]
) -> WatchedSwitch:
    if why := _not_declared(rack, name):
        return _unread_switch(rack, name, why, declared=False)
    values = {key: _switch_value(name, found[key]) for key in SWITCH_QUERIES}
    age, up = values.pop("age"), values.pop("up")
    server = desired.server(rack)
    assert server is not None  # noqa: S101 - for mypy: without a server in the rack no switch is read
    if age is None or up is None:
        answers = nodes_up.get(server.name)
        why = f"the exporter of {server.name}, which reads it, is silent" if answers == 0 else "there is no reading"
        return _unread_switch(rack, name, f"{why}; see {switch_reader.TIMER} of {server.name}" if answers else why)
    if age > switch_reader.STALE:
        why = f"the reading is {age / 60:.0f} min old; see {switch_reader.TIMER} of {server.name}"
        return _unread_switch(rack, name, why, age=age)
    if not up:
        problems = ", ".join(one.labels.get("problem", "") for one in found["problem"] if one.labels["switch"] == name)
        return _unread_switch(
            rack, name, f"it does not answer its reader: {problems or 'reason unknown'}", age=age, up=False
        )
    counts = {key: None if (value := values.pop(key)) is None else int(value) for key in _COUNTED}
    return WatchedSwitch(
        name=name,
        declared=True,
        up=True,
        reason="",
        unread=tuple(one.labels.get("part", "") for one in found["unread"] if one.labels["switch"] == name),
        age=age,
        temperature=values["temperature"],
        pauses=values["pauses"],
        drops=values["drops"],
        **counts,
        legs=tuple(_watched_leg(leg, to, legs) for leg, to in _cabled_legs(rack, name)),
    )


def _not_declared(rack: Rack, name: str) -> str:
    """Return why the server is not to read a switch; empty where it is."""
    if name in switch_reader.switches(rack):
        return ""
    if desired.server(rack) is None:
        return "not read: the server of the watch is outside of the rack"
    if rack.options(WatchOptions).switch is False:
        return "not read: watch.switch is false"
    return f"not read: switches.{name} has no reader"


def _unread_switch(
    rack: Rack, name: str, reason: str, *, declared: bool = True, age: float | None = None, up: bool | None = None
) -> WatchedSwitch:
    """Return a switch without values."""
    return WatchedSwitch(
        name=name,
        declared=declared,
        up=up,
        reason=reason,
        unread=(),
        age=age,
        temperature=None,
        fans=None,
        fans_turning=None,
        psus_ok=None,
        psus_expected=None,
        pauses=None,
        drops=None,
        legs=tuple(WatchedLeg(leg=leg, to=to, up=None, gbps=None, fec=None) for leg, to in _cabled_legs(rack, name)),
    )


def _cabled_legs(rack: Rack, name: str) -> list[tuple[str, str]]:
    """Return the cabled legs of a switch, each with the port at its other end, as their series name them."""
    return [(f"{name}/{leg.interface}", str(port)) for leg, port in rack.cabling.legs(name)]


def _watched_leg(leg: str, to: str, found: Samples) -> WatchedLeg:
    up, rate = (next((one.value for one in found[key] if one.labels.get("leg") == leg), None) for key in ("up", "rate"))
    mode = next((one.labels.get("mode") for one in found["fec"] if one.labels.get("leg") == leg), None)
    return WatchedLeg(
        leg=leg, to=to, up=None if up is None else up == 1, gbps=None if rate is None else rate / 1e9, fec=mode
    )


def _switch_value(name: str, samples: Sequence[Sample]) -> float | None:
    return next((one.value for one in samples if one.labels.get("switch") == name), None)
