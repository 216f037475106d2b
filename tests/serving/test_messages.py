"""Coordinator and agents obey only what their secret vouches for, and no key is seen."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from lab import namespace
from tests.serving.serve_modules import serve_unit
from tests.serving.serving_rack import KEY, SECRET, ServingRack

REPORT = {
    "kind": "report",
    "unit": "toy",
    "nonce": "0" * 32,
    "rank": 1,
    "state": "ended",
    "generation": 1,
    "boot": "x",
    "clean": True,
    "leaving": False,
    "kernel": "",
    "detail": "forged",
    "gate": None,
    "version": "",
}


def exchange(rack: ServingRack, secret: str, context: str = "") -> bytes:
    """Send a report of rank 1's end from its node and return the answer. `context`: another challenge."""
    with rack.connect(1) as connection:
        once = serve_unit.read_line(connection, time.monotonic() + 30)
        connection.sendall(
            serve_unit.seal(secret.encode(), "question", context or once, {**REPORT, "clock": time.time()})
        )
        connection.settimeout(30)
        return connection.recv(65536)


@pytest.mark.parametrize(
    ("secret", "context"), [("1f" * 32, ""), (SECRET, "0" * 32)], ids=["another secret", "of an earlier connection"]
)
def test_a_forged_or_repeated_report_is_refused(rack: ServingRack, secret: str, context: str) -> None:
    rack.up(restart={"times": 0})
    rack.start()
    assert exchange(rack, secret, context) == b""
    assert rack.record()["state"] != "stopping"
    rack.wait(
        lambda: "is refused: wrong authentication code" in rack.nodes[0].log.read_text(), "the refusal in the log"
    )
    assert exchange(rack, SECRET), "the true report is not heard"
    rack.wait_for("held")
    assert "spark2 (rank 1) ended" in rack.reason("stopping") or "machine of spark2" in rack.reason("stopping")


def test_an_agent_with_another_secret_starts_nothing(rack: ServingRack) -> None:
    rack.up(times={"gate_limit": 3.0})
    node = rack.nodes[1]
    assert node.agent
    node.agent.kill()
    node.agent.wait()
    (node.folder / "etc/unit.secret").write_text("1f" * 32)
    node.start_agent()
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    record = rack.wait_for("held")
    assert "spark2 (rank 1) does not report" in record["reason"]
    assert [node.starts for node in rack.nodes] == [0, 0]


def test_a_stranger_is_not_heard(rack: ServingRack) -> None:
    """An address that is not a rank's gets no challenge, so it cannot occupy a connection."""
    rack.up()
    node = rack.nodes[1]
    rack.wait(lambda: rack.ask_coordinator("status").returncode == 0, "the coordinator answers")
    namespace.ip("address", "add", "10.77.0.99/24", "dev", "eth0", namespace=node.namespace)
    namespace.ip("route", "add", "10.77.0.11/32", "dev", "eth0", "src", "10.77.0.99", namespace=node.namespace)
    with rack.connect(1) as connection:
        connection.settimeout(30)
        assert connection.getsockname()[0] == "10.77.0.99"
        assert connection.recv(100) == b""
    assert "10.77.0.99 is refused" in rack.nodes[0].log.read_text()


def test_connections_without_a_proof_do_not_keep_the_agent_of_their_address_out(rack: ServingRack) -> None:
    """Any process of a node can open them; it has no secret, so it cannot take the place of the agent there."""
    rack.up()
    rack.wait(lambda: rack.ask_coordinator("status").returncode == 0, "the coordinator answers")
    silent = [rack.connect(1) for _ in range(128)]
    try:
        answer = exchange(rack, SECRET)
    finally:
        for connection in silent:
            connection.close()
    assert answer, "the agent's report is not heard beside connections that say nothing"
    rack.wait(
        lambda: f"a connection from {rack.nodes[1].address} is refused: the oldest of" in rack.nodes[0].log.read_text(),
        "the address of the connections in the log",
    )


def test_key_and_secret_are_in_no_argument_log_or_state(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    for node in rack.nodes:
        for pid in namespace.processes(node.namespace):
            arguments = " ".join(namespace._read_arguments(pid))
            assert KEY not in arguments
            assert SECRET not in arguments
        for file in (node.log, *(node.folder / "state").iterdir(), node.folder / "service/log"):
            assert KEY not in file.read_text(), file
            assert SECRET not in file.read_text(), file
    assert KEY not in rack.ask_coordinator("status").stdout


def test_a_key_that_the_engine_refuses_is_not_quoted(rack: ServingRack) -> None:
    rack.up(times={"ready_limit": 10.0})
    command = rack.nodes[0].folder / "service/command"
    command.write_text(re.sub(r"VLLM_API_KEY=.*", "VLLM_API_KEY=another", command.read_text()))
    rack.wait(lambda: rack.ask_coordinator("up").returncode == 0, "the coordinator takes the desired state")
    record = rack.wait_for("held")
    assert 'HTTP status 401: {"error": "Incorrect API key: Bearer (key)"}' in record["reason"]


def test_a_secret_that_others_may_read_keeps_the_coordinator_from_running(rack: ServingRack) -> None:
    rack.up()
    file = rack.nodes[0].folder / "etc/unit.secret"
    file.chmod(0o644)
    done = rack.ask_coordinator("run")
    assert done.returncode == 1
    assert done.stderr == f"serve-coordinator: {file}: owner or mode 644 is wrong: set owner root, mode 600\n"


def test_a_unit_whose_key_cannot_be_read_is_not_started_and_not_ended(rack: ServingRack) -> None:
    """Nothing would prove it after its load."""
    rack.up()
    file = rack.nodes[0].folder / "etc/unit.key"
    file.chmod(0o644)
    rack.status()
    done = rack.ask_coordinator("up")
    fault = f"{file}: owner or mode 644 is wrong: set owner root, mode 600"
    assert (done.returncode, done.stderr) == (1, f"unit toy is not started: {fault}\n")
    file.chmod(0o600)
    rack.start()
    file.chmod(0o644)
    assert rack.nodes[0].coordinator
    rack.nodes[0].coordinator.kill()
    rack.nodes[0].coordinator.wait()
    rack.nodes[0].start_coordinator()
    rack.wait(
        lambda: rack.status()["probe_fault"] == f"no completion can be asked for: {fault}", "the fault of the probe"
    )
    assert (rack.ask_coordinator("up").returncode, rack.record()["generation"], rack.record()["state"]) == (
        0,
        1,
        "ready",
    )
    assert [node.starts for node in rack.nodes] == [1, 1]


def test_an_answer_of_a_coordinator_without_the_secret_is_not_obeyed(rack: ServingRack, tmp_path: Path) -> None:
    """A program on the coordinator's port that orders every rank to run."""
    rack.nodes[0].configure()
    rack.up()
    assert rack.nodes[0].coordinator
    rack.nodes[0].coordinator.kill()
    rack.nodes[0].coordinator.wait()
    forger = tmp_path / "forger.py"
    forger.write_text(FORGER)
    rack.nodes[0].spawn(str(forger))
    rack.wait(lambda: rack.nodes[1].log.read_text().count("wrong authentication code"), "the agent refuses it")
    assert not (rack.nodes[1].folder / "service/starts").exists()


FORGER = """
import json, socket
server = socket.create_server(("10.77.0.11", 29400))
while True:
    connection, _ = server.accept()
    try:
        connection.sendall(b"0" * 32 + b"\\n")
        connection.recv(65536)
        connection.sendall(b"0" * 64 + b" " + json.dumps({"order": "gate", "generation": 1}).encode() + b"\\n")
    except OSError:
        pass
    connection.close()
"""
