"""Every reason for which a gate refuses, once: it names the node, the figure or state that was found, and a remedy.

A statement that raises a refusal and is in no case of the table fails the test.
"""

from __future__ import annotations

import ast
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import (
    FOLDER,
    serve_gate_command,
    serve_other_units,
    serve_rdma_check,
    serve_start,
    serve_start_gate,
)
from tests.serving.test_gate import (
    CUDA,
    GATE_PROGRAMS,
    IMAGE,
    PROOF_FILE,
    PROVEN,
    START_STAND_INS,
    WANTED,
    GateNode,
)

SECRET = "5e" * 32
IMAGE_FOUND = f"case $1 in image) echo {IMAGE} ;; {{}} esac"
SMI = "case $1 in *driver*) echo {} ;; *pstate*) echo 'P8, 208, Active' ;; esac"
ROW = "echo ' 1048576 5000 0.00 {} 0.01'"


class Stage:
    """A node on which all checks pass, before a case breaks one of them."""

    def __init__(self, node: GateNode, patch: pytest.MonkeyPatch, stack: ExitStack) -> None:
        self.node, self.patch, self.stack = node, patch, stack
        self.words: list[str] = []
        self.listening = {18600}

    def peer(self, tool: str = ROW.format("109.00"), secret: str = SECRET, **changes: Any) -> dict[str, Any]:
        """Let the gates meet on loopback: the peer's is real, both have this tool. Return the changes of the file."""
        self.words.append("--together")
        (self.node.root / PROOF_FILE).unlink(missing_ok=True)
        self.node.file("etc/sparkrack/serve/qwen.secret", SECRET)
        (self.node.root / "etc/sparkrack/serve/qwen.secret").chmod(0o600)
        self.node.command("ib_write_bw", tool)
        self.patch.setattr(serve_rdma_check, "MEETING_LIMIT", 0.0)
        self.patch.setattr(serve_rdma_check, "MESSAGE_LIMIT", 60.0)
        with socket.create_server(("127.0.0.2", 0)) as free:
            port = free.getsockname()[1]
        wanted = WANTED["proof"] | {"meeting_port": port}
        wanted["sends"] = [wanted["sends"][0] | {"address": "127.0.0.1", "peer_address": "127.0.0.2"} | changes]
        half = {"peer": "spark1", "half": "enp9", "device": "x", "address": "127.0.0.2", "port": 18600}
        self.node.file("sys/class/net/enp9/carrier_changes", "5\n")
        other = serve_rdma_check.RdmaProof(
            ("spark2", "qwen"), wanted, lambda path: f"{self.node.root}{path}", lambda: self.listening
        )
        if secret:
            self.stack.callback(serve_rdma_check.ProofReceiver(other, half, secret.encode()).end)
        return {"proof": wanted}

    def reads(self, name: str) -> dict[str, Any]:
        self.words.append(name)
        return {}

    def echo(self, program: str, text: str) -> dict[str, Any]:
        self.node.command(program, text)
        return {}

    def together(self, program: str, text: str, memory: int | None = None) -> dict[str, Any]:
        """Let the gate run as before a start. `memory`: GiB that are free, 0 for a meminfo without MemFree."""
        self.words.append("--together")
        if memory is not None:
            rows = f"MemAvailable: {memory << 20} kB\n" + (f"MemFree: {memory << 20} kB\n" if memory else "")
            self.node.file("proc/meminfo", f"MemTotal:       {128 << 20} kB\n{rows}")
        self.node.command(program, text)
        return {"proof": None}

    def other(self, shares: str, path: str, text: str) -> dict[str, Any]:
        """Have another unit on the node, with a file of it. `shares`: slot, or only the node (unit)."""
        self.node.file("glm.gate.json", json.dumps({"unit": "glm", "slot": "main" if shares == "slot" else None}))
        self.node.file(path, text)
        return {"slot": "main"}

    def requires(self, condition: str, driver: str) -> dict[str, Any]:
        """Let the image ask for a driver, and the node have this one."""
        environment = json.dumps(["PATH=/bin", f"NVIDIA_REQUIRE_CUDA={condition}"])
        self.node.command("docker", f"case $1 in image) echo '{IMAGE} {environment}' ;; esac")
        return self.together("nvidia-smi", SMI.format(driver))

    def file(self, name: str, text: str | None) -> dict[str, Any]:
        if text is None:
            (self.node.root / name).unlink()
        else:
            self.node.file(name, text)
        return {}


