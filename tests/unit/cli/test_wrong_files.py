"""A wrong rack.yaml is refused by every command before anything is connected to, with the promised lines."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from core.model.errors import ConfigProblem
from tests.tiers import sampled
from tests.unit.cli.runs import REPOSITORY, command, guarded
from tests.unit.model.racks import CASES, DIRECT, VALID, changed

EXPECTED = sorted(CASES.glob("*.expected"))


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.stem)
def test_check(expected: Path, tmp_path: Path) -> None:
    ended = command("sparkrack", "check", cwd=CASES, python_path=guarded(tmp_path), RACK=f"{expected.stem}.yaml")
    assert (ended.code, ended.stdout, ended.stderr) == (1, "", expected.read_text())


@pytest.mark.parametrize("expected", sampled(EXPECTED, 4, name=lambda path: path.stem))
def test_pyinfra(expected: Path, tmp_path: Path) -> None:
    rack = (CASES / f"{expected.stem}.yaml").relative_to(REPOSITORY)
    ended = command("pyinfra", "inventory.py", "deploy.py", "--dry", python_path=guarded(tmp_path), RACK=str(rack))
    assert ended.code == 1, ended.text
    reported = [line for line in ended.text.splitlines() if f"{expected.stem}.yaml" in line]
    assert [line.strip() for line in reported] == [
        f"{rack.parent}/{line}" for line in expected.read_text().splitlines()
    ]
    for word in ("Connecting", "Connected", "Traceback", "A CONNECTION"):
        assert word not in ended.text


def test_a_sound_file_connects(tmp_path: Path) -> None:
    """Else the tests above would prove nothing."""
    key, rack = tmp_path / "key", tmp_path / "rack.yaml"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    (tmp_path / "known_hosts").touch()
    rack.write_text(changed(DIRECT, ("~/.ssh/id_ed25519", str(key))))
    ended = command("pyinfra", "inventory.py", "deploy.py", "--dry", python_path=guarded(tmp_path), RACK=str(rack))
    assert ended.code == 99, ended.text
    assert "A CONNECTION WAS TRIED" in ended.text


@pytest.mark.parametrize("name", ["direct", "ring", "switch"])
def test_check_of_a_sound_file(name: str, tmp_path: Path) -> None:
    ended = command("sparkrack", "check", "--rack", VALID / f"{name}.yaml", python_path=guarded(tmp_path))
    assert ended.code == 0, ended.text
    assert name in ended.stdout


def test_the_option_wins_over_the_environment() -> None:
    ended = command("sparkrack", "check", "--rack", VALID / "ring.yaml", RACK="/no/such/file")
    assert ended.code == 0, ended.text


def test_the_reference_rack_is_sound() -> None:
    ended = command("sparkrack", "check", "--rack", "examples/rack.yaml")
    assert ended.code == 0, ended.text
    assert "8 nodes, 1 switch and 8 cables (8 to a switch), topology: through a switch" in ended.stdout


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.stem)
def test_check_in_json(expected: Path, tmp_path: Path) -> None:
    ended = command(
        "sparkrack", "check", "--json", cwd=CASES, python_path=guarded(tmp_path), RACK=f"{expected.stem}.yaml"
    )
    assert (ended.code, ended.stderr) == (1, "")
    reported = json.loads(ended.stdout)
    assert (reported["schema"], reported["good"]) == ("sparkrack.check/1", False)
    lines = [str(ConfigProblem(**fault)) for fault in reported["faults"]]
    assert lines == expected.read_text().splitlines()


def test_check_of_a_sound_file_in_json() -> None:
    ended = command("sparkrack", "check", "--json", "--rack", VALID / "switch.yaml")
    reported = json.loads(ended.stdout)
    assert (ended.code, reported["good"], reported["topology"], reported["faults"]) == (0, True, "switch", [])
    assert command("sparkrack", "check", "--quiet", "--rack", VALID / "switch.yaml").stdout == ""
