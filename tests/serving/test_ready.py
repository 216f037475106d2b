"""Ready is served: what a unit of two nodes must prove at each start, with coordinator, agents and engines as
processes."""

from __future__ import annotations

import pytest

from tests.serving.serving_rack import ServingRack


def test_a_unit_that_serves_over_rdma_is_ready_and_says_what_was_proven(rack: ServingRack) -> None:
    rack.up(rdma="required")
    rack.start()
    assert rack.reason("ready") == (
        "a completion gave the known answer, a chat completion gave a clean text, each rank moved bytes by RDMA"
    )
    assert all((node.counters / "port_xmit_data").read_text() != "0\n" for node in rack.nodes)


def test_ranks_that_talk_over_sockets_are_held_with_the_reason(rack: ServingRack) -> None:
    for node in rack.nodes:
        node.fault("sockets")
    rack.up(rdma="required")
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    said = "rocep1s0f1 moved 0 bytes during a request (NCCL says: Using network Socket)"
    assert rack.wait_for("held")["reason"] == (
        f"the ranks do not use RDMA: spark1: {said}; spark2: {said}; not restarted: it was never ready"
    )
    rack.wait_until_gone()


def test_sockets_that_rack_yaml_allows_are_a_remark(rack: ServingRack) -> None:
    rack.nodes[1].fault("sockets")
    rack.up(rdma="remark")
    rack.start()
    remark = (
        "remark: the ranks do not use RDMA: spark2: rocep1s0f1 moved 0 bytes during a request (NCCL says: Using "
        "network Socket)"
    )
    assert rack.reason("ready").endswith(remark)
    assert rack.status()["remark"] == remark.removeprefix("remark: ")


@pytest.mark.parametrize("text", ["", "5"])
def test_a_unit_that_generates_garbage_is_held(rack: ServingRack, text: str) -> None:
    (rack.nodes[0].folder / "faults/garbage").write_text(text)
    rack.up()
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    reason = rack.wait_for("held")["reason"]
    assert reason.startswith(f"the answer is {text!r}, ")
    assert reason.endswith("; not restarted: it was never ready"), "it waits for what does not come"
    assert ("ready", 1) not in rack.states()
    assert not any(node.processes() for node in rack.nodes)


def test_a_unit_without_a_chat_template_is_held_unless_rack_yaml_says_that_it_does_not_chat(rack: ServingRack) -> None:
    rack.nodes[0].fault("no-template")
    rack.up()
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    assert "write kind: completion" in rack.wait_for("held")["reason"]
    for node in rack.nodes:
        node.shut_down()
        node.plug(True)
        node.configure(probe={"kind": "completion"})
        node.boot()
    rack.start()
    assert rack.reason("ready") == "a completion gave the known answer"


def test_a_unit_that_begins_to_generate_garbage_is_stuck(rack: ServingRack) -> None:
    rack.up(restart={"times": 0})
    rack.start()
    (rack.nodes[0].folder / "faults/garbage").write_text("4!!!!!!!")
    reason = rack.wait_for("held")["reason"]
    assert "2 completions in a row failed and no counter rose: the answer is '4!!!!!!!', it repeats '!'" in reason
