"""Further units on the nodes of a rack that serves `toy`: coordinator, agents and engine of their own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from serving.unit_ports import MASTER_PORT, MASTER_STEP
from tests.serving.serving_rack import COORDINATOR_PORT, ServingRack


class SecondUnit(ServingRack):
    """A further unit. `first`: the rack whose nodes, which are up, it shares. `port`: of its API. `place`: in the order
    of rack.yaml, from which its other ports follow.
    """

    def __init__(self, first: ServingRack, port: int = 8000, name: str = "tiny", place: int = 1) -> None:
        folder = first.folder / name
        folder.mkdir()
        super().__init__(folder, len(first.nodes), replace(first.engine, model=f"/models/{name}"))
        self.first, self.port, self.name = first, port, name
        self.compiled, self.coordinator_port = first.compiled, COORDINATOR_PORT + place
        words = {"8000": str(port), str(MASTER_PORT): str(MASTER_PORT + MASTER_STEP * place), "toy": name}
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
                    "name": self.name,
                    "model": self.name,
                    "head": {"address": head, "port": self.coordinator_port},
                    "api": api,
                    **changes,
                }
            )
            # Where the verbs look for the files of all units of a node.
            shutil.copy(node.unit_file, beside.folder / f"etc/{self.name}.json")
            node.boot_file.write_text(beside.boot_file.read_text())
            if not node.rank:
                node.start_coordinator()
            node.start_agent()
        self.wait(lambda: self.ask_coordinator("status").returncode == 0, f"the coordinator of {self.name} answers")

    def down(self) -> None:
        """The nodes end with the first unit; what ran on them is reaped here, after that."""
        for node in self.nodes:
            node.reap()

    def record(self) -> dict[str, Any]:
        file = self.nodes[0].folder / f"state/{self.name}.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def service(self, rank: int) -> Path:
        """The folder of the stand-in of systemd for the service of a rank."""
        return self.nodes[rank].folder / "service"
