"""Rack files with one switch, from short to every key there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from core.model import Rack, Switch, load

SWITCH: Mapping[str, Any] = {
    "address": "10.77.0.2",
    "tls": False,
    "user": "sparkrack",
    "password": {"env": "CRS812_PASSWORD"},
    "model": "CRS812-8DS-2DQ-2DDQ",
    "identity": "crs812",
    "cages": {"qsfp56-dd-1": {"split": "4x100G"}, "qsfp56-dd-2": {"split": "4x100G", "medium": "optic"}},
}
NODES = {f"spark{number}": f"crs812/qsfp56-dd-1-{2 * number - 1}" for number in (1, 2, 3, 4)} | {
    "spark5": "crs812/qsfp56-dd-2-1"
}

UNCABLED: dict[str, str | None] = {"spark1": None}

EVERY_KEY: Mapping[str, Any] = {
    "tls": {"sha256": "00" * 32},
    "lossless": "roce",
    "management": ["10.77.0.0/24"],
    "reader": {"password": {"env": "READER_PASSWORD"}},
    "time_zone": "Europe/Berlin",
    "ntp": ["10.77.0.1", "10.77.0.3"],
    "dns": ["10.77.0.1"],
    "lldp": True,
    "syslog": "head",
    "snmp": {"user": "monitor", "authentication": {"env": "SNMP_A"}, "encryption": {"env": "SNMP_E"}},
    "purge": ["bridge-ports", "bridge-vlans", "users", "scripts"],
    "vlans": [1100, 1101],
}
"""Every key that makes a run write something."""

MakeRack = Callable[..., tuple[Rack, Switch]]


def make_rack(
    folder: Path,
    nodes: Mapping[str, str | None] = NODES,
    vlans: list[int] | None = None,
    **switch: object,
) -> tuple[Rack, Switch]:
    """A rack of `nodes` (name: leg or none) around one switch, some of its keys replaced (None: left out)."""
    fabric = {"mtu": 1500, "subnets": ["192.168.100.0/24", "192.168.101.0/24"]}
    document = {
        "rack": "test",
        "access": {"user": "ops", "key": "key", "known_hosts": "known_hosts"},
        "nodes": {
            name: {"address": f"10.77.0.{10 + number}", "vendor": "asus", "ports": {1: leg} if leg else {}}
            for number, (name, leg) in enumerate(nodes.items(), start=1)
        },
        "switches": {"crs812": {key: value for key, value in {**SWITCH, **switch}.items() if value is not None}},
        "fabric": fabric | ({"vlans": vlans} if vlans else {}),
    }
    path = folder / "rack.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(document, file)
    rack = load(path)
    return rack, rack.switches["crs812"]
