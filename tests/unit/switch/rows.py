"""Rows as a CRS812 prints them, and a rack file to compare them with. Written out here, not taken from the
code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sparkrack.fleet import Rack, Switch, load
from switch.diff import Change
from switch.reading import Reading, read
from switch.sentences import Sentence

LANES = {"qsfp56-dd-1": 8, "qsfp56-dd-2": 8, "qsfp56-1": 4, "qsfp56-2": 4}
PORTS = (
    "ether1",
    "ether2",
    *(f"{cage}-{lane}" for cage, lanes in LANES.items() for lane in range(1, lanes + 1)),
    *(f"sfp56-{number}" for number in range(1, 9)),
)

Tables = dict[str, list[dict[str, str]]]


def factory() -> Tables:
    """All menus a run reads, of a switch that was never configured."""
    ethernet = [
        {
            ".id": f"*{number:X}",
            "default-name": name,
            "name": name,
            "disabled": "false",
            "auto-negotiation": "true",
            "fec-mode": "auto",
            "mtu": "1500",
            "l2mtu": "1584",
        }
        for number, name in enumerate(PORTS, start=2)
    ]
    ports = [
        {
            ".id": f"*{number:X}",
            "interface": name,
            "bridge": "bridge",
            "disabled": "false",
            "dynamic": "false",
        }
        for number, name in enumerate(PORTS)
    ]
    return {
        "/system/resource": [{"board-name": "CRS812-8DS-2DQ-2DDQ", "version": "7.23.7 (long-term)"}],
        "/system/routerboard": [{"model": "CRS812-8DS-2DQ-2DDQ", "serial-number": "HX1"}],
        "/system/package": [
            {".id": f"*{number}", "name": name, "version": "7.23.7", "disabled": "false"}
            for number, name in enumerate(("routeros", "switch-marvell"), start=1)
        ],
        "/interface/ethernet": ethernet,
        "/interface/bridge": [{".id": "*24", "name": "bridge"}],
        "/interface/bridge/port": ports,
        "/system/identity": [{"name": "MikroTik"}],
    }


def reading(tables: Tables) -> Reading:
    """What a run makes of these tables."""

    def ask(sentence: Sentence) -> list[dict[str, str]]:
        asked = next(word for word in sentence if word.startswith("=.proplist=")).split("=")[2].split(",")
        rows = tables[sentence[0].removesuffix("/print")]
        return [{name: row[name] for name in asked if name in row} for row in rows]

    return read(ask)


def carry_out(tables: Tables, changes: tuple[Change, ...]) -> None:
    """Do to the tables what a switch does when it is sent these changes; it prints flags as true and
    false."""
    printed = {"yes": "true", "no": "false"}
    for change in changes:
        rows = tables[change.menu.path]
        values = {name: printed.get(value, value) for name, value in change.values}
        if change.adds:
            rows.append({".id": f"*{100 + len(rows):X}", "disabled": "false", **values})
        elif change.id is None:
            rows[0].update(values)
        else:
            next(row for row in rows if row[".id"] == change.id).update(values)


def row(tables: Tables, name: str) -> dict[str, str]:
    """The row of an interface by the name it has from the factory."""
    return next(row for row in tables["/interface/ethernet"] if row["default-name"] == name)


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

MakeRack = Callable[..., tuple[Rack, Switch]]


def make_rack(folder: Path, nodes: Mapping[str, str | None] = NODES, **switch: object) -> tuple[Rack, Switch]:
    """A rack of `nodes` (name: leg or none) around one switch, some of its keys replaced (None: left out)."""
    document = {
        "rack": "test",
        "access": {"user": "ops", "key": "key", "known_hosts": "known_hosts"},
        "nodes": {
            name: {"address": f"10.77.0.{10 + number}", "vendor": "asus", "ports": {1: leg} if leg else {}}
            for number, (name, leg) in enumerate(nodes.items(), start=1)
        },
        "switches": {"crs812": {k: v for k, v in {**SWITCH, **switch}.items() if v is not None}},
        "fabric": {"mtu": 1500, "subnets": ["192.168.100.0/24", "192.168.101.0/24"]},
    }
    path = folder / "rack.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(document, file)
    rack = load(path)
    return rack, rack.switches["crs812"]
