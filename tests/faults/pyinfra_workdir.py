"""An operator's folder whose nodes are `@fake` hosts: real `pyinfra` runs, with nodes that answer badly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.model.role import role_named
from tests.unit.cli.runs import Ended, forked
from tests.unit.model.racks import SWITCH, changed
from tests.unit.ops.fakenode import answer
from tests.unit.roles.cases import role_file

INVENTORY = """\
import json
from pathlib import Path

from pyinfra.connectors.fake import FakeConnector

# All roles, so that the probe asks what it asks in a real run.
import tests.unit.roles.cases as _cases
from core.model import load as _load
from core.ops.host_facts import READ as _script

_rack = _load("rack.yaml")
_lookup = FakeConnector._lookup_response


def _raising(self, command):
    if command.endswith(_script) and self.host.data.lost:
        raise TimeoutError(self.host.data.lost)
    return _lookup(self, command)


FakeConnector._lookup_response = _raising


def _responses(said):
    if "lost" in said:
        return {}
    if "refused" in said:
        return {_script: {"success": False, "stderr": said["refused"]}}
    return {_script: "\\n".join(said["lines"]), **said.get("commands", {})}


nodes = [
    (
        f"@fake/{_name}",
        {
            "rack": _rack,
            "node": _rack.nodes["spark1"],
            "lost": _said.get("lost"),
            "fake_delay": 0,
            "fake_delay_jitter": 0,
            "fake_responses": _responses(_said),
        },
    )
    for _name, _said in json.loads(Path("nodes.json").read_text()).items()
]
"""
DEPLOY = """\
from pyinfra.context import host

from {package}.apply import apply

apply(rack=host.data.rack, node=host.data.node)
"""
MODES: Mapping[str, tuple[str, ...]] = {"dry": ("--dry",), "yes": ("-y",), "closed": ()}
"""Kinds of runs. `closed`: without a terminal for the question whether to continue."""


def run(folder: Path, role: str, nodes: dict[str, Any], mode: str, *more: str, edits: list[Any] | None = None) -> Ended:
    """Run one role on these nodes; each is {node: its answers}, {refused: complaint} or {lost: reason}."""
    (folder / "rack.yaml").write_text(changed(SWITCH, *map(tuple, role_file(role)["rack"] if edits is None else edits)))
    (folder / "nodes.json").write_text(
        json.dumps({name: _replace_by_answer(reported) for name, reported in nodes.items()})
    )
    (folder / "inventory.py").write_text(INVENTORY)
    (folder / "deploy.py").write_text(DEPLOY.format(package=role_named(role).package))
    return forked("pyinfra", "inventory.py", "deploy.py", "-vv", *MODES[mode], *more, cwd=folder)


def _replace_by_answer(reported: dict[str, Any]) -> dict[str, Any]:
    """With what the probe prints there, instead of what the node is."""
    return {**reported, "lines": answer(reported["node"])[: reported.get("cut")]} if "node" in reported else reported


def sent(ended: Ended) -> list[str]:
    """Return the commands that could change a node: each begins the same way, and -vv shows them."""
    return [line for line in ended.text.splitlines() if ">>> set -eu" in line or "systemctl stop" in line]
