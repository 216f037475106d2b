"""The proof of RDMA between two nodes in network namespaces: real gates that meet, over links whose carrier the kernel
counts. The tool is the lab's stand-in, which meets its peer over the link: no namespace has RDMA.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import namespace
from serving import desired
from tests.serving.serve_modules import FOLDER, serve_gate_command, serve_rdma_check, serve_unit
from tests.serving.test_gate import WANTED, GateNode
from tests.unit.model.serving_racks import unit
from tests.unit.roles.serving_units import LEASE, locked
from tests.unit.test_project import TOP

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")

STAND_IN = TOP / "lab/image/rootfs/usr/lib/sparkrack-lab/ib_write_bw"
RUN = """
import sys
sys.path.insert(0, {folder!r})
import serve_start_gate, serve_rdma_check, serve_gate_command
serve_rdma_check.MEETING_LIMIT = {limit}
# A machine that is busy with other tests takes longer for a process than a node does.
serve_rdma_check.MESSAGE_LIMIT, serve_rdma_check.LISTEN_LIMIT, serve_rdma_check.TOOL_LIMIT = 20, 50, 50
serve_gate_command.LIMIT = 50
sys.exit(serve_start_gate.main(sys.argv[1:]))
"""
HALVES = ("enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1")


class ProofNode(GateNode):
    """One end of two cables, in a namespace of its own; its /proc/net and /sys are those of the namespace."""

    def __init__(self, root: Path, name: str, wanted: dict[str, Any]) -> None:
        super().__init__(root)
        self.name, self.namespace = name, f"sp{os.getpid()}{name}"
        (root / "proc/net/tcp").unlink()
        (root / "proc/net/tcp6").unlink()
        (root / "proc/net").rmdir()
        (root / "proc/net").symlink_to("/proc/net")
        shutil.rmtree(root / "sys", ignore_errors=True)
        (root / "sys").symlink_to("/sys")
        self.boot("first")
        self.carry(109.0)
        self.secret(LEASE)
        shutil.rmtree(root / "var")
        program = STAND_IN.read_text().replace("/lab/hardware.json", str(root / "hardware.json"))
        self.file("bin/tool", program)
        self.command("ib_write_bw", f'exec {sys.executable} {root}/bin/tool "$@"')
        own = ("proof", "node", "unit")
        self.wanted = WANTED | {key: wanted[key] for key in own} | {"ports": {}, "time": False}
        self.file("gate.json", json.dumps(self.wanted))

    def boot(self, name: str) -> None:
        (self.root / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{self.name} {name}\n")

    def carry(self, gbps: float, *devices: str) -> None:
        """Have its RDMA devices carry so much."""
        names = devices or [f"roce{half.removeprefix('en').rsplit('np', 1)[0]}" for half in HALVES]
        file = self.root / "hardware.json"
        before = json.loads(file.read_text())["rdma"] if file.exists() else {}
        file.write_text(json.dumps({"rdma": before | {name: {"gbps": gbps} for name in names}}))

    def secret(self, text: str) -> None:
        file = self.root / "etc/sparkrack/serve/one.secret"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        file.chmod(0o600)

    def begin(self, *words: str, limit: float = 40.0) -> subprocess.Popen[str]:
        """Start its gate."""
        program = RUN.format(folder=str(FOLDER), limit=limit)
        inside = ["ip", "netns", "exec", self.namespace, sys.executable, "-B", "-c", program]
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        words = (*words, str(self.root / "gate.json"), "--root", str(self.root))
        return subprocess.Popen([*inside, *words], stdout=subprocess.PIPE, text=True, env=environment)

    def records(self) -> dict[str, dict[str, Any]]:
        """Its records by half."""
        folder = self.root / "var/lib/sparkrack/serve/rdma"
        found = [json.loads(file.read_text()) for file in sorted(folder.iterdir())]
        return {one["half"]: one for one in found}

    def refusals(self) -> int:
        """How many connections it has refused, as those to a gate that does not run."""
        statistics = ["ip", "netns", "exec", self.namespace, "cat", "/proc/net/snmp"]
        rows = [row.split() for row in subprocess.check_output(statistics, text=True).splitlines()]
        names, values = (row for row in rows if row[0] == "Tcp:")
        return int(values[names.index("OutRsts")])

    def measurements(self) -> int:
        """How often its tool has run, as sender or receiver; the count begins again."""
        count = len(self.calls("ib_write_bw"))
        self.calls_file.unlink(missing_ok=True)
        return count


class ProofRack:
    """Two nodes with two cables of 200G between them, so four halves each."""

    def __init__(self, folder: Path) -> None:
        found = locked(unit(), 2, "ring")
        self.nodes = [ProofNode(folder / name, name, desired.gate_configuration(found, name)) for name in ("n0", "n1")]
        for node in self.nodes:
            namespace.create(node.namespace)
        sends = {one["half"]: one for one in self.nodes[0].wanted["proof"]["sends"]}
        back = {one["peer_address"]: one for one in self.nodes[1].wanted["proof"]["sends"]}
        assert set(sends) == set(HALVES)
        for half, one in sends.items():
            self._connect_cable(half, one["address"], back[one["address"]]["half"], one["peer_address"])

    def _connect_cable(self, half: str, address: str, other: str, other_address: str) -> None:
        here, there = (node.namespace for node in self.nodes)
        words = ("link", "add", half, "type", "veth", "peer", "name", other, "netns", there)
        namespace.ip(*words, namespace=here)
        for inside, device, own in ((here, half, address), (there, other, other_address)):
            namespace.ip("address", "add", f"{own}/24", "dev", device, namespace=inside)
            namespace.ip("link", "set", device, "up", namespace=inside)

    def together(self, limit: float = 40.0) -> list[str]:
        """Run both gates at the same time; their lines."""
        running = [node.begin("--together", limit=limit) for node in self.nodes]
        return [one.communicate(timeout=60)[0].strip() for one in running]

    def refused(self) -> tuple[ProofNode, str]:
        """Run both gates; the one that refuses for what it measured itself, and its line. Both send, so that either
        can be the first. The other refuses with the same reason, or waits and is ended with its tool, whose open port
        the next gate would take for its own.
        """
        running = [(node, node.begin("--together")) for node in self.nodes]
        until = time.monotonic() + 60
        lines: dict[str, str] = {}
        while not any(" refuses: " not in line for line in lines.values()):
            assert time.monotonic() < until, f"no gate refuses: {lines}"
            time.sleep(0.05)
            lines |= {node.name: gate.communicate()[0].strip() for node, gate in running if gate.poll()}
            running = [(node, gate) for node, gate in running if gate.poll() is None]
        for _, gate in running:
            gate.kill()
            gate.communicate(timeout=60)
        for node in self.nodes:
            namespace.end(namespace.processes(node.namespace))
        return next(
            (node, lines[node.name]) for node in self.nodes if " refuses: " not in lines.get(node.name, " refuses: ")
        )

    def alone(self) -> list[str]:
        """Run each gate by itself, as the service of a rank does."""
        return [node.begin().communicate(timeout=60)[0].strip() for node in self.nodes]

    def measurements(self) -> list[int]:
        return [node.measurements() for node in self.nodes]

    def down(self) -> None:
        for node in self.nodes:
            namespace.delete(node.namespace)


READY = ["n0: ready", "n1: ready"]


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[ProofRack]:
    made = ProofRack(tmp_path)
    try:
        yield made
    finally:
        made.down()


def test_what_has_no_proof_is_measured_once(rack: ProofRack) -> None:
    for node, line in zip(rack.nodes, rack.alone(), strict=True):
        assert line.startswith(f"{node.name}: RDMA over enp1s0f0np0 to n")
        assert line.endswith("is not proven: it was never measured; `sparkrack serve start one` measures it")
    assert rack.measurements() == [0, 0]
    assert rack.together() == READY
    assert rack.measurements() == [8, 8], "each of four halves sends, and receives"
    here, there = rack.nodes
    assert set(here.records()) == set(HALVES)
    record = here.records()["enp1s0f0np0"]
    assert (record["peer"], record["gbps"], record["least"]) == ("n1", 109.0, 80.0)
    assert (record["here"]["boot"], record["there"]["boot"]) == ("n0 first", "n1 first")
    for half, one in here.records().items():
        counter = ["ip", "netns", "exec", here.namespace, "cat", f"/sys/class/net/{half}/carrier_changes"]
        assert one["here"]["carrier_changes"] == int(subprocess.check_output(counter, text=True))
    assert rack.alone() == READY
    assert rack.together() == READY
    assert rack.measurements() == [0, 0]
    assert there.records()["enp1s0f1np1"]["peer"] == "n0"


def test_a_link_that_was_down_is_measured_again_and_no_other(rack: ProofRack) -> None:
    assert rack.together() == READY
    before = rack.nodes[0].records()
    rack.measurements()
    for state in ("down", "up"):
        namespace.ip("link", "set", "enP2p1s0f0np0", state, namespace=rack.nodes[0].namespace)
    for node, line in zip(rack.nodes, rack.alone(), strict=True):
        assert f"{node.name} has booted, or its carrier has changed, since 20" in line
        assert line.endswith("; `sparkrack serve start one` measures it")
    assert rack.together() == READY
    # Both ends of the cable changed, so that each of them sends and receives once.
    assert rack.measurements() == [2, 2]
    after = rack.nodes[0].records()
    assert {half for half in HALVES if after[half] != before[half]} == {"enP2p1s0f0np0"}


def test_a_node_that_was_booted_is_measured_by_both_ends(rack: ProofRack) -> None:
    assert rack.together() == READY
    rack.measurements()
    rack.nodes[1].boot("second")
    # The gate of the other node alone cannot know it; with the gate of this one it does.
    assert rack.alone()[0] == READY[0]
    assert rack.together() == READY
    assert rack.measurements() == [8, 8]
    assert rack.nodes[0].records()["enp1s0f0np0"]["there"]["boot"] == "n1 second"


def test_a_gate_waits_for_one_that_begins_later_and_lets_it_measure(rack: ProofRack) -> None:
    assert rack.together() == READY
    here, there = rack.nodes
    shutil.rmtree(there.root / "var")
    # It takes longer than the other one, which has nothing to measure, needs for its questions.
    there.command("ib_write_bw", f'sleep 1; exec {sys.executable} {there.root}/bin/tool "$@"')
    rack.measurements()
    before = there.refusals()
    running = [here.begin("--together")]
    until = time.monotonic() + 60
    while there.refusals() < before + 2:
        assert time.monotonic() < until, "it does not ask for the gate of its peer"
        time.sleep(0.05)
    running.append(there.begin("--together"))
    assert [one.communicate(timeout=60)[0].strip() for one in running] == READY
    # Only the later one has to send, after the first one has nothing more to do.
    assert rack.measurements() == [4, 4]


def test_a_receiver_waits_for_a_peer_that_has_not_asked_yet(tmp_path: Path) -> None:
    """As in a unit of three: the peer that sends here may begin after all that this gate has to send is done."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = {serve_rdma_check.BOOT_ID: "boot", "/sys/class/net/half/carrier_changes": "1"}
    for path, text in place.items():
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(f"{text}\n")
    proof = serve_rdma_check.RdmaProof(("n0", "one"), {"meeting_port": port}, lambda path: f"{tmp_path}{path}", set)
    receiver = serve_rdma_check.ProofReceiver(proof, {"half": "half", "peer": "n2", "address": "127.0.0.1"}, b"secret")
    waiting = threading.Thread(target=receiver.wait, daemon=True)
    waiting.start()
    try:
        waiting.join(1)
        assert waiting.is_alive(), "it does not wait until it is asked"
        for kind in ("state", "done"):
            content = {"kind": kind, "unit": "one", "sender": "n2"}
            answer = serve_unit.ask_at(("127.0.0.1", port), b"secret", content, 20, "127.0.0.1")
            assert (answer.get("boot") == "boot") == (kind == "state")
        waiting.join(60)
        assert not waiting.is_alive(), "it waits although its peer is done"
    finally:
        receiver.end()


