"""A configuration that cannot be used says why, in one line a fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.routeros_emulator.config import EmulatorConfigError, read
from tests.emulator.emulator_process import Crs812Process, reference_cables

GOOD: dict[str, Any] = {"address": "127.0.0.1", "state": "state.json", "log": "log.ndjson"}


def tail(**fields: Any) -> dict[str, Any]:
    return {"lane": 1, "lanes": 2, "gbps": 100, "node": "spark1", "port": 1} | fields


def cable(*tails: dict[str, Any], cage: str = "qsfp56-dd-1") -> dict[str, Any]:
    return {"cage": cage, "tails": list(tails)}


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"address": "here"}, "address: "),
        ({"colour": "red"}, "colour: "),
        ({"state": None}, "state: "),
        ({"api_port": 70000}, "api_port: "),
        ({"tls_cert": "cert.pem"}, "tls_cert and tls_key belong together"),
        ({"cables": [cable(cage="qsfp28-1")]}, "there is no cage qsfp28-1"),
        ({"model": "CRS305-1G-4S+"}, "there is no model CRS305-1G-4S+; known are CRS812-8DS-2DQ-2DDQ, CRS804-4DDQ"),
        (
            {"model": "CRS804-4DDQ", "cables": [cable(cage="qsfp56-1")]},
            "there is no cage qsfp56-1; a CRS804 has qsfp56-dd-1, qsfp56-dd-2, qsfp56-dd-3, qsfp56-dd-4",
        ),
        ({"cables": [cable(), cable()]}, "cage qsfp56-dd-1 is given twice"),
        ({"cables": [cable(tail(), tail(lane=2))]}, "lane 2 of qsfp56-dd-1 is in two tails"),
        ({"cables": [cable(tail(lane=4), cage="qsfp56-1")]}, "qsfp56-1 has 4 lanes, a tail reaches lane 5"),
        ({"cables": [cable(tail(taps=["t"]), tail(lane=3, taps=["t"]))]}, "tap t is given twice"),
        ({"cables": [cable(tail(gbps=90))]}, "cables.0.tails.0.gbps: "),
        ({"settle": -1}, "settle: "),
        ({"management": "192.168.88.1/99"}, "management: "),
        ({"version": "newest"}, "version: "),
        ({"link": "sw1"}, "link is for a unit that follows /ip/address"),
    ],
)
def test_faults_are_named(tmp_path: Path, change: dict[str, Any], reported: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(EmulatorConfigError) as raised:
        read(path)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{path}: ")
    assert reported in line


def test_files_that_are_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(EmulatorConfigError, match="No such file"):
        read(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(EmulatorConfigError, match=r"bad\.json: config: Invalid JSON"):
        read(tmp_path / "bad.json")


def test_a_written_configuration_is_read_back(tmp_path: Path) -> None:
    switch = Crs812Process(tmp_path, cables=reference_cables(tmp_path))
    path = tmp_path / "config.json"
    path.write_text(switch.config.model_dump_json())
    assert read(path) == switch.config


@pytest.mark.parametrize("missing", ["users", "certificate"])
def test_a_missing_file_stops_the_start_without_traceback(tmp_path: Path, missing: str) -> None:
    switch = Crs812Process(tmp_path)
    (tmp_path / ("password" if missing == "users" else "cert.pem")).unlink()
    with pytest.raises(RuntimeError, match="No such file") as raised:
        switch.start()
    assert "Traceback" not in str(raised.value)
