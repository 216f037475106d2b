"""How a proof reaches the nodes: an ssh configuration that trusts nothing new and asks nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.model import ConfigError, Rack, load
from core.ssh.client import NodeConnections, ssh_config
from core.ssh.node_shells import open_shells
from tests.unit.model.racks import SWITCH, changed, loaded

RACK = loaded(
    changed(
        SWITCH,
        ("~/.ssh/id_ed25519", '"/keys/my key"'),
        ("known_hosts: known_hosts", "known_hosts: /keys/known\n  port: 2222"),
    )
)


def options(folder: Path, host: str, rack: Rack = RACK) -> dict[str, str]:
    """What OpenSSH itself makes of the configuration."""
    file = folder / "config"
    file.write_text(ssh_config(rack))
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


@pytest.mark.parametrize("name", ["100%home rack", "%%h", "it's a rack", "$HOME", "#1", "ü"])
def test_any_other_folder_is_taken_by_its_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "rack.yaml").write_text(changed(SWITCH, ("~/.ssh/id_ed25519", "key")))
    found = options(tmp_path, "spark1", load(folder / "rack.yaml"))
    assert found["identityfile"].strip('"') == str(folder / "key").replace("%", "%%"), "shown with its tokens"
    assert found["userknownhostsfile"].strip('"') == str(folder / "known_hosts")


def test_a_folder_for_temporary_files_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    access = RACK.access.model_copy(update={"known_hosts": tmp_path / 'a"\n  ProxyCommand true\n#/known_hosts'})
    with pytest.raises(
        ConfigError, match="cannot stand in an OpenSSH configuration; set TMPDIR without quotation marks"
    ):
        ssh_config(RACK.model_copy(update={"access": access}))


def test_a_machine_is_made_once() -> None:
    with open_shells(RACK, RACK.nodes, 5) as shells:
        machines = NodeConnections(shells)
        assert machines["spark1"] is machines["spark1"] is not machines["spark2"]
