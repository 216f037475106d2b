"""How a proof reaches the nodes: an ssh configuration that trusts nothing new and asks nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sparkrack.proof.machines import Machines, ssh_config
from tests.unit.fleet.racks import SWITCH, changed, loaded

RACK = loaded(
    changed(
        SWITCH,
        ("~/.ssh/id_ed25519", '"/keys/my key"'),
        ("known_hosts: known_hosts", "known_hosts: /keys/known\n  port: 2222"),
    )
)


def options(folder: Path, host: str) -> dict[str, str]:
    """What OpenSSH itself makes of the configuration."""
    file = folder / "config"
    file.write_text(ssh_config(RACK))
    shown = subprocess.run(["ssh", "-G", "-F", str(file), host], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)


def test_each_node_by_its_name(tmp_path: Path) -> None:
    assert options(tmp_path, "spark1")["hostname"] == "10.77.0.11"
    assert options(tmp_path, "spark2")["hostname"] == "10.77.0.12"


def test_what_ssh_will_do(tmp_path: Path) -> None:
    found = options(tmp_path, "spark2")
    wanted = {
        "user": "ops",
        "port": "2222",
        "identityfile": "/keys/my key",
        "identitiesonly": "yes",
        "userknownhostsfile": "/keys/known",
        "globalknownhostsfile": "/dev/null",
        "stricthostkeychecking": "true",
        "batchmode": "yes",
        "connecttimeout": "10",
    }
    assert {key: found[key].strip('"') for key in wanted} == wanted


def test_a_machine_is_made_once(tmp_path: Path) -> None:
    machines = Machines(RACK, tmp_path)
    assert machines["spark1"] is machines["spark1"] is not machines["spark2"]
