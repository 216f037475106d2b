"""Ask Prometheus for what one screen shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from core.model import Rack
from roles.watch import rules, scrape
from sparkrack.engine.silences import AUTHOR
from sparkrack.watch.model import (
    JUDGED,
    ActiveAlert,
    ActiveSilence,
    UnreadPart,
    WatchedNode,
    WatchedUnit,
    WatchReport,
)
from sparkrack.watch.prometheus_api import AlertmanagerApi, PrometheusApi, PrometheusError, Sample, SilentError
from sparkrack.watch.switches import Ask, collect_switches

NODE_QUERIES: Mapping[str, str] = {
    "up": 'max by (node) (up{job="node"})',
    "memory_available": 'max by (node) (node_memory_MemAvailable_bytes{job="node"})',
    "memory_total": 'max by (node) (node_memory_MemTotal_bytes{job="node"})',
    "memory_stalled": 'max by (node) (rate(node_pressure_memory_stalled_seconds_total{job="node"}[1m]))',
    # An interface that is down has no series of its carrier.
    "links_up": (
        'count by (node) ((node_network_carrier{job="node"} == 1) and on(node, device) sparkrack_half_info) '
        'or (0 * max by (node) (node_network_up{job="node"}))'
    ),
    "gpu_clock": "max by (node) (sparkrack_gpu_sm_clock_hertz) / 1e6",
    "gpu_power": "max by (node) (sparkrack_gpu_power_watts)",
    "gpu_margin": "min by (node) (sparkrack_gpu_tlimit_margin_celsius)",
    "gpu_utilization": "max by (node) (sparkrack_gpu_utilization_ratio)",
}
"""One value a node."""
UNIT_QUERIES: Mapping[str, str] = {
    "up": 'max by (unit) (up{unit!=""})',
    "running": "sum by (unit) (vllm:num_requests_running or sglang:num_running_reqs)",
    "waiting": "sum by (unit) (vllm:num_requests_waiting or sglang:num_queue_reqs)",
    "cache": "max by (unit) (vllm:kv_cache_usage_perc or sglang:token_usage)",
}
"""One value a unit."""
_ORDER = ("page", "ticket", "info")
_RUN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{8}\b")
"""The mark of a run: its silences have a comment that begins with its ID."""
T = TypeVar("T")


def collect(
    rack: Rack, names: tuple[str, ...], api: PrometheusApi, alertmanager: AlertmanagerApi | None = None
) -> WatchReport:
    """Return what Prometheus has of these machines, of the units and of the alerts, and Alertmanager of silences.

    A question that one of them cannot answer makes one part unknown. Raises SilentError.
    """
    unread: list[UnreadPart] = []

    def asked(part: str, question: Callable[[], list[T]]) -> list[T]:
        try:
            return question()
        except PrometheusError as fault:
            if isinstance(fault, SilentError) and part != "silences":
                raise
            unread.append(UnreadPart(part=part, reason=str(fault)))
            return []

    def ask(part: str, query: str) -> list[Sample]:
        return asked(part, lambda: api.query(query))

    made = datetime.now(UTC).replace(microsecond=0)
    of_nodes = {key: _ask_values(ask, f"nodes: {key}", query, "node") for key, query in NODE_QUERIES.items()}
    units = list(scrape.watched_units(rack))
    of_units = (
        {key: _ask_values(ask, f"units: {key}", query, "unit") for key, query in UNIT_QUERIES.items()} if units else {}
    )
    switches = collect_switches(rack, [name for name in names if name in rack.switches], ask, of_nodes["up"])
    found = map(_parse_alert, asked("alerts", api.alerts))
    alerts = tuple(sorted((one for one in found if one.name != rules.HEARTBEAT), key=_alert_order))
    silences = [
        one
        for one in (asked("silences", alertmanager.silences) if alertmanager else ())
        if dict(one.get("status") or {}).get("state") == "active"
    ]
    return WatchReport(
        rack=rack.rack,
        made=made,
        server=api.url,
        nodes=tuple(_watched_node(rack, name, of_nodes) for name in names if name in rack.nodes),
        units=tuple(
            WatchedUnit(
                name=unit.name,
                node=unit.ranks(rack.nodes)[0],
                up=_as_flag(of_units["up"].get(unit.name)),
                **{key: of_units[key].get(unit.name) for key in ("running", "waiting", "cache")},
            )
            for unit in units
        ),
        switches=switches,
        alerts=alerts,
        silences=tuple(map(_parse_silence, silences)) if alertmanager else None,
        unread=tuple(unread),
    )


def _ask_values(ask: Ask, part: str, query: str, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in ask(part, query) if label in sample.labels}


def _watched_node(rack: Rack, name: str, found: Mapping[str, Mapping[str, float]]) -> WatchedNode:
    values: dict[str, Any] = {key: found[key].get(name) for key in NODE_QUERIES if key not in ("up", "links_up")}
    up, links = found["links_up"].get(name), sum(len(port.halves) for port in rack.cabling.ports_of(name))
    return WatchedNode(
        name=name,
        up=_as_flag(found["up"].get(name)),
        links_up=None if up is None else int(up),
        links=links,
        **values,
    )


def _as_flag(value: float | None) -> bool | None:
    return None if value is None else value == 1


def _parse_alert(one: Mapping[str, Any]) -> ActiveAlert:
    labels, annotations = (
        {str(k): str(v) for k, v in dict(one.get(key) or {}).items()} for key in ("labels", "annotations")
    )
    since = _parse_moment(one.get("activeAt"))
    return ActiveAlert(
        name=labels.get("alertname", "?"),
        severity=labels.get("severity", "?"),
        state="firing" if one.get("state") == "firing" else "pending",
        since=since,
        node=labels.get("node", ""),
        summary=annotations.get("summary", ""),
        runbook=annotations.get("runbook", ""),
    )


def _parse_silence(one: Mapping[str, Any]) -> ActiveSilence:
    by, comment = str(one.get("createdBy")), str(one.get("comment"))
    matchers = one.get("matchers")
    return ActiveSilence(
        by=by,
        until=_parse_moment(one.get("endsAt")),
        matchers=", ".join(_matcher_text(match) for match in matchers if isinstance(match, dict))
        if isinstance(matchers, list)
        else "",
        comment=comment,
        of_run=by == AUTHOR and bool(_RUN.match(comment)),
    )


def _matcher_text(one: Mapping[str, Any]) -> str:
    equal, regex = one.get("isEqual", True), one.get("isRegex")
    sign = ("=~" if equal else "!~") if regex else "=" if equal else "!="
    return f'{one.get("name")}{sign}"{one.get("value")}"'


def _parse_moment(text: object) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(str(text)[:19]).replace(tzinfo=UTC)
    return None


def _alert_order(alert: ActiveAlert) -> tuple[bool, bool, int, str, str]:
    order = _ORDER.index(alert.severity) if alert.severity in _ORDER else len(_ORDER)
    return (alert.severity not in JUDGED, alert.state != "firing", order, alert.name, alert.node)
