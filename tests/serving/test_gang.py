"""All ranks or none: coordinator, agents and engines as processes on nodes with a network between them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.serving.serving_rack import ServingRack


def test_each_node_has_the_mark_of_a_wanted_unit_while_gates_run_and_none_once_it_is_held(rack: ServingRack) -> None:
    go = rack.folder / "go"
    rack.up(gate=["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done; echo no; exit 1"])
    marks = [node.folder / "run/wanted" for node in rack.nodes]
    assert not any(mark.exists() for mark in marks)
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    rack.wait(lambda: all(mark.exists() for mark in marks), "each node has the mark")
    assert rack.record()["state"] == "gating"
    assert [node.starts for node in rack.nodes] == [0, 0]
    go.touch()
    rack.wait_for("held")
    rack.wait(lambda: not any(mark.exists() for mark in marks), "no mark is left")


@pytest.mark.parametrize("rack", [4], indirect=True)
def test_four_nodes_start_and_stop_together(rack: ServingRack) -> None:
    rack.nodes[3].gate_reason.write_text("the image differs\n")
    rack.up(restart={"times": 0})
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    assert rack.wait_for("held")["reason"] == "gate of spark4 (rank 3): the image differs"
    assert [node.starts for node in rack.nodes] == [0, 0, 0, 0]
    rack.nodes[3].gate_reason.unlink()
    rack.start()
    assert rack.record()["generation"] == 2
    for pid in rack.nodes[2].processes():
        os.kill(pid, signal.SIGKILL)
    record = rack.wait_for("held")
    assert record["reason"].startswith("spark3 (rank 2) ended without being asked to: exit code 137")
    assert not any(node.processes() for node in rack.nodes)
