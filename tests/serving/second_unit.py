"""A second unit, `tiny`, on the nodes of a rack that serves `toy`: coordinator, agents and engine of its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.serving.serving_rack import ServingRack

COORDINATOR_PORT = 29401


class SecondUnit(ServingRack):
    """The second unit. `first`: the rack whose nodes, which are up, it shares. `port`: of its API."""

    def __init__(self, first: ServingRack, port: int = 8000) -> None:
        folder = first.folder / "tiny"
        folder.mkdir()
        super().__init__(folder, len(first.nodes), replace(first.engine, model="/models/tiny"))
        self.first, self.port = first, port
        self.compiled = first.compiled
        words = {"8000": str(port), "29501": "29521", "toy": "tiny"}
        self.launches = tuple(
            replace(launch, argv=tuple(words.get(word, word) for word in launch.argv)) for launch in self.launches
        )

    def up(self, **changes: Any) -> None:
        """Start it on nodes that are up already."""
        head = self.nodes[0].address
        for node, beside in zip(self.nodes, self.first.nodes, strict=True):
            key = str(node.folder / "etc/unit.key")
            api = {"address": head, "port": self.port, "key_file": key}
            node.configure(
                **{
                    "name": "tiny",
                    "model": "tiny",
                    "head": {"address": head, "port": COORDINATOR_PORT},
                    "api": api,
                    **changes,
                }
            )
            # Where the verbs look for the files of all units of a node.
            shutil.copy(node.unit_file, beside.folder / "etc/tiny.json")
            node.boot_file.write_text(beside.boot_file.read_text())
            if not node.rank:
                node.start_coordinator()
            node.start_agent()
        self.wait(lambda: self.ask_coordinator("status").returncode == 0, "the coordinator of tiny answers")

    def down(self) -> None:
        """The nodes end with the first unit; what ran on them is reaped here, after that."""
        for node in self.nodes:
            node.reap()

    def record(self) -> dict[str, Any]:
        file = self.nodes[0].folder / "state/tiny.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def service(self, rank: int) -> Path:
        """The folder of the stand-in of systemd for the service of a rank."""
        return self.nodes[rank].folder / "service"
