"""What ends a running unit, and what does not. Each fault is real: a signal, a cut link, a process that is gone."""

from __future__ import annotations

from tests.serving.serving_rack import ServingRack, freeze


def test_a_busy_engine_is_not_stuck(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    rack.nodes[0].fault("busy")  # no completion ends any more
    rack.wait_for("busy")
    looks = rack.requests("/metrics")
    rack.wait(lambda: rack.requests("/metrics") > looks + 6, "6 more looks at the counters")
    assert rack.record()["state"] == "busy"
    asked = rack.requests("/v1/completions")
    rack.nodes[0].fault("busy", False)
    rack.wait(lambda: rack.requests("/v1/completions") > asked, "a completion")
    rack.wait_for("ready", 1)
    assert [node.starts for node in rack.nodes] == [1, 1]


def test_a_coordinator_that_stays_away_ends_all_ranks(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    assert rack.nodes[0].coordinator
    rack.nodes[0].coordinator.kill()
    rack.nodes[0].coordinator.wait()
    rack.wait_until_gone()
    assert rack.ask_coordinator("status").stderr.startswith(
        "serve-coordinator: the coordinator of unit toy does not answer at 10.77.0.11:29400"
    )
    rack.nodes[0].start_coordinator()
    rack.wait_for("ready", 2)
    assert "stopped: no answer of the coordinator for 3 s" in rack.reason("stopping")
    assert len(rack.record()["restarts"]) == 1


SLOW = """
import socket, threading, time
def forward(source, target):
    while part := source.recv(65536):
        time.sleep(0.15)
        target.sendall(part)
listener = socket.create_server(("10.77.0.12", 29401))
while True:
    near = listener.accept()[0]
    try:
        far = socket.create_connection(("10.77.0.11", 29400))
    except OSError:
        near.close()
        continue
    for ends in ((near, far), (far, near)):
        threading.Thread(target=forward, args=ends, daemon=True).start()
"""


def test_a_coordinator_that_answers_slowly_is_heard_again_after_a_lease(rack: ServingRack) -> None:
    times = {"ask": 1.5}
    rack.up(times=dict(times))
    node = rack.nodes[1]
    relay = node.spawn("-c", SLOW)
    assert node.agent
    node.agent.kill()
    node.agent.wait()
    node.configure(times=dict(times), head={"address": node.address, "port": 29401})
    node.start_agent()
    rack.start()
    assert rack.nodes[0].coordinator
    rack.nodes[0].coordinator.kill()
    rack.nodes[0].coordinator.wait()
    rack.wait_until_gone()
    rack.nodes[0].start_coordinator()
    rack.wait_for("ready", 2)
    relay.kill()
    relay.wait()


def test_an_agent_that_comes_back_disturbs_no_rank(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    before = [node.processes() for node in rack.nodes]
    assert rack.nodes[1].agent
    rack.nodes[1].agent.kill()
    rack.nodes[1].agent.wait()
    rack.nodes[1].start_agent()
    rack.wait(lambda: rack.nodes[1].log.read_text().count("the agent of rank 1 asks") == 2, "the agent asks")
    answered = rack.requests("/v1/completions")
    rack.wait(lambda: rack.requests("/v1/completions") > answered + 4, "more probes than a lease is long")
    assert [node.processes() for node in rack.nodes] == before
    assert rack.record()["generation"] == 1


def test_a_service_that_is_started_by_hand_is_not_taken_for_a_rank(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    node = rack.nodes[1]
    assert node.agent
    freeze(node.agent.pid)
    for verb in ("stop", "start"):
        node.systemctl(verb, "sparkrack-serve-toy.service")
    freeze(node.agent.pid, thaw=True)
    rack.wait(lambda: ("stopping", 1) in rack.states(), "state stopping")
    assert rack.reason("stopping") == "spark2 (rank 1) runs outside of generation 1"
    rack.wait_for("ready", 2)


def test_a_service_that_is_stopped_by_hand_ends_the_unit(rack: ServingRack) -> None:
    rack.up(restart={"times": 0})
    rack.start()
    rack.nodes[1].systemctl("stop", "sparkrack-serve-toy.service")
    record = rack.wait_for("held")
    by_hand = "stopped: sparkrack-serve-toy.service is being stopped on the node, not by its agent"
    assert record["reason"].startswith(("spark2 (rank 1) ended without being asked to", f"spark2 (rank 1) {by_hand}"))
    assert not any(node.processes() for node in rack.nodes)


def test_no_restart_follows_a_fault_that_the_kernel_logged(rack: ServingRack) -> None:
    logged = "NVRM: Xid (PCI:000f:01:00): 79, pid=1234, GPU has fallen off the bus."
    rack.up()
    rack.nodes[1].kernel_log.write_text("sparkrack-memory-guard: armed again: 9 KiB of memory are available\n")
    rack.start()
    with rack.nodes[1].kernel_log.open("a") as log:
        log.write(f"{logged}\n")
    rack.nodes[1].systemctl("kill")
    record = rack.wait_for("held")
    assert f"not restarted: spark2: the kernel logged: {logged}" in record["reason"]
    assert [node.starts for node in rack.nodes] == [1, 1]
    rack.nodes[1].kernel_log.unlink()
    rack.start()
    rack.nodes[1].systemctl("kill")
    rack.wait_for("ready", 3)


def test_a_rank_that_ends_at_its_start_says_why(rack: ServingRack) -> None:
    rack.up()
    failed = "docker: Error response from daemon: unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown"
    (rack.nodes[1].folder / "service/command").write_text(f"echo '{failed}'\nexit 125\n")
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    record = rack.wait_for("held")
    assert "docker gave the container no GPU (unresolvable CDI devices runtime.nvidia.com/gpu=all" in record["reason"]
    assert "; `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`" in record["reason"]
    assert record["cause"] == "failed"