@dataclass(frozen=True)
class Refusal:
    """One case: what breaks the node and returns changes of the gate's file, and what the line must have."""

    breaks: Callable[[Stage], Mapping[str, Any]]
    figure: str
    remedy: str


def _make_docker_slow(stage: Stage) -> dict[str, Any]:
    stage.patch.setattr(serve_gate_command, "LIMIT", 0.5)
    return stage.echo("docker", "exec sleep 30")


def _hanging_container(stage: Stage) -> dict[str, Any]:
    stage.patch.setattr(serve_start, "CONTAINER_LIMIT", 0.5)
    return stage.together("docker", IMAGE_FOUND.format("run) exec sleep 30 ;;"))


def _held_lock(stage: Stage) -> dict[str, Any]:
    stage.patch.setattr(serve_other_units, "LOCK_LIMIT", 0.0)
    other = serve_other_units.OtherUnits("glm", None, stage.node.root, str)
    stage.stack.enter_context(other.one_gate_at_a_time())
    return {}


def _held_lock_before_the_gpu(stage: Stage) -> dict[str, Any]:
    """The look of another unit's gate at CUDA would be a process that uses the GPU."""
    _held_lock(stage)
    return stage.together("nvidia-smi", "echo 1234, python3")


def _no_mark(stage: Stage) -> dict[str, Any]:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    stage.patch.setattr(serve_other_units, "write_record", full)
    return stage.together("nvidia-smi", SMI.format("580.1"))


def _meminfo_goes(stage: Stage) -> dict[str, Any]:
    return stage.together(CUDA, f"rm {stage.node.root}/proc/meminfo\n{START_STAND_INS[CUDA]}")


def _disk_fails(stage: Stage) -> dict[str, Any]:
    def fails(_place: object) -> None:
        raise OSError(5, "Input/output error")

    stage.patch.setattr(os, "statvfs", fails)
    return {}


def _unsynchronize_clock(stage: Stage) -> dict[str, Any]:
    stage.patch.setattr(serve_start_gate, "TIME_WAIT", 0.0)
    return stage.echo("timedatectl", "echo no")


def _deaf_tool(stage: Stage) -> dict[str, Any]:
    stage.patch.setattr(serve_rdma_check, "LISTEN_LIMIT", 0.3)
    stage.listening = set()
    return stage.peer("exec sleep 30")


def _failing_receiver(stage: Stage) -> dict[str, Any]:
    stage.listening = set()
    return stage.peer("echo 'no device' >&2; exit 7")


def _port_taken(stage: Stage) -> dict[str, Any]:
    changes = stage.peer()
    server = stage.stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    half = {"peer": "spark2", "half": "enp1s0f1np1", "device": "x", "address": "127.0.0.1", "port": 18608}
    port = server.getsockname()[1]
    return {"proof": changes["proof"] | {"receives": [half], "meeting_port": port}}


def _other_server(stage: Stage) -> dict[str, Any]:
    changes = stage.peer(secret="")
    server = stage.stack.enter_context(socket.create_server(("127.0.0.2", changes["proof"]["meeting_port"])))

    def greet() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"SSH-2.0-x\n")

    greeter = threading.Thread(target=greet)
    greeter.start()
    stage.stack.callback(greeter.join)
    return changes


def _refusing_peer(stage: Stage) -> dict[str, Any]:
    """The gate of the peer tells why it refuses, and has ended when it is asked."""
    wanted = stage.peer(secret="")["proof"]
    stage.patch.setattr(serve_rdma_check, "MEETING_LIMIT", 60.0)
    half = {"half": "enp9", "peer": "spark1", "address": "127.0.0.2", "peer_address": "127.0.0.1"}
    peer = serve_rdma_check.RdmaProof(("spark2", "qwen"), wanted, str, set)
    words = half, SECRET.encode(), "done", time.monotonic() + 60, {"refusal": "spark2: no link; look at its cable"}
    telling = threading.Thread(target=peer._ask_peer, args=words)
    telling.start()
    stage.stack.callback(telling.join)
    receives = {"peer": "spark2", "half": "enp1s0f1np1", "device": "x", "address": "127.0.0.1", "port": 18608}
    return {"proof": wanted | {"receives": [receives]}}


def _full_disk(stage: Stage) -> dict[str, Any]:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    stage.patch.setattr(serve_rdma_check, "write_record", full)
    return stage.peer()


