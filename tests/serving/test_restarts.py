"""Which end of a unit is followed by a restart, with real processes: one restart, then held; never after some ends."""

from __future__ import annotations

import os
import signal

import pytest

from tests.serving.serving_rack import ServingNode, ServingRack
from tests.serving.test_conformance import Fault, kill

GUARD = "sparkrack-memory-guard: 9 KiB of memory are available, less than the floor of 10 KiB: ended every container"


def end_like_docker_stop(node: ServingNode) -> None:
    """Send TERM to the engine's first process, which ends with code 0."""
    os.kill(min(node.processes("serve")), signal.SIGTERM)


def test_a_livelock_is_followed_by_one_restart_and_then_held(rack: ServingRack) -> None:
    head = rack.nodes[0]
    rack.up()
    rack.start()
    head.fault("livelock")
    assert rack.health() == 200
    rack.wait(lambda: ("gating", 2) in rack.states(), "all ranks are down")
    head.fault("livelock", False)
    assert len(rack.wait_for("ready", 2)["restarts"]) == 1
    fault = Fault(rack, lambda: head.fault("livelock"))
    record = rack.wait_for("held")
    fault.ended()
    assert rack.reason("stuck") == "2 completions in a row failed and no counter rose: no answer within 2 s"
    assert record["reason"] == f"{rack.reason('stuck')}; not restarted: 1 restarts within 21600 s"
    assert [node.starts for node in rack.nodes] == [2, 2]


def test_a_stop_by_hand_whose_code_is_0_counts_as_a_failure(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    end_like_docker_stop(rack.nodes[1])
    record = rack.wait_for("ready", 2)
    assert len(record["restarts"]) == 1, "it does not count against the budget"
    by_hand = "spark2 (rank 1) ended without being asked to: exit code 0, result success"
    assert rack.reason("stopping") == by_hand
    end_like_docker_stop(rack.nodes[1])
    record = rack.wait_for("held")
    assert record["reason"] == f"{by_hand}; not restarted: 1 restarts within 21600 s"
    assert record["desired_state"] == "up"
    assert not any(node.processes() for node in rack.nodes)


def test_a_unit_of_which_the_guard_ends_a_rank_while_it_loads_is_held_with_its_line(rack: ServingRack) -> None:
    rack.nodes[0].fault("livelock")  # all ranks run, and no completion is answered yet
    rack.up()
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    rack.wait_for("starting")
    rack.wait(lambda: rack.nodes[1].workers(), "the second rank runs")
    rack.nodes[1].kernel_log.write_text(f"{GUARD}\n")
    fault = Fault(rack, lambda: kill(rack.nodes[1].processes()))
    record = rack.wait_for("held")
    fault.ended()
    assert record["reason"] == (
        "spark2 (rank 1) ended without being asked to: exit code 137, result exit-code: it was killed; "
        "`journalctl -k -b` names the memory guard or the kernel, if it was one of them; "
        f"not restarted: spark2: the kernel logged: {GUARD}"
    )
    assert ("ready", 1) not in rack.states()
    assert [node.starts for node in rack.nodes] == [1, 1]


@pytest.mark.parametrize("last", [0, 1])
def test_after_a_clean_reboot_a_unit_starts_when_its_last_machine_is_there(rack: ServingRack, last: int) -> None:
    rack.up(boot="start")
    rack.start()
    for node in reversed(rack.nodes):
        node.shut_down()
    first = rack.nodes[1 - last]
    first.plug(True)
    first.boot()
    if last:
        rack.wait(lambda: rack.ask_coordinator("status").returncode == 0, "the coordinator answers")
        rack.wait(lambda: rack.status()["unconfirmed"] == ["spark2"], "spark1 reports, and spark2 does not")
    else:
        rack.wait(lambda: "no authentic answer of the coordinator" in first.log.read_text(), "spark2 asks in vain")
    assert [node.starts for node in rack.nodes] == [1, 1]
    rack.nodes[last].plug(True)
    rack.nodes[last].boot()
    record = rack.wait_for("ready", 2)
    assert record["restarts"] == [], "a reboot counts against the budget"
    assert [node.starts for node in rack.nodes] == [2, 2]
