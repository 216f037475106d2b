"""The same failures with the stand-in and with vLLM itself: the other tests of this folder rest on the stand-in.

vLLM runs on CPUs, with two ranks in two namespaces and a model of 5 MB. It takes 5 GB of memory, and 30 to 120 s for
each start; so its tests are in one file, which one worker runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.serving.engines import STAND_IN, long_vllm
from tests.serving.serving_rack import API_PORT, COORDINATOR_PORT, KEY, ServingRack, freeze, launcher_lines

pytestmark = pytest.mark.parametrize(
    "engine", [STAND_IN.name, pytest.param("vllm", marks=pytest.mark.soak(sampled=False))], indirect=True
)


CLIENT = """
import http.client, json, sys
address, port, key, tokens = sys.argv[1:]
connection = http.client.HTTPConnection(address, int(port))
body = json.dumps({"model": "toy", "prompt": "a" * int(tokens), "max_tokens": 4, "temperature": 0})
headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
connection.request("POST", "/v1/completions", body, headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


class Fault:
    """The time from a fault to its detection and to the end of all ranks. It is printed, and decides nothing."""

    def __init__(self, rack: ServingRack, inject: Callable[[], object]) -> None:
        self.rack, self.begun = rack, time.time()
        inject()

    def ended(self, *nodes: int) -> None:
        """Check that nothing of the engine is left on these nodes, all by default."""
        rack = self.rack
        chosen = [rack.nodes[number] for number in nodes] or rack.nodes
        rack.wait_until_gone(*chosen)
        gone = time.time() - self.begun
        found = [
            one
            for one in rack.record().get("transitions", [])
            if one[1] in ("stuck", "stopping") and one[0] > self.begun
        ]
        detected = f"{found[0][0] - self.begun:.1f} s: {found[0][3]}" if found else "by an agent"
        left = {node.name: len(list((node.folder / "shm").iterdir())) for node in chosen}
        print(f"{rack.engine}: detected after {detected}; all ended after {gone:.1f} s; load {os.getloadavg()[0]:.1f}")
        print(f"  files left in /dev/shm, which a container takes along: {left}")
        rack.wait(lambda: not any(node.strangers() for node in chosen), "nothing is left beside coordinator and agent")
        # The threads of a killed process end after it, and free its ports then.
        rack.wait(lambda: not any(node.listening() - {COORDINATOR_PORT} for node in chosen), "all ports are free")


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_unit_starts_once_all_gates_passed_and_stops_everywhere(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    record = rack.record()
    assert (record["generation"], record["desired_state"], record["restarts"]) == (1, "up", [])
    assert rack.states() == [("gating", 1), ("starting", 1), ("ready", 1)]
    assert all(node.processes("serve") and node.workers() for node in rack.nodes)
    assert rack.ask_coordinator("up").stdout.startswith("unit toy is ")
    assert API_PORT in rack.nodes[0].listening()
    assert all(list((node.folder / "shm").iterdir()) for node in rack.nodes), "shared memory is not looked for"
    stop = Fault(rack, lambda: rack.ask_coordinator("down"))
    record = rack.wait_for("down")
    assert record["reason"] == "asked to stop"
    assert not any(node.processes() for node in rack.nodes), "down is reported before it is so"
    stop.ended()  # vLLM 0.32.0 leaves a file in /dev/shm even so; a container has its own, which ends with it


def test_a_rank_without_an_agent_holds_all_back(rack: ServingRack) -> None:
    rack.up(times={"gate_limit": 2.0})
    assert rack.nodes[1].agent
    rack.nodes[1].agent.kill()
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    record = rack.wait_for("held")
    assert "spark2 (rank 1)" in record["reason"]
    assert [node.starts for node in rack.nodes] == [0, 0]


def test_a_rank_that_ends_before_it_met_the_others_ends_them(rack: ServingRack) -> None:
    rack.up()
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    rack.wait(lambda: rack.nodes[1].processes("serve"), "the second rank starts")
    fault = Fault(rack, lambda: kill(rack.nodes[1].processes()))
    record = rack.wait_for("held")
    fault.ended()
    assert "spark2 (rank 1) ended without being asked to: exit code 137" in record["reason"]
    assert "not restarted: it was never ready" in record["reason"]


def test_a_killed_rank_ends_all_and_is_restarted_once(rack: ServingRack) -> None:
    rack.up(times={"probe_interval": 3600.0})  # idle: no request notices it
    rack.start()
    first = rack.nodes[0].processes()
    fault = Fault(rack, lambda: kill(rack.nodes[1].workers()))
    rack.wait(lambda: ("gating", 2) in rack.states(), "all ranks are down")
    assert not set(first) & set(rack.nodes[0].processes()), "the head's rank of the first generation is still there"
    record = rack.wait_for("ready", 2)
    assert len(record["restarts"]) == 1
    (reason,) = [reason for _, state, _, reason in record["transitions"] if state == "stopping"]
    # What vLLM said last may follow: that its worker died.
    assert reason.startswith("spark2 (rank 1) ended without being asked to: exit code 0, result success")
    fault = Fault(rack, lambda: kill(rack.nodes[0].workers()))
    record = rack.wait_for("held")
    fault.ended()
    assert "spark1 (rank 0) ended without being asked to: exit code 0" in record["reason"]
    assert "not restarted: 1 restarts within 21600 s" in record["reason"]
    assert [node.starts for node in rack.nodes] == [2, 2]


def test_the_head_process_killed_leaves_no_headless_rank(rack: ServingRack) -> None:
    rack.up(restart={"times": 0})
    rack.start()
    fault = Fault(rack, lambda: kill(rack.nodes[0].processes()))
    record = rack.wait_for("held")
    fault.ended()
    assert "spark1 (rank 0) ended without being asked to: exit code 137, result exit-code" in record["reason"]
    assert list((rack.nodes[0].folder / "shm").iterdir()), "the stand-in does not leave its shared memory behind"


def test_ranks_end_themselves_when_the_heads_machine_is_gone(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    fault = Fault(rack, rack.nodes[0].kill)
    fault.ended(1)
    lease = rack.engine.times["lease"]
    assert f"no authentic answer of the coordinator for {lease:g} s" in rack.nodes[1].log.read_text()


def test_a_cut_link_ends_both_sides_and_none_starts_alone(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    fault = Fault(rack, lambda: rack.nodes[1].plug(False))
    record = rack.wait_for("stopping")
    assert record["reason"] == f"no report from spark2 (rank 1) for {rack.engine.times['lease']:g} s"
    fault.ended()
    rack.wait(lambda: rack.status()["unconfirmed"] == ["spark2"], "spark1 reports that its rank has stopped")
    status = rack.status()
    assert (status["state"], status["generation"], status["ranks"][1]["state"]) == ("stopping", 1, "unknown")
    rack.nodes[1].plug(True)
    rack.wait_for("ready", 2)
    assert [node.starts for node in rack.nodes] == [2, 2]


def test_a_frozen_rank_is_stuck(rack: ServingRack) -> None:
    rack.up(restart={"times": 0})
    rack.start()
    fault = Fault(rack, lambda: freeze(*rack.nodes[1].processes()))
    assert rack.health() == 200
    rack.wait(lambda: ("stuck", 1) in rack.states(), "state stuck")
    limit = rack.engine.times["probe_limit"]
    assert rack.reason("stuck") == f"2 completions in a row failed and no counter rose: no answer within {limit:g} s"
    fault.ended()
    rack.wait_for("held")


def test_one_long_prompt_does_not_end_the_unit(rack: ServingRack) -> None:
    """While it is computed in parts no counter rises, and no other completion ends."""
    times = {"probe_interval": 1.0, "probe_limit": 2.0}
    hang = times["probe_interval"] + 2 * times["probe_limit"] + rack.engine.times["lease"]
    if rack.engine.name == STAND_IN.name:
        rack.up(times=times)
        rack.start()
        rack.nodes[0].fault("prefill")
        begun = time.monotonic()
        looks = rack.requests("/metrics")
        rack.wait(lambda: rack.requests("/metrics") > looks + 24, "24 looks at the metrics")
        assert rack.record()["state"] == "busy"
        rack.nodes[0].fault("prefill", False)
    else:
        rack.engine = long_vllm(rack.engine, rack.folder, 65536)
        rack.launches = launcher_lines(len(rack.nodes), rack.engine)
        rack.up(times=times)
        rack.start()
        head = rack.nodes[0]
        words = ["ip", "netns", "exec", head.namespace, sys.executable, "-c", CLIENT, head.address, str(API_PORT), KEY]
        begun = time.monotonic()
        with subprocess.Popen([*words, "60000"], stdout=subprocess.PIPE, text=True) as client:
            rack.wait(lambda: rack.record()["state"] == "busy", "state busy")
            rack.wait(lambda: client.poll() is not None, "the answer to the long prompt", every=0.5)
            status, _, text = client.communicate()[0].partition(" ")
        print(f"a prompt of 60000 tokens took {time.monotonic() - begun:.0f} s; a hang is found in {hang:g} s")
        assert (status, '"text":"4"' in text) == ("200", True), text[:300]
    assert time.monotonic() - begun > hang, "it was over before a hang would have been found: make it longer"
    rack.wait_for("ready", 1)
    assert rack.states() == [("gating", 1), ("starting", 1), ("ready", 1)]
    assert [node.starts for node in rack.nodes] == [1, 1]


def test_a_coordinator_that_comes_back_disturbs_no_rank(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    before = [node.processes() for node in rack.nodes]
    assert rack.nodes[0].coordinator
    rack.nodes[0].coordinator.kill()
    rack.nodes[0].coordinator.wait()
    rack.nodes[0].start_coordinator()
    answered = rack.requests("/v1/completions")
    rack.wait(lambda: rack.ask_coordinator("status").returncode == 0, "the coordinator answers")
    rack.wait(lambda: all(rank["state"] == "running" for rank in rack.status()["ranks"]), "every rank reports")
    rack.wait(lambda: rack.requests("/v1/completions") > answered + 2, "more probes")
    assert (rack.record()["generation"], rack.record()["state"]) in ((1, "ready"), (1, "busy"))
    assert [node.processes() for node in rack.nodes] == before


def test_a_stale_rank_is_ordered_to_stop_and_no_generation_returns(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    assert rack.nodes[1].agent
    freeze(rack.nodes[1].agent.pid)  # its rank goes on
    rack.wait_for("stopping")
    rack.wait_until_gone(rack.nodes[0])
    assert rack.ask_coordinator("down").returncode == 0
    rack.wait(lambda: rack.status()["unconfirmed"] == ["spark2"], "spark1 reports that its rank has stopped")
    assert rack.record()["state"] == "stopping", "down is reported beside a rank that runs"
    assert rack.nodes[1].processes()
    # A coordinator without its state file does not know that rank at all.
    assert rack.nodes[0].coordinator
    rack.nodes[0].coordinator.kill()
    rack.nodes[0].coordinator.wait()
    (rack.nodes[0].folder / "state/toy.json").unlink()
    rack.nodes[0].start_coordinator()
    fault = Fault(rack, lambda: freeze(rack.nodes[1].agent.pid, thaw=True) if rack.nodes[1].agent else None)
    fault.ended()
    rack.start()
    assert rack.record()["generation"] == 2
    assert [node.starts for node in rack.nodes] == [2, 2]
