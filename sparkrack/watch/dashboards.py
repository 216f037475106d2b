"""Dashboards for a Grafana that is there, with the files by which it finds them and Prometheus. Pure.

The dashboards are made by scripts/dashboards.py, with Grafana's own library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.util import resources

FILES = {
    "rack": "files/dashboard-rack.json",
    "node": "files/dashboard-node.json",
    "fabric": "files/dashboard-fabric.json",
    "switch": "files/dashboard-switch.json",
    "engines": "files/dashboard-engines.json",
    "blackbox": "files/dashboard-blackbox.json",
}
"""The file of each dashboard, by its name."""
SOURCE = "sparkrack-prometheus"
"""The uid of the data source."""
PLACE = "/var/lib/grafana/dashboards/sparkrack"
"""Where Grafana reads the dashboards."""


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
        "provisioning/datasources/sparkrack.yaml": _document_text(sources),
        "provisioning/dashboards/sparkrack.yaml": _document_text(providers),
    }
    return made | {
        f"dashboards/{name}.json": resources.file_text("sparkrack.watch", file) for name, file in FILES.items()
    }


def _document_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"
