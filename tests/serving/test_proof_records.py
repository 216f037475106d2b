"""What a record of RDMA proves, what a node tells of a half, and how the tool is started: one node alone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import serve_gate_command, serve_rdma_check, serve_unit
from tests.serving.test_gate import PROVEN

HALF: dict[str, Any] = {
    "peer": "spark2",
    "half": "enp1",
    "device": "declared0",
    "address": "127.0.0.1",
    "peer_address": "127.0.0.2",
    "port": 18600,
    "least": 80.0,
    "stale": [8.0, 25.0],
}
RECORD = "var/lib/sparkrack/serve/rdma/enp1.spark2.json"
SECRET = b"s" * 32
HERE: dict[str, Any] = {"boot": "b1", "carrier_changes": 3}
THERE: dict[str, Any] = {"boot": "b2", "carrier_changes": 5}


class ProvingNode:
    """A folder that stands for / of spark1, with a half whose carrier changed three times."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file("proc/sys/kernel/random/boot_id", "b1\n")
        self.file("sys/class/net/enp1/carrier_changes", "3\n")
        self.file("usr/local/lib/sparkrack/gid-index", "#!/bin/sh\necho 5\n").chmod(0o755)
        self.file("bin/ib_write_bw", f'#!/bin/sh\necho "$@" > {root}/asked\ncat {root}/row\n').chmod(0o755)
        self.file("etc/secret", SECRET.decode()).chmod(0o600)
        self.row(100.0)
        with socket.create_server(("127.0.0.2", 0)) as free:
            port = free.getsockname()[1]
        self.listening: set[int] = set()
        self.wanted: dict[str, Any] = {
            "secret_file": "/etc/secret",
            "meeting_port": port,
            "options": ["-D", "5"],
            "stale_remedy": "reboot both ends",
            "sends": [HALF],
            "receives": [],
        }
        self.proof = serve_rdma_check.RdmaProof(
            ("spark1", "qwen"), self.wanted, lambda path: f"{root}{path}", lambda: self.listening
        )

    def file(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def row(self, gbps: float) -> None:
        self.file(
            "row", f" #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate\n 65536 5000 110.10 {gbps} 0.2\n"
        )

    def record(self, **changes: Any) -> None:
        self.file(RECORD, json.dumps({**PROVEN, "half": "enp1", **changes}))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProvingNode:
    monkeypatch.setitem(serve_gate_command.ENVIRONMENT, "PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return ProvingNode(tmp_path)


# Records


@pytest.mark.parametrize(
    ("changes", "here", "there", "reason"),
    [
        ({}, HERE, THERE, ""),
        ({}, HERE, None, ""),
        ({"gbps": 80.0}, HERE, THERE, ""),
        ({"gbps": 80}, HERE, THERE, ""),
        ({"gbps": 79.96}, HERE, THERE, "it carried 80.0 Gbit/s, at least 80 are expected"),
        ({"gbps": "109"}, HERE, THERE, "has no figure"),
        ({"gbps": True}, HERE, THERE, "has no figure"),
        (
            {},
            {**HERE, "boot": "b9"},
            THERE,
            "spark1 has booted, or its carrier has changed, since 2026-11-23T10:00:00Z",
        ),
        ({}, {**HERE, "carrier_changes": 4}, THERE, "spark1 has booted, or its carrier has changed, since 2026"),
        ({}, HERE, {**THERE, "boot": "b9"}, "spark2 has booted, or its carrier has changed, since 2026-11-23T10:00"),
        ({"there": None}, HERE, THERE, "spark2 has booted, or its carrier has changed, since 2026"),
        ({"measured": "x" * 50, "here": 1}, HERE, None, f"carrier has changed, since {'x' * 37}..."),
    ],
)
def test_a_record_proves_a_half_as_it_was_at_both_ends(
    node: ProvingNode, changes: dict[str, Any], here: object, there: object, reason: str
) -> None:
    node.record(**changes)
    found = node.proof.unproven(HALF, here, there)
    assert (reason in found) if reason else found == ""


def test_a_record_that_is_absent_or_no_record_proves_nothing(node: ProvingNode) -> None:
    assert node.proof.unproven(HALF, HERE, None) == "it was never measured"
    node.file(RECORD, "[]")
    assert node.proof.unproven(HALF, HERE, None) == f"{node.root}/{RECORD}: expected an object"


def test_a_gate_alone_measures_nothing_and_names_the_command_that_does(node: ProvingNode) -> None:
    with pytest.raises(serve_gate_command.GateError) as refused:
        node.proof.check(False)
    assert str(refused.value) == (
        "RDMA over enp1 to spark2 is not proven: it was never measured; `sparkrack serve start qwen` measures it"
    )
    node.record()
    node.proof.check(False)
    assert not (node.root / "asked").exists()


# What a node tells of a half


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("proc/sys/kernel/random/boot_id", None, "/proc/sys/kernel/random/boot_id cannot be read: No such file or"),
        ("sys/class/net/enp1/carrier_changes", None, "/sys/class/net/enp1/carrier_changes cannot be read: No such"),
        ("sys/class/net/enp1/carrier_changes", "\xff", "/sys/class/net/enp1/carrier_changes cannot be read: not ASCII"),
        ("sys/class/net/enp1/carrier_changes", "-1", "carrier_changes of enp1 is '-1', expected a number; restart the"),
        ("sys/class/net/enp1/carrier_changes", "x" * 60, f"carrier_changes of enp1 is '{'x' * 36}..., expected a"),
    ],
)
def test_the_state_of_a_half_that_cannot_be_read_is_a_refusal(
    node: ProvingNode, file: str, text: str | None, reason: str
) -> None:
    assert node.proof.state("enp1") == {"boot": "b1", "carrier_changes": 3}
    path = node.root / file
    path.unlink() if text is None else path.write_bytes(text.encode("latin-1"))
    with pytest.raises(serve_gate_command.GateError) as refused:
        node.proof.state("enp1")
    assert str(refused.value).startswith(reason)
    if "cannot be read" in reason:
        assert str(refused.value).endswith("; run `sparkrack verify --only fabric`")


