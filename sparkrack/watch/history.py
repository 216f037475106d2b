"""What the page of `sparkrack watch` draws of the last hours: curves with limits, boots, and alerts that fired."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from core.model.errors import printable_line
from core.util import resources
from roles.watch import rules
from sparkrack.watch.prometheus_api import PrometheusApi, PrometheusError, Range, Sample, SilentError

HOURS = 6
POINTS = 240
T = TypeVar("T")
_SILENT = {"node": "NodeSilent", "unit": "EngineDown", "switch": "SwitchSilent", "leg": "LinkDown"}
"""The alert that is about a whole machine, by what a curve is of."""


@dataclass(frozen=True)
class Limit:
    """A line that a curve is compared with.

    Attributes:
        alert: the alert that compares with it.
        text: what it means; the value stands before it.
        query: gives its value of each machine, in the unit of the curve; empty: it is the number in the alert's rule.
        factor: what the number of the rule is multiplied by to be in the unit of the curve.
    """

    alert: str
    text: str
    query: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Curve:
    """One picture of each machine: a line for each value of the label `line`, or one line.

    Attributes:
        of: the label that names what it is about: node, switch, leg or unit.
        alerts: the alerts, beside those of the limits, during which it is shaded.
    """

    of: str
    title: str
    unit: str
    query: str
    limits: tuple[Limit, ...] = ()
    alerts: tuple[str, ...] = ()

    @property
    def shaded(self) -> tuple[str, ...]:
        """The alerts during which it is shaded: its own, and that of a machine that does not answer."""
        return (*(limit.alert for limit in self.limits), *self.alerts, _SILENT[self.of])


def _named_lines(**queries: str) -> str:
    """A query of several lines: each under the name of its argument."""
    named = [f'label_replace({query}, "line", "{name.replace("_", " ")}", "", "")' for name, query in queries.items()]
    return " or ".join(named)


def _line_for_each(query: str, label: str) -> str:
    """A query with a line for each value of a label."""
    return f'label_replace({query}, "line", "$1", "{label}", "(.*)")'


def leg_bytes(direction: str) -> str:
    """Return the query of the bytes a second of each leg, as the node at its other end counts them."""
    rate = f'sum by (node, port, half) (rate(sparkrack_rdma_bytes_total{{direction="{direction}"}}[2m]))'
    legs = 'max by (node, port, half, leg) (sparkrack_half_info{leg!=""})'
    return f"sum by (leg) ({rate} * on(node, port, half) group_right() {legs})"


def _leg_frames(counter: str) -> str:
    return f"sum by (leg) (rate(sparkrack_switch_leg_{counter}[5m]))"


def unit_tokens(kind: str) -> str:
    """Return the query of the tokens a second of each unit: generation or prompt."""
    return f"sum by (unit) (rate(vllm:{kind}_tokens_total[2m]) or rate(sglang:{kind}_tokens_total[2m]))"


LEG_BITS = "max by (leg) (sparkrack_switch_leg_bits_per_second or 0 * (sparkrack_switch_leg_up == 0))"
"""The speed of the link of each leg; 0 without a link."""


CURVES = (
    Curve(
        "node",
        "Clock of the GPU",
        "MHz",
        "max by (node) (sparkrack_gpu_sm_clock_hertz) / 1e6",
        (
            Limit("ClockAboveCap", "the declared cap", "max by (node) (sparkrack_gpu_declared_clock_cap_hertz) / 1e6"),
            Limit("ClockStuckLow", "too low for a GPU that works", factor=1e-6),
        ),
    ),
    Curve("node", "Load of the GPU", "%", "100 * max by (node) (sparkrack_gpu_utilization_ratio)"),
    Curve("node", "Power of the GPU", "W", "max by (node) (sparkrack_gpu_power_watts)"),
    Curve(
        "node",
        "Margin of the GPU to its thermal limit",
        "°C",
        "min by (node) (sparkrack_gpu_tlimit_margin_celsius)",
        (Limit("GpuMarginGone", "no margin left"),),
    ),
    Curve(
        "node",
        "What holds the clock of the GPU down",
        "% of the time",
        _line_for_each("100 * max by (node, reason) (sparkrack_gpu_clock_event) > 0", "reason"),
        (Limit("GpuSlowdown", "too long, for a reason of heat or power supply", factor=100),),
    ),
    Curve(
        "node",
        "Hottest thermal zone",
        "°C",
        "max by (node) (node_thermal_zone_temp)",
        (Limit("HotZone", "too hot"),),
    ),
    Curve(
        "node",
        "Memory available",
        "GiB",
        'max by (node) (node_memory_MemAvailable_bytes{job="node"}) / 1024^3',
        (
            Limit("MemoryNearFloor", "near the floor", "1.5 * max by (node) (sparkrack_memory_floor_bytes) / 1024^3"),
            Limit("GuardFired", "the floor", "max by (node) (sparkrack_memory_floor_bytes) / 1024^3"),
        ),
        ("OutOfMemoryKill", "DriverOutOfMemory"),
    ),
    Curve(
        "node",
        "All tasks wait for memory",
        "% of the time",
        '100 * max by (node) (rate(node_pressure_memory_stalled_seconds_total{job="node"}[2m]))',
        (Limit("MemoryStalls", "a freeze begins", factor=100),),
    ),
    Curve(
        "node",
        "Fabric",
        "Gbit/s",
        _named_lines(
            received="sum by (node) (rate(node_infiniband_port_data_received_bytes_total[2m])) * 8 / 1e9",
            sent="sum by (node) (rate(node_infiniband_port_data_transmitted_bytes_total[2m])) * 8 / 1e9",
        ),
        (),
        ("LinkDown", "LinkSlow", "LinkFlaps", "HalfMissing", "MtuChanged", "OneRail", "EngineOffFabric"),
    ),
    Curve("node", "Load", "tasks", 'max by (node) (node_load1{job="node"})'),
    Curve(
        "unit",
        "Tokens",
        "a second",
        _named_lines(generated=unit_tokens("generation"), of_prompts=unit_tokens("prompt")),
        (),
        ("EngineHangs",),
    ),
    Curve(
        "unit",
        "Requests",
        "",
        _named_lines(
            running="sum by (unit) (vllm:num_requests_running or sglang:num_running_reqs)",
            waiting="sum by (unit) (vllm:num_requests_waiting or sglang:num_queue_reqs)",
        ),
        (Limit("QueueGrows", "many wait"),),
    ),
    Curve(
        "unit",
        "Cache in use",
        "%",
        "100 * max by (unit) (vllm:kv_cache_usage_perc or sglang:token_usage)",
        (Limit("KvCacheFull", "full", factor=100),),
        ("Preemptions",),
    ),
    Curve(
        "switch",
        "Temperature",
        "°C",
        _line_for_each("max by (switch, sensor) (sparkrack_switch_temperature_celsius)", "sensor"),
        (Limit("SwitchHot", "too hot"),),
    ),
    Curve(
        "switch",
        "Fans",
        "rpm",
        _line_for_each("max by (switch, fan) (sparkrack_switch_fan_rpm)", "fan"),
        (),
        ("SwitchFan",),
    ),
    Curve(
        "switch",
        "Power supplies in order",
        "",
        "sum by (switch) (sparkrack_switch_psu_ok)",
        (Limit("SwitchPsu", "expected", "max by (switch) (sparkrack_switch_psus_expected)"),),
    ),
    Curve(
        "leg",
        "Link and traffic",
        "Gbit/s",
        _named_lines(
            link=f"{LEG_BITS} / 1e9",
            to_the_node=f"{leg_bytes('rx')} * 8 / 1e9",
            from_the_node=f"{leg_bytes('tx')} * 8 / 1e9",
        ),
        (
            Limit(
                "LinkSlow",
                "the declared speed",
                "max by (leg) (sparkrack_half_declared_bits_per_second"
                ' * on(node, device) group_left(leg) sparkrack_half_info{leg!=""}) / 1e9',
            ),
        ),
        ("LinkFlaps",),
    ),
    Curve(
        "leg",
        "Frames",
        "a second",
        _named_lines(
            dropped=_leg_frames("drops_total"),
            with_errors=_leg_frames("errors_total"),
            pauses_received=_leg_frames('pause_frames_total{direction="received"}'),
            pauses_sent=_leg_frames('pause_frames_total{direction="sent"}'),
        ),
        (),
        ("SwitchDrops", "SwitchErrors", "PauseStorm", "NicDiscards", "FecErrors"),
    ),
)
"""What is drawn of each node, unit, switch and leg of a switch."""

BOOTS = 'max by (node) (node_boot_time_seconds{job="node"})'
LEGS = 'sparkrack_half_info{leg!=""}'
FIRED = (
    "max by (alertname, severity, node, host, switch, leg, unit, device)"
    ' (max_over_time(ALERTS{{alertstate="firing",severity!="none"}}[{step:.0f}s]))'
)
"""The alerts that fired within each step: one that fired for a shorter time is not lost. One of severity none fires as
long as there is a Prometheus.
"""
_ALERTS = (*rules.ALERTS, "files/alerts-switch.yml")
_SAME_BOOT = 60.0
"""Seconds by which two times of one boot can differ: the clock was set."""


@dataclass(frozen=True)
class Window:
    """The time that is drawn, in seconds since 1970."""

    start: float
    end: float

    @property
    def step(self) -> float:
        """Between two values of a curve."""
        return (self.end - self.start) / POINTS


@dataclass(frozen=True)
class Boot:
    """When a node was booted."""

    node: str
    at: float


@dataclass(frozen=True)
class Fired:
    """When an alert fired: from its first to its last step. `labels`: what it is about."""

    alert: str
    severity: str
    labels: Mapping[str, str]
    spans: tuple[tuple[float, float], ...]

    def is_of(self, kind: str, name: str) -> bool:
        """Return whether it is about this node, switch, leg or unit."""
        if kind == "node":
            return self.node == name
        return name in (self.labels.get(kind), self.labels.get("host") if kind == "switch" else None)

    @property
    def node(self) -> str:
        """The node that it is about; empty: none. What a node reads of a switch is not about that node."""
        return "" if "switch" in self.labels else self.labels.get("host") or self.labels.get("node", "")

    @property
    def about(self) -> str:
        """What it is about, in a word; empty: the rack."""
        keys = ("leg", "switch", "unit", "host", "node")
        return next((self.labels[key] for key in keys if self.labels.get(key)), "")


@dataclass(frozen=True)
class Drawn:
    """One curve of one machine: its series, each with the name of its line, and the values of its limits."""

    curve: Curve
    name: str
    series: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    limits: tuple[tuple[Limit, float], ...]


@dataclass(frozen=True)
class History:
    """The last hours of a rack. `unread`: what Prometheus could not answer."""

    window: Window
    drawn: tuple[Drawn, ...]
    boots: tuple[Boot, ...]
    fired: tuple[Fired, ...]
    unread: tuple[str, ...]

    def of(self, kind: str, name: str) -> Iterator[Drawn]:
        """Yield the curves of a machine, in their order."""
        return (one for one in self.drawn if (one.curve.of, one.name) == (kind, name))


def history(api: PrometheusApi, end: float) -> History:
    """Return what Prometheus has of the hours before `end`. Raises SilentError."""
    window = Window(end - HOURS * 3600, end)
    unread: list[str] = []

    def asked(what: str, question: Callable[[], list[T]]) -> list[T]:
        try:
            return question()
        except SilentError:
            raise
        except PrometheusError as fault:
            unread.append(printable_line(f"{what}: {fault}"))
            return []

    def over_time(what: str, query: str) -> list[Range]:
        return asked(what, lambda: api.query_range(query, window.start, window.end, window.step))

    def at_the_end(what: str, query: str) -> list[Sample]:
        return asked(what, lambda: api.query(query))

    drawn: list[Drawn] = []
    for curve in CURVES:
        what = f"{curve.title} of each {curve.of}"
        limits = [(limit, limit_values(curve, limit, at_the_end)) for limit in curve.limits]
        drawn += _drawn_machines(curve, over_time(what, curve.query), limits)
    legs = {
        (one.labels.get("node", ""), one.labels.get("device", "")): one.labels["leg"]
        for one in at_the_end("legs of the switches", LEGS)
    }
    return History(
        window,
        tuple(drawn),
        tuple(_boots_within(over_time("boots", BOOTS), window)),
        tuple(_fired_within(over_time("alerts that fired", FIRED.format(step=window.step)), legs, window)),
        tuple(unread),
    )


def limit_values(curve: Curve, limit: Limit, ask: Callable[[str, str], list[Sample]]) -> Mapping[str, float] | float:
    """Return the value of a limit: that of each machine, or one for all."""
    if not limit.query:
        return threshold(limit.alert) * limit.factor
    found = ask(f"limit of {limit.alert}", limit.query)
    return {one.labels[curve.of]: one.value for one in found if curve.of in one.labels}


def threshold(alert: str) -> float:
    """Return the number that the rule of an alert compares with: the first one in it. Raises ValueError."""
    texts = (resources.file_text("roles.watch", file) for file in _ALERTS)
    rule = "".join(texts).partition(f"- alert: {alert}\n")[2].partition("labels:")[0]
    if found := re.search(r" [<>] ([0-9.]+(?:e[0-9]+)?)\b", re.sub(r"#.*\n", "", rule)):
        return float(found[1])
    raise ValueError(f"the rule of {alert} compares with no number")


def _drawn_machines(
    curve: Curve, found: Sequence[Range], limits: Sequence[tuple[Limit, Mapping[str, float] | float]]
) -> Iterator[Drawn]:
    """Yield the curve of each machine that has values."""
    machines: dict[str, list[tuple[str, tuple[tuple[float, float], ...]]]] = {}
    for one in found:
        values = tuple((at, value) for at, value in one.values if math.isfinite(value))
        if values and curve.of in one.labels:
            machines.setdefault(one.labels[curve.of], []).append((printable_line(one.labels.get("line", "")), values))
    for name, series in machines.items():
        own = [(limit, value if isinstance(value, float) else value.get(name)) for limit, value in limits]
        yield Drawn(curve, name, tuple(series), tuple((limit, value) for limit, value in own if value is not None))


def _boots_within(found: Sequence[Range], window: Window) -> Iterator[Boot]:
    for one in found:
        before = -math.inf
        for _, at in one.values:
            if at - before > _SAME_BOOT and window.start < at <= window.end:
                yield Boot(one.labels.get("node", ""), at)
            before = at


def _fired_within(found: Sequence[Range], legs: Mapping[tuple[str, str], str], window: Window) -> Iterator[Fired]:
    for one in found:
        labels = {key: printable_line(value) for key, value in one.labels.items()}
        alert, severity = labels.pop("alertname", "?"), labels.pop("severity", "?")
        if leg := legs.get((labels.get("node", ""), labels.get("device", ""))):
            labels.setdefault("leg", leg)
        spans: list[tuple[float, float]] = []
        for at, _ in one.values:
            if spans and at - spans[-1][1] < 1.5 * window.step:
                spans[-1] = (spans[-1][0], at)
            else:
                # It fired at some time within the step before this value.
                spans.append((max(at - window.step, window.start), at))
        yield Fired(alert, severity, labels, tuple(spans))
