"""The launcher's lines for vLLM on Ray join the nodes with Ray itself, and end with nothing left.

vLLM on Ray refuses CPUs, so that a driver stands in for it (ray_driver.py), which uses Ray as vLLM does.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from serving.launch import RAY_VARIABLES
from serving.unit_ports import RAY_PORT
from tests.serving.engines import EngineOfTests
from tests.serving.serving_rack import PATIENCE, RAY_TOKEN, ServingRack
from tests.serving.test_conformance import Fault, kill

pytestmark = [
    pytest.mark.soak(sampled=False),
    pytest.mark.parametrize("engine", ["ray"], indirect=True),
]


def test_ray_joins_the_nodes_and_stops_everywhere(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    assert all(node.workers() for node in rack.nodes), "not every node has an actor"
    stop = Fault(rack, lambda: rack.ask_coordinator("down"))
    assert rack.wait_for("down")["reason"] == "asked to stop"
    stop.ended()


ASK = """
import sys
from ray._raylet import Config, GcsClient
Config.initialize("")
client = GcsClient(address=sys.argv[1])
print(len(client.get_all_node_info(timeout=20)), client.internal_kv_put(b"x", b"y", True, b"fun", timeout=20))
"""
"""What any machine can ask of the head of a Ray without tokens: its nodes, and a place for code that they run."""


def test_a_machine_without_the_token_reads_and_writes_nothing(rack: ServingRack, engine: EngineOfTests) -> None:
    rack.up()
    rack.start()

    def asked(token: str) -> subprocess.CompletedProcess[str]:
        file = rack.folder / "stranger-token"
        file.write_text(token)
        given = {**engine.environment, **RAY_VARIABLES, "RAY_AUTH_TOKEN_PATH": str(file)} if token else {}
        inside = ["ip", "netns", "exec", rack.nodes[1].namespace, sys.executable, "-S", "-c", ASK]
        words = [*inside, f"{rack.nodes[0].address}:{RAY_PORT}"]
        environment = {**os.environ, **engine.environment, **given}
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE)

    known = asked(RAY_TOKEN)
    assert (known.returncode, known.stdout.split()[:1]) == (0, ["2"]), known.stderr[-2000:]
    for token in ("", "5d" * 32):
        stranger = asked(token)
        assert stranger.returncode != 0, stranger.stdout
        assert "nauthenticated" in stranger.stderr or "uthentication" in stranger.stderr, stranger.stderr[-2000:]


def test_a_killed_actor_ends_all(rack: ServingRack) -> None:
    rack.up(restart={"times": 0})
    rack.start()
    fault = Fault(rack, lambda: kill(rack.nodes[1].workers()))
    rack.wait_for("held")
    fault.ended()


def test_a_killed_ray_node_ends_all(rack: ServingRack) -> None:
    rack.up(restart={"times": 0}, times={"probe_interval": 3600.0})
    rack.start()
    fault = Fault(rack, lambda: kill(rack.nodes[1].programs("raylet")))
    record = rack.wait_for("held")
    fault.ended()
    assert record["reason"].startswith("spark2 (rank 1) ended without being asked to: exit code 1")


def test_a_cut_link_ends_both_sides_and_ray_joins_again(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    fault = Fault(rack, lambda: rack.nodes[1].plug(False))
    assert rack.wait_for("stopping")["reason"] == "no report from spark2 (rank 1) for 10 s"
    fault.ended()
    rack.nodes[1].plug(True)
    rack.wait_for("ready", 2)
