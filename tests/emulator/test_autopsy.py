"""`sparkrack autopsy` with the emulated switch: when the legs of a dead node went down, by its log or the interface."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.switch_runs import Workdir, waits_for
from tests.unit.autopsy.nodes import Nodes, entry, sample
from tests.unit.cli.runs import forked

LEG = ("qsfp56-dd-1", 1)


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    (tmp_path / "nodes").mkdir()
    return Nodes(tmp_path / "nodes", ("spark1", "spark2"))


def autopsy(workdir: Workdir, nodes: Nodes) -> dict[str, Any]:
    more: dict[str, Any] = nodes.environment
    ended = forked(
        *("sparkrack", "autopsy", "spark1", "--json", "--rack", workdir.folder / "rack.yaml"),
        CRS812_PASSWORD=workdir.emulator.password,
        XDG_STATE_HOME=str(workdir.folder / "state"),
        **more,
    )
    assert "Traceback" not in ended.text
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_leg_that_carries_frames_is_that_of_a_node_that_may_be_alive(workdir: Workdir, nodes: Nodes) -> None:
    """Its samples stopped ten minutes ago and ssh does not answer, as with a management link that is down."""
    assert workdir.run("-y").code == 0
    leg = "-".join(map(str, LEG))
    waits_for(lambda: workdir.emulator.links()[leg] == "link-ok")
    nodes.die("spark1")
    at = time.time() - 600
    os.utime(nodes.write("spark2", "peers/spark1.ring", f"{sample(at)}\n"), (at, at))
    found = autopsy(workdir, nodes)
    assert found["verdict"] == "unknown"
    assert f"the switch receives frames from {leg}: it may be alive" in found["reason"]
    workdir.emulator.control({"op": "quiet"})
    found = autopsy(workdir, nodes)
    assert (found["verdict"], found["confidence"]) == ("freeze", "medium"), found["reason"]
    assert f"the switch receives no frame from {leg}" in found["reason"]


def test_the_leg_of_a_dead_node(workdir: Workdir, nodes: Nodes) -> None:
    """Its last line was received in the second in which its link went down, and no record says why: power."""
    assert workdir.run("-y").code == 0
    cage, lane = LEG
    waits_for(lambda: workdir.emulator.links()[f"{cage}-{lane}"] == "link-ok")
    workdir.emulator.control({"op": "cable", "do": "pull", "cage": cage, "lane": lane})
    pulled = time.time()
    waits_for(lambda: workdir.emulator.links()[f"{cage}-{lane}"] == "no-link")
    nodes.die("spark1")
    nodes.write("spark2", "remote/remote-spark1.journal", f"{entry(pulled, 'the last line', 'vllm')}\n")
    found = autopsy(workdir, nodes)
    downs = [
        one for one in found["timeline"] if one["source"] == "switch" and one["text"] == f"{cage}-{lane} link down"
    ]
    assert downs, found
    switch = next(one for one in found["sources"] if one["name"] == "switch crs812")
    assert switch["state"] == "read"
    assert abs(switch["skew"]) < 60
    assert (found["verdict"], found["confidence"]) == ("power", "medium"), found["reason"]
    assert "power, or a reset without a record" in found["reason"]
    os.utime(nodes.write("spark2", "remote/remote-spark1.journal", f"{entry(pulled - 120, 'the last line', 'vllm')}\n"))
    assert autopsy(workdir, nodes)["verdict"] == "unknown", "a journal that is silent for two minutes is not a sign"
