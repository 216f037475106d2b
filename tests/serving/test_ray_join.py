"""The launcher's lines for vLLM on Ray join the nodes with Ray itself, and end with nothing left.

vLLM on Ray refuses CPUs, so that a driver stands in for it (ray_driver.py), which uses Ray as vLLM does.
"""

from __future__ import annotations

import pytest

from tests.serving.serving_rack import ServingRack
from tests.serving.test_conformance import Fault, kill

pytestmark = [
    pytest.mark.soak(sampled=False),
    pytest.mark.parametrize("engine", ["ray"], indirect=True),
]


def test_ray_joins_the_nodes_and_stops_everywhere(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    assert all(node.workers() for node in rack.nodes), "not every node has an actor"
    stop = Fault(rack, lambda: rack.wish("down"))
    assert rack.wait_for("down")["reason"] == "asked to stop"
    stop.ended()


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