def _peer_without_carrier(stage: Stage) -> dict[str, Any]:
    changes = stage.peer()
    (stage.node.root / "sys/class/net/enp9/carrier_changes").unlink()
    return changes


def _cold_secret(stage: Stage) -> dict[str, Any]:
    changes = stage.peer()
    (stage.node.root / "etc/sparkrack/serve/qwen.secret").chmod(0o644)
    return changes


def _change_wanted(**changes: Any) -> Callable[[Stage], dict[str, Any]]:
    return lambda _stage: changes


APPLY, TOOL = "run `sparkrack apply`", "`sparkrack verify --only rdma --bandwidth` names the cause"
GIB = 1 << 30
TABLE: dict[str, Refusal] = {
    "gate file": Refusal(lambda stage: stage.reads("nowhere.json"), "nowhere.json", APPLY),
    "gate file, text": Refusal(lambda stage: stage.reads("text.json"), "not JSON", APPLY),
    "gate file, keys": Refusal(_change_wanted(more=1), "gate.json", APPLY),
    "files": Refusal(lambda s: s.file("qwen.pending", ""), "qwen.pending", APPLY),
    "program": Refusal(lambda s: s.file("bin/timedatectl", None), "timedatectl cannot be run", APPLY),
    "silence": Refusal(_make_docker_slow, "within 0.5 s", "look at `systemctl status docker`"),
    "docker": Refusal(
        lambda s: s.echo("docker", "echo no >&2; exit 3"), "ends with 3: no", "`systemctl status docker`"
    ),
    "container": Refusal(
        lambda s: s.echo("docker", "echo exited"), "is left (exited)", "`docker rm -f sparkrack-qwen`"
    ),
    "guard": Refusal(lambda s: s.echo("systemctl", "echo failed; exit 3"), "(failed)", "start it: `systemctl start"),
    "images": Refusal(
        lambda s: s.echo("docker", "case $1 in image) echo broken >&2; exit 4 ;; esac"),
        "ends with 4: broken",
        "`systemctl status docker`",
    ),
    "image": Refusal(
        lambda s: s.echo("docker", "case $1 in image) echo sha256:beef ;; esac"),
        "image 0123456789ab",
        "run `sparkrack apply --only images`",
    ),
    "model": Refusal(
        lambda s: s.file("srv/models/qwen3/config.json", "x"), "1 of 2 files", "run `sparkrack apply --only models`"
    ),
    "mounted files": Refusal(
        _change_wanted(files={"/etc/sparkrack/serve/qwen.files/0": {"run.sh": "0" * 64}}),
        "/etc/sparkrack/serve/qwen.files/0/run.sh is missing",
        "run `sparkrack apply --only serving`",
    ),
    "ports, table": Refusal(lambda s: s.file("proc/net/tcp", "head\nodd\n"), "'odd'", "look at `ss -ltn`"),
    "ports": Refusal(_change_wanted(ports={"29400": "x"}), "port 29400", "end it: `ss -ltnp"),
    "file": Refusal(lambda s: s.file("proc/meminfo", None), "/proc/meminfo", APPLY),
    "cache, disk": Refusal(_disk_fails, "Input/output error", "look at `df`"),
    "cache": Refusal(
        _change_wanted(cache=WANTED["cache"] | {"bytes": 1 << 60}), f"cache is {(1 << 60) / GIB:.1f}", "remove files"
    ),
    "devices": Refusal(
        lambda s: s.file("etc/sparkrack/fabric.env", "A=1\n"), "fabric.env", "run `sparkrack apply --only rdma`"
    ),
    "GID": Refusal(
        lambda s: s.echo(f"{GATE_PROGRAMS}/gid-index", "echo 'no GID of 10.0.0.1' >&2; exit 1"),
        "rocep1s0f1 has no usable GID: no GID of 10.0.0.1",
        "run `sparkrack verify`",
    ),
    "GPU process": Refusal(lambda s: s.echo("nvidia-smi", "echo '4711, python3'"), "1 process uses", "end it"),
    "GPU": Refusal(lambda s: s.echo("nvidia-smi", ""), "no GPU", "restart the node"),
    "GPU clock": Refusal(
        lambda s: s.echo("nvidia-smi", "case $1 in *pstate*) echo 'P0, 851, Not Active' ;; esac"),
        "851 MHz",
        "power supply",
    ),
    "GPU answer": Refusal(
        lambda s: s.echo("nvidia-smi", "case $1 in *pstate*) echo ERR ;; esac"), "'ERR'", "restart the node"
    ),
    "echo": Refusal(lambda s: s.echo("ping", "exit 1"), "9000 bytes over enp1s0f1np1", "`sparkrack verify` names"),
    "clock": Refusal(_unsynchronize_clock, "NTPSynchronized is 'no'", "`timedatectl timesync-status`"),
    "memory, total": Refusal(lambda s: s.file("proc/meminfo", "x\n"), "no MemTotal", "look at `free`"),
    "memory": Refusal(
        lambda s: s.echo(f"{GATE_PROGRAMS}/memory-gate", "echo '900 KiB are available' >&2; exit 1"),
        "900 KiB",
        "lower the memory of unit qwen",
    ),
    "proof, old": Refusal(
        lambda s: s.file(PROOF_FILE, json.dumps(PROVEN | {"gbps": 13.2})), "13.2 Gbit/s", "`sparkrack serve start qwen`"
    ),
    "proof, half": Refusal(
        lambda s: s.file("sys/class/net/enp1s0f1np1/carrier_changes", None), "carrier_changes", "verify --only fabric`"
    ),
    "proof, counter": Refusal(
        lambda s: s.file("sys/class/net/enp1s0f1np1/carrier_changes", "x"), "is 'x'", "restart the node"
    ),
    "proof, secret": Refusal(_cold_secret, "mode 644", "run `sparkrack apply --only serving`"),
    "proof, port": Refusal(_port_taken, "Address already in use", "`ss -ltnp"),
    "proof, alone": Refusal(lambda s: s.peer(secret=""), "within 0 s", "look at `journalctl -u"),
    "proof, stranger": Refusal(lambda s: s.peer(secret="x" * 32), "within 0 s", "look at `journalctl -u"),
    "proof, server": Refusal(_other_server, "the challenge has the wrong form", "run `sparkrack apply --only serving`"),
    "proof, peer": Refusal(_peer_without_carrier, "enp9/carrier_changes", "verify --only fabric`"),
    "proof, refusal": Refusal(_refusing_peer, "the gate of spark2 refuses: spark2: no link", "look at its cable"),
    "proof, listener": Refusal(_deaf_tool, "port 18600 within 0.3 s", "look at `rdma link`"),
    "proof, receiver": Refusal(
        _failing_receiver,
        "ends with 7: no device",
        "look at its package perftest",
    ),
    "proof, tool": Refusal(lambda s: s.peer("echo 'no link' >&2; exit 7"), "ends with 7: no link", TOOL),
    "proof, output": Refusal(lambda s: s.peer("echo nothing"), "ends with 0: nothing", TOOL),
    "proof, record": Refusal(_full_disk, "No space left on device", "look at `df`"),
    "proof, figure": Refusal(
        lambda s: s.peer(ROW.format("13.20")), "13.2 Gbit/s, at least 80", "leave the cables, reboot both ends"
    ),
    "container of the image": Refusal(
        lambda s: s.together("docker", IMAGE_FOUND.format("run) echo 'docker: No such image: x' >&2; exit 125 ;;")),
        "docker does not have the image (No such image: x)",
        "`sparkrack apply --only images`",
    ),
    "container of the image, time": Refusal(_hanging_container, "within 0.5 s", "look at `systemctl status docker`"),
    "kernel log": Refusal(
        lambda s: s.together("journalctl", "echo '2026-11-23T21:18:04+0000 spark1 kernel: NVRM: Xid (PCI:1): 79, x'"),
        "failed at 2026-11-23T21:18:04+0000, since this boot (NVRM: Xid (PCI:1): 79, x)",
        "restart the node, or use --anyway",
    ),
    "kernel log, none": Refusal(
        lambda s: s.together("journalctl", "echo 'No journal files were found.' >&2"),
        "No journal files were found.",
        "`journalctl -k -b` must work",
    ),
    "cuda": Refusal(
        lambda s: s.together(CUDA, f"echo '{json.dumps({'driver': 13000, 'integrated': 1, 'free': 60 * GIB})}'", 100),
        "CUDA has 60.0 GiB free, the kernel 100.0",
        "restart the node, or use --anyway",
    ),
    "cuda, meminfo": Refusal(
        lambda s: s.together("nvidia-smi", SMI.format("580.1"), 0), "no MemFree and MemAvailable", "look at `free`"
    ),
    "cuda, no meminfo": Refusal(_meminfo_goes, "/proc/meminfo cannot be read", "look at `free`"),
    "driver": Refusal(
        lambda s: s.requires("cuda>=13.2 driver>=590", "580.159.03"),
        "asks for cuda>=13.2 driver>=590 (NVIDIA_REQUIRE_CUDA), the node has driver 580.159.03 with CUDA 13.0",
        "use an image for this driver",
    ),
    "driver, none": Refusal(
        lambda s: s.requires("cuda>=13.2", "ERR!"),
        "nvidia-smi shows no version of the driver: ERR!",
        "restart the node",
    ),
    "slot": Refusal(
        lambda s: s.other("slot", "run/sparkrack-serve/glm/wanted", ""),
        "unit glm of slot main runs here",
        "`sparkrack serve use qwen` stops it first",
    ),
    "slot, unknown": Refusal(
        lambda s: s.other("slot", "run/x", ""), "whether unit glm of slot main runs here is unknown", "restart the node"
    ),
    "other gate": Refusal(
        lambda s: s.file("glm.gate.json", "{}") or s.echo("nvidia-smi", "echo '4711, python3'"),
        "glm.gate.json is not the file of a gate",
        "run `sparkrack apply --only serving`",
    ),
    "loading": Refusal(
        lambda s: s.other("unit", "run/sparkrack-serve/glm/loading", "{}"),
        "what unit glm takes here is unknown",
        "stop unit glm",
    ),
    "loading, note": Refusal(_no_mark, "No space left on device", "look at `df /run`"),
    "gate of another unit": Refusal(_held_lock, "has not ended on this node within 0 s", "start qwen when that unit"),
    "gate of another unit before the GPU": Refusal(
        _held_lock_before_the_gpu, "has not ended on this node within 0 s", "start qwen when that unit"
    ),
    "proof, low": Refusal(lambda s: s.peer(ROW.format("40.00")), "40.0 Gbit/s, at least 80", TOOL),
}


