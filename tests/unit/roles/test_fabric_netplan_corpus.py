"""Netplan files that people published: each has the effect of ours, is taken over, or is refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.ops.host_facts import HostReading
from roles.fabric import facts, foreign_netplan
from roles.fabric.facts import FabricFacts
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.shells import run, write
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


def reported(root: Path, path: str, case: dict[str, Any]) -> FabricFacts:
    """The fabric of a factory node with this file, whose interfaces have the address and MTU of the rack."""
    write(root, path, case["text"])
    if not case.get("alone"):
        write(root, DESKTOP, "network:\n  version: 2\n  renderer: NetworkManager\n")
    answers = {name: run(script, root) for name, script in PROBES.items()}
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