# The tool


def asked(node: ProvingNode, *peer: str) -> str:
    node.proof.tool(HALF, *peer).answer()
    return (node.root / "asked").read_text().strip()


def test_the_tool_is_started_on_the_device_of_the_half_with_its_gid(node: ProvingNode) -> None:
    assert asked(node) == "-d declared0 -x 5 -p 18600 -D 5"
    for name in ("rocep2", "rocep1"):
        (node.root / "sys/class/net/enp1/device/infiniband" / name).mkdir(parents=True)
    assert asked(node, "10.0.0.2") == "-d rocep1 -x 5 -p 18600 -D 5 10.0.0.2"
    for script in ("echo none", "echo 5; exit 1"):
        node.file("usr/local/lib/sparkrack/gid-index", f"#!/bin/sh\n{script}\n")
        assert asked(node) == "-d rocep1 -p 18600 -D 5"


# A peer


class Peer:
    """The gate of the peer: answers each question with what `answers` has for its kind."""

    def __init__(self, port: int) -> None:
        self.answers: dict[str, dict[str, Any]] = {"state": THERE, "receive": {}, "done": {}}
        self.heard: list[dict[str, Any]] = []
        self.server = socket.create_server(("127.0.0.2", port))
        self.thread = threading.Thread(target=self._serve_connections, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.server.close()

    def _serve_connections(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with connection:
                once = serve_unit.challenge()
                connection.sendall(f"{once}\n".encode())
                text = serve_unit.read_line(connection, time.monotonic() + 60)
                content = serve_unit.unseal(SECRET, "question", once, text)
                self.heard.append(content)
                answer = self.answers[content["kind"]]
                connection.sendall(serve_unit.seal(SECRET, "answer", once + content["nonce"], answer))


@pytest.fixture
def peer(node: ProvingNode) -> Iterator[Peer]:
    made = Peer(node.wanted["meeting_port"])
    yield made
    made.close()


def refusal(node: ProvingNode) -> str:
    with pytest.raises(serve_gate_command.GateError) as refused:
        node.proof.check(True)
    return str(refused.value)


def test_what_was_measured_is_recorded_with_both_ends_and_is_not_measured_again(node: ProvingNode, peer: Peer) -> None:
    node.proof.check(True)
    record = json.loads((node.root / RECORD).read_text())
    assert time.strptime(record.pop("measured"), "%Y-%m-%dT%H:%M:%SZ")
    expected = {"half": "enp1", "peer": "spark2", "gbps": 100.0, "least": 80.0}
    assert record == {**expected, "here": {"boot": "b1", "carrier_changes": 3}, "there": THERE}
    assert (node.root / "asked").read_text() == "-d declared0 -x 5 -p 18600 -D 5 127.0.0.2\n"
    assert [(one["kind"], one["unit"], one["sender"]) for one in peer.heard] == [
        (kind, "qwen", "spark1") for kind in ("state", "receive", "done")
    ]
    assert "refusal" not in peer.heard[-1]
    (node.root / "asked").unlink()
    node.proof.check(True)
    assert [one["kind"] for one in peer.heard[3:]] == ["state", "done"]
    peer.answers["state"] = {**THERE, "carrier_changes": 9}
    node.proof.check(True)
    assert (node.root / "asked").exists()


@pytest.mark.parametrize(
    ("gbps", "reason"),
    [
        (79.9, "`sparkrack verify --only rdma --bandwidth` names the cause"),
        (25.0, "`sparkrack verify --only rdma --bandwidth` names the cause"),
        (24.9, "stale ConnectX-7: reboot both ends"),
        (8.0, "stale ConnectX-7: reboot both ends"),
        (7.9, "`sparkrack verify --only rdma --bandwidth` names the cause"),
    ],
)
def test_a_rate_that_is_too_low_is_recorded_and_refused_with_its_cause(
    node: ProvingNode, peer: Peer, gbps: float, reason: str
) -> None:
    node.row(gbps)
    said = f"RDMA over enp1 to spark2 carries {gbps} Gbit/s, at least 80 are expected; {reason}"
    assert refusal(node) == said
    assert json.loads((node.root / RECORD).read_text())["gbps"] == gbps
    assert peer.heard[-1]["kind"] == "done"
    assert peer.heard[-1]["refusal"] == said, "the peer is reported why"


def test_a_half_without_a_known_fault_is_never_called_stale(node: ProvingNode, peer: Peer) -> None:
    node.wanted["sends"] = [{**HALF, "stale": None}]
    node.row(13.2)
    assert "names the cause" in refusal(node)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("state", "the gate of spark2 has no answer: no link"),
        ("receive", "RDMA over enp1 to spark2 is not measured: spark2 cannot receive: no link"),
    ],
)
def test_a_fault_of_the_peer_is_reported_as_that_of_the_peer(
    node: ProvingNode, peer: Peer, kind: str, reason: str
) -> None:
    peer.answers[kind] = {"fault": "no link"}
    assert refusal(node) == reason
    assert not (node.root / RECORD).exists()
    assert peer.heard[-1]["kind"] == "done", "the peer that was met is reported the end"


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("echo a; echo b >&2; exit 3", "ends with 3: b"),
        ("echo a; echo c; exit 3", "ends with 3: c"),
        ("exit 3", "ends with 3: no output"),
        ("echo 65536 5000 110.10 100.0", "ends with 0: 65536 5000 110.10 100.0"),
    ],
)
def test_a_tool_that_fails_is_reported_by_its_last_line(node: ProvingNode, peer: Peer, script: str, shown: str) -> None:
    node.file("bin/ib_write_bw", f"#!/bin/sh\n{script}\n")
    assert refusal(node) == (
        f"RDMA over enp1 to spark2 is not measured: ib_write_bw {shown}; `sparkrack verify --only rdma --bandwidth` "
        "names the cause"
    )


