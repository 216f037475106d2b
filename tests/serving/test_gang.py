"""All ranks or none: coordinator, agents and engines as processes on nodes with a network between them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.serving.serving_rack import ServingRack


def test_one_failed_gate_starts_no_rank(rack: ServingRack) -> None:
    rack.nodes[1].gate_reason.write_text("spark2: 12 GiB are available, 103 GiB are needed\n")
    rack.up()
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    record = rack.wait_for("held")
    assert record["reason"] == "gate of spark2 (rank 1): 12 GiB are available, 103 GiB are needed"
    assert [node.starts for node in rack.nodes] == [0, 0]
    rack.nodes[1].gate_reason.unlink()
    rack.start()
    assert rack.record()["generation"] == 2


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


def test_files_of_another_version_on_one_node_start_no_rank(rack: ServingRack) -> None:
    rack.up()
    _restart_agent(rack, version="0123456789abcdef")
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    assert "gate of spark2 (rank 1): its agent has another version" in rack.wait_for("held")["reason"]
    assert [node.starts for node in rack.nodes] == [0, 0]
    _restart_agent(rack)
    rack.start()


def _restart_agent(rack: ServingRack, **changes: str) -> None:
    node = rack.nodes[1]
    assert node.agent
    node.agent.kill()
    node.agent.wait()
    node.configure(**changes)
    node.start_agent()


@pytest.mark.parametrize("rack", [4], indirect=True)
def test_four_nodes_start_and_stop_together(rack: ServingRack) -> None:
    rack.nodes[3].gate_reason.write_text("the image differs\n")
    rack.up(restart={"times": 0})
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    assert rack.wait_for("held")["reason"] == "gate of spark4 (rank 3): the image differs"
    assert [node.starts for node in rack.nodes] == [0, 0, 0, 0]
    rack.nodes[3].gate_reason.unlink()
    rack.start()
    for pid in rack.nodes[2].processes():
        os.kill(pid, signal.SIGKILL)
    record = rack.wait_for("held")
    assert record["reason"].startswith("spark3 (rank 2) ended without being asked to: exit code 137")
    assert not any(node.processes() for node in rack.nodes)
