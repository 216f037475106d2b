"""`sparkrack export`: what other tools read, judged by those that are there; no secret, no connection."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from core.model import load
from sparkrack.cli.main import sparkrack
from tests.unit.model.racks import VALID

FILE = VALID / "kept.yaml"
RACK = load(FILE)


def exported(kind: str) -> str:
    done = CliRunner().invoke(sparkrack, ["export", kind, "--rack", str(FILE)], env={"CRS812_PASSWORD": "canary"})
    assert done.exit_code == 0, done.output
    assert "canary" not in done.output
    assert "PASSWORD" not in done.output
    return done.stdout


def test_openssh_reads_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(exported("ssh-config"))
    for name in (*RACK.nodes, "elsewhere"):
        done = subprocess.run(["ssh", "-G", "-F", file, name], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert (f"userknownhostsfile {RACK.access.known_hosts}" in lines) == (name in RACK.nodes)
        if name in RACK.nodes:
            wanted = {f"hostname {RACK.nodes[name].address}", f"user {RACK.access.user}", f"port {RACK.access.port}"}
            assert wanted <= set(lines)


def test_the_inventory_is_yaml(tmp_path: Path) -> None:
    groups = yaml.safe_load(exported("ansible-inventory"))["all"]["children"]
    assert {name: one["ansible_host"] for name, one in groups["nodes"]["hosts"].items()} == {
        name: str(node.address) for name, node in RACK.nodes.items()
    }
    common = groups["nodes"]["vars"]
    assert (common["ansible_user"], common["ansible_port"]) == (RACK.access.user, RACK.access.port)
    words = ["ssh", "-G", "-F", "/dev/null", *shlex.split(common["ansible_ssh_common_args"]), "x"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert f"userknownhostsfile {RACK.access.known_hosts}" in done.stdout.splitlines(), done.stderr
    assert set(groups["switches"]["hosts"]) == set(RACK.switches)
    assert groups["switches"]["vars"]["ansible_network_os"] == "community.routeros.routeros"


@pytest.mark.parametrize("name", RACK.nodes)
def test_the_lines_of_hosts(name: str) -> None:
    assert f"{RACK.nodes[name].address} {name}" in exported("hosts").splitlines()