def test_the_last_row_of_the_tool_counts(node: ProvingNode, peer: Peer) -> None:
    rows = " 65536 5000 110.10 13.0 0.2\n 65536 5000 110.10 99.5 0.2\n"
    node.file("row", rows)
    node.proof.check(True)
    assert json.loads((node.root / RECORD).read_text())["gbps"] == 99.5


# What this node receives


class Receiver:
    """The receiver of this node, asked as by the gate of spark2."""

    def __init__(self, node: ProvingNode) -> None:
        self.node = node
        self.receiver = serve_rdma_check.ProofReceiver(node.proof, HALF, SECRET)

    def ask(self, kind: str, **more: str) -> dict[str, Any]:
        content = {"kind": kind, "unit": "qwen", "sender": "spark2", **more}
        return serve_unit.ask_at(("127.0.0.1", self.node.wanted["meeting_port"]), SECRET, content, 60, "127.0.0.1")


@pytest.fixture
def receiver(node: ProvingNode) -> Iterator[Receiver]:
    made = Receiver(node)
    yield made
    made.receiver.end()


def test_a_receiver_tells_the_state_of_its_half_and_a_fault_of_it(node: ProvingNode, receiver: Receiver) -> None:
    assert receiver.ask("state") == {"boot": "b1", "carrier_changes": 3}
    (node.root / "sys/class/net/enp1/carrier_changes").write_text("x")
    assert receiver.ask("state") == {"fault": "carrier_changes of enp1 is 'x', expected a number; restart the node"}
    assert receiver.ask("other") == {}


def test_a_receiver_answers_its_peer_about_its_unit_only(receiver: Receiver) -> None:
    for more in ({"unit": "other"}, {"sender": "spark9"}):
        with pytest.raises(OSError, match="the connection ended"):
            receiver.ask("state", **more)
    assert not receiver.receiver._asked.is_set()
    receiver.ask("state")
    assert receiver.receiver._asked.is_set()
    assert not receiver.receiver._ended.is_set()
    receiver.ask("done", refusal="no link " * 100)
    assert receiver.receiver._ended.wait(60)
    shown = receiver.node.proof.refusals["spark2"]
    assert (len(shown), shown[-3:]) == (400, "...")


def test_a_receiver_says_why_its_tool_does_not_listen(
    node: ProvingNode, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.file("bin/ib_write_bw", "#!/bin/sh\necho a; echo 'no device' >&2; exit 7\n")
    assert receiver.ask("receive") == {"fault": "ib_write_bw ends with 7: no device; look at its package perftest"}
    node.file("bin/ib_write_bw", "#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(serve_rdma_check, "LISTEN_LIMIT", 0.2)
    fault = "ib_write_bw does not listen on port 18600 within 0.2 s; look at `rdma link`"
    assert receiver.ask("receive") == {"fault": fault}
    node.listening = {18600}
    assert receiver.ask("receive") == {}
    tool = receiver.receiver._tool
    assert tool
    receiver.receiver.end()
    assert tool._process.wait(60) == -9
