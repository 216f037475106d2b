"""Netplan files that people published: each has the effect of ours, is taken over, or is refused by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.ops.host_facts import HostReading
from roles.fabric import facts, foreign_netplan
from roles.fabric.facts import FabricFacts
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import run, stand_in, write
from tests.unit.roles.cases import node_of

CORPUS: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(
    Path(__file__).parents[2] / "cases/foreign/netplan.yaml"
)
RACK = loaded(changed(SWITCH, ("  mtu: 9000\n  subnets", "  mtu: 9000\n  adopt: true\n  subnets")))
DESKTOP = "/etc/netplan/01-network-manager-all.yaml"
PROBES = {
    facts.OTHERS: foreign_netplan.NAMES_PROBE,
    facts.CONTENT: foreign_netplan.CONTENT_PROBE,
    facts.RENDERERS: foreign_netplan.RENDERERS_PROBE,
}


def run_probe(script: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run it with a python3 that reads YAML, as that of a node does."""
    stand_in(root, "python3", f'exec {sys.executable} "$@"')
    return run(script, root)


def reported(root: Path, path: str, case: dict[str, Any]) -> FabricFacts:
    """The fabric of a factory node with this file, whose interfaces have the address and MTU of the rack."""
    write(root, path, case["text"])
    if not case.get("alone"):
        write(root, DESKTOP, "network:\n  version: 2\n  renderer: NetworkManager\n")
    answers = {name: run_probe(script, root) for name, script in PROBES.items()}
    assert [done.stderr for done in answers.values()] == [""] * len(PROBES)
    assert "hunter2" not in "".join(done.stdout for done in answers.values())
    node = {
        **node_of("fabric"),
        "/etc/netplan/60-sparkrack-fabric.yaml": None,
        **{name: done.stdout.replace(str(root), "") for name, done in answers.items()},
    }
    texts = {name: text.encode() if isinstance(text, str) else None for name, text in node.items()}
    return FabricFacts(HostReading(texts, {}), RACK, RACK.nodes["spark1"])


@pytest.mark.parametrize("case", CORPUS, ids=[case["shape"] for case in CORPUS])
def test_a_published_file_is_handled_or_refused_by_name(tmp_path: Path, case: dict[str, Any]) -> None:
    path = f"/etc/netplan/{case['file']}"
    found = reported(tmp_path, path, case)
    named = [line for line in found.obstacles if line.startswith(path)]
    if case["ends"] == "refused":
        assert named
        assert all(f"it cannot be taken over, {case['why']}" in line for line in named), named
        return
    assert named == []
    assert list(found.adopted) == ([] if case["ends"] == "ignored" else [path])
    assert found.right == (case["ends"] == "stays")


def test_the_corpus_has_sixteen_published_files() -> None:
    published = [case for case in CORPUS if "made for this project" not in case["source"]]
    assert len(published) >= 16
    assert {case["ends"] for case in CORPUS} == {"stays", "taken-over", "refused", "ignored"}


OURS_AND_A_RENDERER = """network:
  version: 2
  renderer: NetworkManager
  ethernets:
    enp1s0f1np1: {dhcp4: no, addresses: [192.168.100.1/24], mtu: 9000}
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("network: {version: 2, renderer: NetworkManager}\n", "NetworkManager"),
        ("{network: {renderer: 'NetworkManager', version: 2}}\n", "NetworkManager"),
        ("network:\n  version: 2\n  renderer:\n    NetworkManager\n", "NetworkManager"),
        ("network:\n  # renderer: networkd\n  renderer: NetworkManager # of the desktop\n", "NetworkManager"),
        ("network:\n  ethernets:\n    eth0:\n      renderer: NetworkManager\n", None),
        ("network:\n  ethernets: {eth0: {renderer: NetworkManager}}\n", None),
        ("network:\n  wifis:\n    w:\n      access-points: {a: {password: 'renderer: NetworkManager'}}\n", None),
        ("network:\n  renderer: [\n", None),
        ("network:\n  renderer: {a: hunter2}\n", None),
        ("network: # renderer\n", None),
        ("network: [renderer]\n", None),
        ("[renderer]\n", None),
    ],
)
def test_the_renderer_of_all_interfaces_is_read_as_netplan_reads_it(
    tmp_path: Path, text: str, found: str | None
) -> None:
    """One that only an interface has is not that of all, and a file with it may not lose ours of all."""
    write(tmp_path, "/etc/netplan/50-other.yaml", text)
    done = run_probe(foreign_netplan.RENDERERS_PROBE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hunter2" not in done.stdout
    told = foreign_netplan.renderers(done.stdout.replace(str(tmp_path), ""))
    assert told == ({"/etc/netplan/50-other.yaml": found} if found else {})
    path = "/etc/netplan/40-cx7.yaml"
    why = foreign_netplan.adoption_blocker(path, OURS_AND_A_RENDERER.encode(), told)
    assert (why is None) == (found is not None), why


def test_a_node_without_a_renderer_is_not_asked_by_a_program(tmp_path: Path) -> None:
    write(tmp_path, "/etc/netplan/50-other.yaml", "network: {version: 2}\n")
    stand_in(tmp_path, "python3", "exit 1")
    done = run(foreign_netplan.RENDERERS_PROBE, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_node_whose_python_reads_no_yaml_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, "/etc/netplan/50-other.yaml", "network: {version: 2, renderer: networkd}\n")
    stand_in(tmp_path, "python3", "echo \"ModuleNotFoundError: No module named 'yaml'\" >&2; exit 1")
    assert run(foreign_netplan.RENDERERS_PROBE, tmp_path).returncode == 9
