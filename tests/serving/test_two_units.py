"""Two units up on the same nodes, with the real coordinators, agents and gates: one loads while the other gates."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.second_unit import SecondUnit
from tests.serving.serving_rack import ServingRack
from tests.serving.test_gate import GATE_PROGRAMS, WANTED, GateNode

MIB = 1 << 20
TOTAL, FLOOR = 1000, 50
"""MiB of a node, and those that the guard keeps."""
MEMORY_GATE = """\
has=$(sed -n 's/^MemAvailable: *\\([0-9]*\\) kB/\\1/p' {root}/proc/meminfo)
[ $((has / 1024)) -ge ${{1%M}} ] || {{ echo "memory-gate: $has KiB are available, $1 are needed" >&2; exit 1; }}
"""


class SharedNodes:
    """Two nodes with the units toy and tiny, whose gates are the role's, on a folder that stands for / of each node."""

    def __init__(self, rack: ServingRack) -> None:
        self.toy, self.tiny = rack, SecondUnit(rack, port=8001)
        self.roots = [GateNode(node.folder / "root") for node in rack.nodes]
        for root in self.roots:
            root.command(f"{GATE_PROGRAMS}/memory-gate", MEMORY_GATE.format(root=root.root))
        self.available(TOTAL)
        for unit, name in ((self.toy, "toy"), (self.tiny, "tiny")):
            for node, root in zip(unit.nodes, self.roots, strict=True):
                marks = root.root / f"run/sparkrack-serve/{name}"
                marks.mkdir(parents=True)
                (node.folder / "run").rmdir()
                (node.folder / "run").symlink_to(marks)
            unit.up(times={"probe_interval": 3600.0})
            for node, root in zip(unit.nodes, self.roots, strict=True):
                file = root.root / f"etc/sparkrack/serve/{name}.gate.json"
                words = [sys.executable, str(unit.programs / "serve_start_gate.py"), str(file), "--together"]
                gate = f"PATH={root.root}/bin:$PATH exec {shlex.join([*words, '--root', str(root.root)])}\n"
                (node.folder / "etc/gate.sh").write_text(gate)

    def takes(self, unit: str, mib: int) -> None:
        """Have a unit declare so much."""
        for number, root in enumerate(self.roots):
            changes: dict[str, Any] = {
                "node": f"spark{number + 1}",
                "unit": unit,
                "proof": None,
                "echoes": [],
                "ports": {},
            }
            memory = {"bytes": mib * MIB, "floor": FLOOR * MIB}
            wanted = json.dumps({**WANTED, **changes, "memory": memory})
            root.file(f"etc/sparkrack/serve/{unit}.gate.json", wanted)

    def available(self, mib: int) -> None:
        for root in self.roots:
            root.file("proc/meminfo", f"MemTotal: {TOTAL << 10} kB\nMemFree: 1 kB\nMemAvailable: {mib << 10} kB\n")

    def loading(self, unit: str) -> list[bool]:
        return [(root.root / f"run/sparkrack-serve/{unit}/loading").exists() for root in self.roots]


@pytest.fixture
def shared(rack: ServingRack) -> Iterator[SharedNodes]:
    """Two units that are down."""
    made = SharedNodes(rack)
    yield made
    rack.down()
    made.tiny.down()


def test_a_unit_starts_beside_one_that_loads_only_where_both_have_room(shared: SharedNodes) -> None:
    toy, tiny = shared.toy, shared.tiny
    shared.takes("toy", 600)
    shared.takes("tiny", 400)
    toy.nodes[0].fault("livelock")
    assert toy.ask_coordinator("up").returncode == 0
    toy.wait_for("starting")
    assert shared.loading("toy") == [True, True]
    assert tiny.ask_coordinator("up").returncode == 0
    refused = tiny.wait_for("held")["failed_gates"]
    assert refused, "a unit starts with memory that another one has not taken yet"
    for reason in refused.values():
        assert "1024000 KiB are available, 1050M are needed, of which toy, which load here, have not taken" in reason
    # Toy has taken 500 of 600, tiny takes 300, and 100 are still toy's.
    shared.available(500)
    shared.takes("tiny", 300)
    tiny.start()
    assert toy.record()["state"] == "starting"
    toy.nodes[0].fault("livelock", False)
    toy.wait_for("ready")
    toy.wait(lambda: shared.loading("toy") + shared.loading("tiny") == [False] * 4, "both have taken what they take")
    assert toy.nodes[0].listening() >= {8000, 8001, 29400, 29401}
    assert tiny.ask_coordinator("down").returncode == 0
    tiny.wait_for("down")
    assert (toy.record()["state"], toy.record()["generation"]) == ("ready", 1)
    assert toy.health() == 200


def test_a_unit_that_is_killed_comes_back_and_the_one_beside_it_serves_on(shared: SharedNodes) -> None:
    toy, tiny = shared.toy, shared.tiny
    for name in ("toy", "tiny"):
        shared.takes(name, 400)
    toy.start()
    tiny.start()
    before = [node.processes("toy") for node in toy.nodes]
    assert all(before)
    for pid in tiny.nodes[1].processes("tiny"):
        os.kill(pid, signal.SIGKILL)
    assert len(tiny.wait_for("ready", 2)["restarts"]) == 1
    assert [node.processes("toy") for node in toy.nodes] == before
    assert (toy.record()["state"], toy.record()["generation"]) == ("ready", 1)
    assert toy.health() == 200
