"""`sparkrack switch restore` as far as it comes without a switch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.unit.cli.runs import Ended, command, guarded

LEG = "qsfp56-dd-1-1"
SWITCH: dict[str, Any] = {
    "address": "10.77.0.2",
    "tls": False,
    "user": "sparkrack",
    "password": {"env": "NO_SUCH_VARIABLE"},
    "model": "CRS812-8DS-2DQ-2DDQ",
    "cages": {"qsfp56-dd-1": {"split": "4x100G"}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rack = {
        "rack": "test",
        "access": {"user": "ops", "key": "key", "known_hosts": "known_hosts"},
        "nodes": {"spark1": {"address": "10.77.0.11", "vendor": "asus", "ports": {1: f"left/{LEG}"}}},
        "switches": {"left": SWITCH, "right": copy.deepcopy(SWITCH) | {"address": "10.77.0.3"}},
        "fabric": {"subnets": ["192.168.100.0/24", "192.168.101.0/24"]},
    }
    with (tmp_path / "rack.yaml").open("w") as file:
        YAML(typ="safe").dump(rack, file)
    return tmp_path


def run(folder: Path, *words: str) -> Ended:
    """Nothing may be connected to."""
    (folder / "guard").mkdir(exist_ok=True)
    rack, state = str(folder / "rack.yaml"), str(folder / "state")
    return command("sparkrack", *words, python_path=guarded(folder / "guard"), RACK=rack, XDG_STATE_HOME=state)


def keep(folder: Path, name: str) -> None:
    place = folder / "state/sparkrack/test/left" / name
    place.mkdir(parents=True)
    (place / "rows.json").write_text("{}")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "name the switch; the rack has left, right"),
        (("left",), "name one backup, or pass --last; --list shows them"),
        (("left", "run-1", "--last"), "name one backup, or pass --last"),
        (("left", "run-1", "more"), "more is one word too many"),
        (("middle", "run-1"), "middle is not a switch of the rack; it has left, right"),
        (("left", "run-1"), "(none was kept yet)"),
        (("left", "../../secret"), "no backup ../../secret in "),
        (("left", "--last"), "(none was kept yet)"),
    ],
)
def test_what_is_wrong_is_reported_before_anything_is_connected_to(
    folder: Path, words: tuple[str, ...], text: str
) -> None:
    ended = run(folder, "switch", "restore", *words)
    assert ended.code == 1, ended.text
    assert text in ended.stderr
    assert "Traceback" not in ended.text


def test_a_name_that_is_not_there_is_reported_with_how_many_are(folder: Path) -> None:
    keep(folder, "run-1")
    ended = run(folder, "switch", "restore", "left", "run-2")
    assert ended.code == 1
    assert "(1 there, see --list)" in ended.stderr


def test_a_backup_that_is_none_is_reported(folder: Path) -> None:
    keep(folder, "run-1")
    ended = run(folder, "switch", "restore", "left", "run-1")
    assert ended.code == 1
    assert "rows.json is not a backup of a switch" in ended.stderr
    assert run(folder, "switch", "restore", "left", "--list").stdout.startswith("run-1  ")


def test_a_password_that_cannot_be_had_is_reported(folder: Path) -> None:
    ended = run(folder, "accept", "--limit", "right")
    assert ended.code == 1
    assert "NO_SUCH_VARIABLE" in ended.stdout
    assert "Traceback" not in ended.text
