"""The rack file of the reference rack - eight nodes on two cages - with an emulated switch in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.emulator.emulator_process import USER, Crs812Process


def write(
    path: Path,
    emulator: Crs812Process,
    switch: Mapping[str, Any],
    fabric: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
) -> None:
    """Write it; `switch` and `fabric` are keys that replace the rack's, `without` names those of the switch to
    leave out."""
    legs = [f"crs812/qsfp56-dd-{cage}-{lane}" for cage in (1, 2) for lane in (1, 3, 5, 7)]
    declared = {
        "address": "127.0.0.1",
        "port": emulator.tls_port,
        "tls": {"sha256": emulator.fingerprint},
        "user": USER,
        "password": {"env": "CRS812_PASSWORD"},
        "model": "CRS812-8DS-2DQ-2DDQ",
        "identity": "crs812",
        "cages": {f"qsfp56-dd-{cage}": {"split": "4x100G"} for cage in (1, 2)},
    }
    kept = {**declared, **switch}
    rack = {
        "rack": "spark8",
        "access": {"user": "ops", "key": "key", "known_hosts": "known_hosts"},
        "nodes": {
            f"spark{n}": {"address": f"10.77.0.{10 + n}", "vendor": "asus", "ports": {1: leg}}
            for n, leg in enumerate(legs, start=1)
        },
        "switches": {"crs812": {name: value for name, value in kept.items() if name not in without}},
        "fabric": {"subnets": ["192.168.100.0/24", "192.168.101.0/24"], **(fabric or {})},
    }
    with path.open("w") as file:
        YAML(typ="safe").dump(rack, file)


def refuse_at_first_node(path: Path) -> None:
    """Let the first node of a rack file be a port of this machine that refuses connections."""
    text = path.read_text().replace("10.77.0.11", "127.0.0.2")
    path.write_text(text.replace("access: {", "access: {port: 1, "))
