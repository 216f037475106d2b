"""The configuration of Prometheus: what it scrapes, and where it sends alerts. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML

from core.model import Rack
from core.util.managed_file import ManagedFile, header
from roles.watch import desired
from roles.watch.options import WatchOptions
from serving.launch import api_address
from serving.options import ServedUnit, served_units

CHECK = 'promtool check config "$new"'
NODE_TIMEOUT = "5s"
"""How long a node may take to answer, which is a part of the time until NodeSilent; the shortest interval."""


def yaml_text(rack: Rack, document: dict[str, Any]) -> str:
    """Return a file of ours in YAML."""
    writer, text = YAML(), io.StringIO()
    writer.default_flow_style = False
    writer.width = 4096
    writer.dump(document, text)
    return f"{header(rack.rack)}\n{text.getvalue()}"


def prometheus_file(rack: Rack) -> ManagedFile:
    """Return the configuration of Prometheus. Its check reads the rules, so they are written first."""
    return ManagedFile(desired.CONFIG, yaml_text(rack, _build_configuration(rack)).encode(), validate=CHECK)


def _build_configuration(rack: Rack) -> dict[str, Any]:
    interval, address = rack.options(WatchOptions).interval, desired.listen_address(rack)
    alertmanager = f"{address}:{desired.ALERTMANAGER_PORT}"
    nodes = [
        {
            "targets": [f"{node.address}:{desired.EXPORTER_PORT}"],
            "labels": {"node": name, **({"vendor": node.vendor} if node.vendor else {}), "rank": str(rank)},
        }
        for rank, (name, node) in enumerate(rack.nodes.items())
    ]
    return {
        "global": {
            "scrape_interval": interval,
            "evaluation_interval": interval,
            "external_labels": {"rack": rack.rack},
        },
        "rule_files": [desired.RULES],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {"job_name": "node", "scrape_timeout": NODE_TIMEOUT, "static_configs": nodes},
            {"job_name": "prometheus", "static_configs": [{"targets": [f"{address}:{desired.PROMETHEUS_PORT}"]}]},
            {"job_name": "alertmanager", "static_configs": [{"targets": [alertmanager]}]},
            *_engine_jobs(rack),
        ],
    }


def _engine_jobs(rack: Rack) -> Iterator[dict[str, Any]]:
    for family in sorted({unit.family for unit in served_units(rack).values()}, reverse=True):
        targets = [
            {
                "targets": [f"{api_address(rack, unit)}:{unit.api.port}"],
                "labels": {"unit": unit.name, "node": unit.ranks(rack.nodes)[0]},
            }
            for unit in watched_units(rack)
            if unit.family == family
        ]
        if targets:
            yield {"job_name": family, "static_configs": targets}


# claim: watch.engine-metrics
def watched_units(rack: Rack) -> Iterator[ServedUnit]:
    """Yield the units whose metrics the server can read: those that are to run, or may by `serve use`, and answer where
    the server is."""
    at, address = desired.server(rack), desired.server_address(rack)
    for unit in served_units(rack).values():
        head = unit.ranks(rack.nodes)[0]
        reachable = {
            # A node closes its unit to machines outside of the rack that `direct` does not name.
            "management": at is not None or any(address in network for network in unit.api.direct or ()),
            "fabric": at is not None,
            "local": at is not None and at.name == head,
        }[unit.api.listen]
        if (unit.state == "up" or unit.slot) and reachable and unit.has_open_metrics:
            yield unit