def _list_refusals() -> dict[tuple[str, int], str]:
    """Each statement that raises a refusal: by file and line of its end, its source."""
    found = {}
    for name in (
        "serve_start_gate.py",
        "serve_rdma_check.py",
        "serve_gate_command.py",
        "serve_start.py",
        "serve_other_units.py",
    ):
        text = (FOLDER / name).read_text()
        for one in ast.walk(ast.parse(text)):
            if (
                isinstance(one, ast.Raise)
                and isinstance(one.exc, ast.Call)
                and ast.unparse(one.exc.func) == "GateError"
            ):
                for number in range(one.lineno, (one.end_lineno or one.lineno) + 1):
                    found[name, number] = f"{name}:{one.lineno}"
    return found


def test_every_refusal_names_node_figure_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raises, seen = _list_refusals(), set[str]()
    made = serve_gate_command.GateError.__init__

    def note(self: Exception, *words: object) -> None:
        frame = sys._getframe(1)
        seen.add(raises.get((Path(frame.f_code.co_filename).name, frame.f_lineno), "elsewhere"))
        made(self, *words)

    monkeypatch.setattr(serve_gate_command.GateError, "__init__", note)
    faults = []
    for name, case in TABLE.items():
        node = GateNode(tmp_path / name.replace(" ", "_"))
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            patch.setitem(serve_gate_command.ENVIRONMENT, "PATH", f"{node.root}/bin:/usr/bin:/bin")
            if name == "program":
                patch.setitem(serve_gate_command.ENVIRONMENT, "PATH", f"{node.root}/bin")
            stage = Stage(node, patch, stack)
            node.file("gate.json", json.dumps(WANTED | dict(case.breaks(stage))))
            node.file("text.json", "{")
            files = [word for word in stage.words if word.endswith(".json")] or ["gate.json"]
            options = [word for word in stage.words if word not in files]
            code = serve_start_gate.main([*options, str(node.root / files[0]), "--root", str(node.root)])
        text = capsys.readouterr().out
        wanted = "spark1: " if files == ["gate.json"] and "keys" not in name else f"{os.uname().nodename}: "
        right = code == 1 and text.count("\n") == 1 and text.startswith(wanted) and case.figure in text
        if not right or case.remedy not in text.partition("; ")[2]:
            faults.append(f"{name}: {code}: {text!r}")
    assert not faults, "\n".join(faults)
    assert sorted(set(raises.values()) - seen) == [], "refusals that are in no case"