def test_the_tool_of_an_earlier_measurement_is_ended_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the port, or a peer that asks again would be measured against two."""
    tools: list[Any] = []

    def sleeping_tool(*_: object) -> Any:
        tools.append(serve_gate_command.GateCommand("sleep", "600"))
        return tools[-1]

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    proof = serve_rdma_check.RdmaProof(("n0", "one"), {"meeting_port": port}, str, lambda: {port})
    monkeypatch.setattr(proof, "tool", sleeping_tool)
    half = {"half": "half", "peer": "n2", "address": "127.0.0.1", "port": port}
    receiver = serve_rdma_check.ProofReceiver(proof, half, b"secret")
    try:
        for _ in range(2):
            content = {"kind": "receive", "unit": "one", "sender": "n2"}
            assert serve_unit.ask_at(("127.0.0.1", port), b"secret", content, 20, "127.0.0.1").get("fault") is None
        first, second = tools
        until = time.monotonic() + 60
        while not first.ended:
            assert time.monotonic() < until, "it runs beside the next"
            time.sleep(0.05)
        assert not second.ended
    finally:
        receiver.end()
        for tool in tools:
            tool.end()


def test_a_half_in_the_known_fault_is_a_refusal_until_it_is_measured_well(rack: ProofRack) -> None:
    device = "rocep1s0f0"
    over = {"n0": "RDMA over enp1s0f0np0 to n1", "n1": "RDMA over enp1s0f1np1 to n0"}
    rack.nodes[0].carry(13.2, device)
    node, line = rack.refused()
    assert line == (
        f"{node.name}: {over[node.name]} carries 13.2 Gbit/s, at least 80 are expected; stale ConnectX-7: leave the "
        "cables as they are, reboot both ends and measure again; if it stays, shut both down and take them off power "
        "for 60 s"
    )
    assert [one["gbps"] for one in node.records().values() if one["gbps"] < 109] == [13.2]
    rack.nodes[0].carry(40.0, device)
    node, line = rack.refused()
    assert line == (
        f"{node.name}: {over[node.name]} carries 40.0 Gbit/s, at least 80 are expected; "
        "`sparkrack verify --only rdma --bandwidth` names the cause"
    )
    rack.nodes[0].carry(109.0, device)
    assert rack.together() == READY


def test_a_gate_whose_peer_has_refused_says_the_reason_of_the_peer() -> None:
    """The peer has ended: that it does not answer is true, and tells an owner nothing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    reason = "RDMA over half to n0 carries 13.2 Gbit/s"
    half = {"half": "half", "peer": "n2", "address": "127.0.0.1", "peer_address": "127.0.0.2"}
    proof = serve_rdma_check.RdmaProof(("n0", "one"), {"meeting_port": port, "sends": [half]}, str, set)
    receiver = serve_rdma_check.ProofReceiver(proof, half, b"secret")
    found: list[str] = []

    def send() -> None:
        try:
            proof._send_flows(b"secret")
        except serve_gate_command.GateError as error:
            found.append(str(error))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        content = {"kind": "done", "unit": "one", "sender": "n2", "refusal": reason}
        serve_unit.ask_at(("127.0.0.1", port), b"secret", content, 20, "127.0.0.1")
        sending.join(30)
        assert found == [f"the gate of n2 refuses: {reason}"]
    finally:
        receiver.end()
        sending.join()


def test_a_gate_whose_peer_does_not_come_is_a_refusal(rack: ProofRack) -> None:
    line = rack.nodes[0].begin("--together", limit=1.0).communicate(timeout=60)[0].strip()
    assert line.startswith("n0: the gate of n1 does not answer over enp1s0f0np0 at ")
    assert line.endswith("so RDMA is not proven; look at `journalctl -u sparkrack-serve-one-agent` there")


def test_gates_with_different_secrets_do_not_meet(rack: ProofRack) -> None:
    rack.nodes[1].secret("1e" * 32)
    for node, line in zip(rack.nodes, rack.together(limit=3.0), strict=True):
        peer = "n1" if node.name == "n0" else "n0"
        assert line.startswith((f"{node.name}: the gate of {peer} at ", f"{node.name}: the gate of {peer} does not"))
    assert not any((node.root / "var").exists() for node in rack.nodes)
    assert rack.measurements() == [0, 0]
