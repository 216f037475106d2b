"""Dashboards for a Grafana that is there, with the files by which it finds them and Prometheus. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SOURCE = "sparkrack-prometheus"
"""The uid of the data source."""
PLACE = "/var/lib/grafana/dashboards/sparkrack"
"""Where Grafana reads the dashboards."""
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


@dataclass(frozen=True)
class Panel:
    """One picture: its title, its expression, the unit as Grafana calls it, and the name of each line."""

    title: str
    expression: str
    unit: str
    legend: str


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. `by_node`: one node is chosen, and $node in the expressions is its name."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    by_node: bool = False


_HALF = "{{node}} {{device}}"
DASHBOARDS = (
    Dashboard(
        "rack",
        "Rack",
        (
            Panel("Nodes that answer", 'up{job="node"}', "bool_yes_no", "{{node}}"),
            Panel(
                "Alerts that fire",
                'sum by (alertname, node) (ALERTS{alertstate="firing"})',
                "none",
                "{{alertname}} {{node}}",
            ),
            Panel("Clock of the GPU", "max by (node) (sparkrack_gpu_sm_clock_hertz)", "hertz", "{{node}}"),
            Panel("Power of the GPU", "max by (node) (sparkrack_gpu_power_watts)", "watt", "{{node}}"),
            Panel("Margin of the GPU", "min by (node) (sparkrack_gpu_tlimit_margin_celsius)", "celsius", "{{node}}"),
            Panel("Hottest zone", "max by (node) (node_thermal_zone_temp)", "celsius", "{{node}}"),
            Panel("Memory available", 'node_memory_MemAvailable_bytes{job="node"}', "bytes", "{{node}}"),
            Panel(
                "Stalled by memory",
                'rate(node_pressure_memory_stalled_seconds_total{job="node"}[2m])',
                "percentunit",
                "{{node}}",
            ),
        ),
    ),
    Dashboard(
        "node",
        "Node",
        (
            Panel(
                "Processor",
                '1 - avg(rate(node_cpu_seconds_total{node="$node",mode="idle"}[2m]))',
                "percentunit",
                "busy",
            ),
            Panel("Load", 'node_load1{job="node",node="$node"}', "none", "load"),
            Panel("Memory available", 'node_memory_MemAvailable_bytes{node="$node"}', "bytes", "available"),
            Panel("Floor of the guard", 'sparkrack_memory_floor_bytes{node="$node"}', "bytes", "floor"),
            Panel("Thermal zones", 'node_thermal_zone_temp{node="$node"}', "celsius", "{{type}} {{zone}}"),
            Panel("Clock of the GPU", 'sparkrack_gpu_sm_clock_hertz{node="$node"}', "hertz", "clock"),
            Panel("Disk available", 'node_filesystem_avail_bytes{node="$node",mountpoint="/"}', "bytes", "/"),
            Panel("Disk written", 'rate(node_disk_written_bytes_total{node="$node"}[2m])', "Bps", "{{device}}"),
        ),
        by_node=True,
    ),
    Dashboard(
        "fabric",
        "Fabric",
        (
            Panel(
                "Links",
                '(node_network_carrier{job="node"} and on(node, device) sparkrack_half_info)',
                "bool_on_off",
                _HALF,
            ),
            Panel("RDMA received", "rate(node_infiniband_port_data_received_bytes_total[2m])", "Bps", _HALF),
            Panel("RDMA sent", "rate(node_infiniband_port_data_transmitted_bytes_total[2m])", "Bps", _HALF),
            Panel(
                "Changes of carrier",
                "increase(node_network_carrier_changes_total[15m]) and on(node, device) sparkrack_half_info",
                "none",
                _HALF,
            ),
            Panel("Pause frames received, priority 3", "rate(node_ethtool_received_prio3_pause[2m])", "pps", _HALF),
            Panel("Pause frames received", "rate(node_ethtool_received_global_pause[2m])", "pps", _HALF),
            Panel("Frames discarded", "rate(node_ethtool_received_discards_phy[5m])", "pps", _HALF),
            Panel(
                "Errors that FEC does not correct", "rate(node_ethtool_received_pcs_symbol_err_phy[5m])", "pps", _HALF
            ),
        ),
    ),
    Dashboard(
        "engines",
        "Engines",
        (
            Panel("Requests that run", "vllm:num_requests_running or sglang:num_running_reqs", "none", "{{unit}}"),
            Panel("Requests that wait", "vllm:num_requests_waiting or sglang:num_queue_reqs", "none", "{{unit}}"),
            Panel("Cache in use", "vllm:kv_cache_usage_perc or sglang:token_usage", "percentunit", "{{unit}}"),
            Panel(
                "Tokens generated",
                "rate(vllm:generation_tokens_total[2m]) or rate(sglang:generation_tokens_total[2m])",
                "ops",
                "{{unit}}",
            ),
            Panel(
                "Time to the first token, 95 %",
                "histogram_quantile(0.95, sum by (unit, le) (rate(vllm:time_to_first_token_seconds_bucket[5m])))",
                "s",
                "{{unit}}",
            ),
            Panel("Preemptions", "rate(vllm:num_preemptions_total[5m])", "ops", "{{unit}}"),
        ),
    ),
)


def files(url: str) -> dict[str, str]:
    """Return the content of each file by its path: the dashboards, and what tells Grafana of them and of Prometheus."""
    sources = {
        "apiVersion": 1,
        "datasources": [
            {"name": "sparkrack", "uid": SOURCE, "type": "prometheus", "access": "proxy", "url": url, "editable": False}
        ],
    }
    providers = {
        "apiVersion": 1,
        "providers": [{"name": "sparkrack", "folder": "sparkrack", "type": "file", "options": {"path": PLACE}}],
    }
    # JSON is YAML as well.
    made = {
        "provisioning/datasources/sparkrack.yaml": _text(sources),
        "provisioning/dashboards/sparkrack.yaml": _text(providers),
    }
    return made | {f"dashboards/{one.name}.json": _text(_document(one)) for one in DASHBOARDS}


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _document(one: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"sparkrack-{one.name}",
        "title": one.title,
        "tags": ["sparkrack"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "15s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_variable()] if one.by_node else []},
        "panels": list(_panels(one)),
    }


def _variable() -> dict[str, Any]:
    return {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": SOURCE},
        "query": 'label_values(up{job="node"}, node)',
        "refresh": 2,
    }


def _panels(one: Dashboard) -> Iterator[dict[str, Any]]:
    source = {"type": "prometheus", "uid": SOURCE}
    for number, panel in enumerate(one.panels):
        row, column = divmod(number, _COLUMNS)
        yield {
            "id": number + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": source,
            "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            "targets": [{"refId": "A", "datasource": source, "expr": panel.expression, "legendFormat": panel.legend}],
        }
