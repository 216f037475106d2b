"""What a rank that hangs shows before it is stopped: real processes, a library that they map, and NCCL's protocol."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import FOLDER, serve_agent, serve_hang, serve_lifecycle
from tests.serving.serving_rack import UNIT_FILES, ServingRack
from tests.serving.stepped_unit import SteppedUnit
from tests.serving.test_agent import LoneAgent
from tests.serving.test_slice import finishes

STOP = "stop sparkrack-serve-qwen.service"
SPIN = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print('mapped', flush=True)\nwhile True: pass"
STATUS = b"""NCCL version 2.28.9 compiled with CUDA 13.0
Job summary
...
WARNING
#0-0 (0123456789abcdef) MISMATCH
  Communicator ranks have different collective operation counts
"""


class RasStandIn:
    """Answers as src/ras/client_support.cc of NCCL 2.30.7: a line for each command, the status, then the end."""

    def __init__(self, silent: bool = False) -> None:
        self.silent = silent
        self.asked: list[str] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self._serve_client, daemon=True).start()

    def _serve_client(self) -> None:
        connection, _ = self.listener.accept()
        with connection, connection.makefile() as lines:
            for text in lines:
                self.asked.append(text.strip())
                if self.silent:
                    continue
                if text == "VERBOSE STATUS\n":
                    connection.sendall(STATUS)
                    return
                connection.sendall(b"SERVER PROTOCOL 2\n" if text.startswith("CLIENT PROTOCOL") else b"OK\n")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library with a build ID, under the name of NCCL."""
    loaded = next(Path(row.split()[-1]) for row in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in row)
    return Path(shutil.copy(loaded, tmp_path / "libnccl.so.2"))


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "bin").mkdir()
    (folder / "bin/nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")


@pytest.fixture
def spinning(library: Path) -> Iterator[int]:
    """A process that computes without an end and has the library mapped."""
    words = [sys.executable, "-c", SPIN, str(library)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "mapped\n"
        yield process.pid
        process.kill()


def collected(pids: list[int], ras: RasStandIn, seconds: float) -> dict[str, Any]:
    return serve_hang.HangEvidence(lambda: pids, time.monotonic() + seconds, ras.address).collect()


def test_the_evidence_of_a_rank_that_spins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Path, spinning: int
) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo '2411, 20.31, 96, 0, P0'")
    ras = RasStandIn()
    found = collected([spinning], ras, 5.0)
    assert found["unread"] == {}
    assert found["gpu"][0] == {
        "clocks.sm": "2411",
        "power.draw": "20.31",
        "utilization.gpu": "96",
        "utilization.memory": "0",
        "pstate": "P0",
    }
    (process,) = found["processes"]
    thread = process["busy"][0]
    assert (process["pid"], thread["tid"], thread["state"]) == (spinning, spinning, "R")
    assert thread["cpu_percent"] > 0
    assert {"wchan", "syscall", "stack"} < thread.keys()
    assert ras.asked == ["CLIENT PROTOCOL 2", "TIMEOUT 1", "VERBOSE STATUS"]
    assert found["ras"] == f"SERVER PROTOCOL 2\nOK\n{STATUS.decode()}"
    # The note of the linker: sizes of name and content, its kind, its owner, then 20 bytes.
    mark = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"
    expected = library.read_bytes().partition(mark)[2][:20].hex()
    assert found["nccl"] == [
        {"path": str(library), "build_id": expected, "bytes": library.stat().st_size, "pids": [spinning]}
    ]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="capabilities need root and setpriv")
def test_the_capabilities_of_the_agent_are_enough_for_stacks_and_maps(tmp_path: Path, spinning: int) -> None:
    """With those of its service alone; the engine has others, as in a container."""
    text = (UNIT_FILES / "sparkrack-serve-agent.service").read_text()
    (names,) = [row.partition("=")[2] for row in text.splitlines() if row.startswith("CapabilityBoundingSet=")]
    bound = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())])
    group = tmp_path / "cgroups/sparkrack.slice/sparkrack-qwen.slice"
    group.mkdir(parents=True)
    (group / "cgroup.procs").write_text(f"{spinning}\n")
    words = [sys.executable, str(FOLDER / "serve_hang.py"), "qwen", "spark1", str(tmp_path / "hang.json")]
    words += ["--seconds=2", f"--cgroups={tmp_path}/cgroups"]
    subprocess.run(["setpriv", f"--bounding-set={bound}", "--no-new-privs", *words], check=True, timeout=120)
    found = json.loads((tmp_path / "hang.json").read_text())
    assert [one["pids"] for one in found["nccl"]] == [[spinning]]
    thread = found["processes"][0]["busy"][0]
    assert not [key for key, value in thread.items() if "denied" in str(value) or "not permitted" in str(value)]


def test_a_part_that_gives_no_answer_is_named_and_takes_no_other_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spinning: int
) -> None:
    nvidia_smi(tmp_path, monkeypatch, "exec sleep 600")
    found = collected([spinning], RasStandIn(silent=True), 2.0)
    assert {"gpu", "ras"} <= found["unread"].keys()
    assert (found["gpu"], found["ras"]) == ([], "")
    assert [process["pid"] for process in found["processes"]] == [spinning]


def test_a_rank_without_nccl_or_with_a_process_that_has_ended_is_not_a_fault(library: Path, spinning: int) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pids, libraries in (([os.getpid()], []), ([ended.pid, spinning], [str(library)])):
        found = serve_hang.HangEvidence(lambda pids=pids: pids, 0.0)  # type: ignore[misc]
        found._read_nccl()
        assert [one["path"] for one in found._found["nccl"]] == libraries


def test_an_answer_of_nccl_that_has_ended_is_not_waited_for() -> None:
    ras = RasStandIn()
    found = serve_hang.HangEvidence(list, time.monotonic() + 6000, ras.address)
    asking = threading.Thread(target=found._ask_ras, daemon=True)
    asking.start()
    asking.join(120)
    assert not asking.is_alive()
    assert found._found["ras"].endswith(STATUS.decode())


def test_a_library_without_a_build_id_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not an ELF library"):
        serve_hang.build_id(lambda _: b"#!/bin/sh\n")


def elf(*notes: tuple[int, bytes, bytes], kind: int = 4) -> bytes:
    """The begin of a library of 64 bits: its head, one program header of this kind, then its notes."""
    body = b"".join(
        struct.pack("<III", len(owner), len(content), number)
        + owner.ljust((len(owner) + 3) // 4 * 4, b"\0")
        + content.ljust((len(content) + 3) // 4 * 4, b"\0")
        for number, owner, content in notes
    )
    head = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64) + b"\0" * 14 + struct.pack("<HH", 56, 2)
    other = struct.pack("<IIQQQQ", 1, 0, 0, 0, 0, 64).ljust(56, b"\0")
    own = struct.pack("<IIQQQQ", kind, 0, 64 + 2 * 56, 0, 0, len(body)).ljust(56, b"\0")
    return head.ljust(64, b"\0") + other + own + body


def test_the_build_id_is_the_note_of_gnu_among_others() -> None:
    abi, own = (1, b"GNU\0", b"\0" * 16), (3, b"GNU\0", bytes(range(20)))
    foreign, odd = (3, b"Go\0", b"x" * 5), (4, b"stapsdt\0", b"y" * 7)
    expected = bytes(range(20)).hex()

    def build_id(data: bytes) -> str:
        return serve_hang.build_id(lambda _: data)

    for notes in ((own,), (abi, own), (foreign, odd, abi, own), (own, (3, b"GNU\0", b"z" * 20))):
        assert build_id(elf(*notes)) == expected
    for data in (elf(abi, foreign, odd), elf(own, kind=2), elf(own)[: -24 - 8]):
        with pytest.raises(ValueError, match="it has no build ID"):
            build_id(data)


def test_of_a_library_that_cannot_be_parsed_the_reason_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Path, spinning: int
) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo '2411, 20.31, 96, 0, P0'")
    library.unlink()
    library.write_bytes(b"#!/bin/sh\n")
    found = collected([spinning], RasStandIn(), 0.5)
    unknown = "unknown: not an ELF library of 64 bits"
    assert found["nccl"] == [{"path": str(library), "build_id": unknown, "bytes": 0, "pids": [spinning]}]


def test_a_command_that_fails_and_processes_that_have_ended_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo 'No devices were found'; exit 6")
    ended = subprocess.Popen(["true"])
    ended.wait()
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    found = serve_hang.HangEvidence(lambda: [ended.pid], time.monotonic() + 1, address).collect()
    assert found["unread"] == {
        "gpu": "nvidia-smi ends with 6: No devices were found",
        "nccl": f"/proc/{ended.pid}/maps: No such file or directory",
        "ras": "[Errno 111] Connection refused",
    }
    assert found["processes"] == [{"pid": ended.pid, "name": "", "state": "", "threads": "", "vmrss": "", "busy": []}]


def test_a_rank_of_many_processes_shows_the_first_16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo '2411, 20.31, 96, 0, P0'")
    found = collected(list(range(1 << 30, (1 << 30) + 20)), RasStandIn(), 0.5)
    assert [process["pid"] for process in found["processes"]] == list(range(1 << 30, (1 << 30) + 16))


def test_a_thread_that_has_ended_is_not_shown(spinning: int) -> None:
    assert serve_hang._read_thread(spinning, 1 << 30) is None


def test_a_thread_that_waits_is_shown_only_if_it_is_the_first(spinning: int) -> None:
    own = serve_hang._read_thread(spinning, spinning)
    assert own
    assert (own["tid"], own["name"]) == (spinning, Path(f"/proc/{spinning}/comm").read_text().strip())
    waiting = serve_hang.HangEvidence(lambda: [os.getpid()], time.monotonic() + 0.3)
    released = threading.Event()
    thread = threading.Thread(target=released.wait)
    thread.start()
    try:
        waiting._read_processes()
    finally:
        released.set()
        thread.join()
    (process,) = waiting._found["processes"]
    assert process["busy"][0]["tid"] == os.getpid()
    assert thread.native_id not in [shown["tid"] for shown in process["busy"]]
    status = dict(row.split(":\t", 1) for row in Path("/proc/self/status").read_text().splitlines() if ":\t" in row)
    assert process["name"] == status["Name"].strip()
    assert process["vmrss"].endswith(" kB")
    assert process["state"]
    assert int(process["threads"]) >= 2


def test_the_program_says_on_stdout_only_that_a_rank_spins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvidia_smi(tmp_path, monkeypatch, 'echo "2411, $POWER, 96, 0, P0"')
    words = ["qwen", "spark2", str(tmp_path / "hang.json"), "--seconds=0.3", f"--cgroups={tmp_path}"]
    words += ["--generation=4", "--boot=b1"]
    for power, printed in (("20.00", "GPU 96 % at 20 W on spark2: it spins\n"), ("80.00", "")):
        monkeypatch.setenv("POWER", power)
        assert serve_hang.main(words) == 0
        assert capsys.readouterr().out == printed
        found = json.loads((tmp_path / "hang.json").read_text())
        assert (found["unit"], found["node"], found["generation"], found["boot"]) == ("qwen", "spark2", 4, "b1")
        assert found["summary"] == f"GPU 96 % at {power[:2]} W on spark2{': it spins' if printed else ''}"
        assert abs(found["time"] - time.time()) < 3600
    assert (tmp_path / "hang.json").stat().st_mode & 0o777 == 0o600
    words[2] = str(tmp_path / "absent/hang.json")
    assert serve_hang.main(words) == 1
    assert capsys.readouterr().err == f"serve-hang: {tmp_path}/absent/hang.json.new: No such file or directory\n"


@pytest.mark.parametrize(
    ("use", "power", "clause", "spins"),
    [
        ("96", "20.31", "GPU 96 % at 20 W on spark2: it spins", True),
        ("96", "80.00", "GPU 96 % at 80 W on spark2", False),
        ("3", "12.00", "GPU 3 % at 12 W on spark2", False),
        ("90", "29.90", "GPU 90 % at 30 W on spark2: it spins", True),
        ("90", "30.00", "GPU 90 % at 30 W on spark2", False),
        ("[N/A]", "20.00", "", False),
        ("96", "[Not Supported]", "", False),
    ],
)
def test_high_use_at_low_power_spins(use: str, power: str, clause: str, spins: bool) -> None:
    assert serve_hang.summary([{"utilization.gpu": use, "power.draw": power}], "spark2") == (clause, spins)
    assert serve_hang.summary([], "spark2") == ("", False)


def test_the_median_of_the_samples_counts() -> None:
    samples = [{"utilization.gpu": use, "power.draw": "20.5"} for use in ("0", "96", "97")]
    assert serve_hang.summary(samples, "spark2") == ("GPU 96 % at 20 W on spark2: it spins", True)
    assert serve_hang.summary([*samples, {"utilization.gpu": "[N/A]"}, {}], "spark2")[1]


@pytest.fixture
def running(tmp_path: Path) -> LoneAgent:
    """The agent of a rank that runs, with an engine that hangs."""
    lone = LoneAgent(tmp_path)
    lone.agent._service = serve_agent.ServiceState("active")
    lone.agent.record.running, lone.agent.record.generation = True, 5
    return lone


def calls(lone: LoneAgent) -> list[str]:
    if lone.agent._stop and (process := lone.agent._stop._process):
        process.wait(60)
    return lone.calls.read_text().splitlines()


def test_a_rank_that_hangs_is_stopped_after_its_evidence_and_examined_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: LoneAgent
) -> None:
    nvidia_smi(tmp_path, monkeypatch, "echo '2411, 20.31, 96, 0, P0'")
    agent = running.agent
    agent._obey_order("stop", 5, hang=True)
    assert agent._evidence
    agent._obey_order("stop", 5, hang=True)
    assert calls(running) == []
    assert agent._make_report()["state"] == "running"
    assert finishes(agent, "_evidence")
    found = json.loads((tmp_path / "state/qwen.hang.json").read_text())
    assert (found["unit"], found["node"], found["generation"], found["boot"]) == ("qwen", "spark2", 5, "boot1")
    assert found["summary"] == "GPU 96 % at 20 W on spark2: it spins"
    agent._obey_order("stop", 5, hang=True)
    assert calls(running) == [STOP]
    assert agent._make_report()["hang"] == "GPU 96 % at 20 W on spark2: it spins"
    assert not agent._evidence


def test_evidence_that_does_not_end_delays_no_stop_beyond_its_limit(running: LoneAgent) -> None:
    agent = running.agent
    agent._examined = 5
    agent._evidence = serve_agent.ServeTask(["sleep", "600"], 0.0)
    assert finishes(agent, "_evidence")
    agent._obey_order("stop", 5, hang=True)
    assert calls(running) == [STOP]


def test_a_lost_coordinator_ends_the_evidence(running: LoneAgent) -> None:
    agent = running.agent
    agent._evidence = serve_agent.ServeTask(["sleep", "600"], 600.0)
    agent._stop_rank("no answer of the coordinator for 10 s")
    assert calls(running) == [STOP]
    assert agent._evidence is None


def test_only_the_ranks_of_a_unit_that_is_stuck_are_examined(tmp_path: Path) -> None:
    unit = SteppedUnit(tmp_path)
    unit.up()
    unit.pass_by(700)
    for _ in range(2):
        unit.lifecycle.missed(1, "no answer within 60 s", unit.clock)
    assert unit.record.state == "stuck"
    clause = "GPU 96 % at 20 W on spark2: it spins"
    report = serve_lifecycle.AgentReport.of(REPORT | {"hang": clause}, unit.clock, serve_lifecycle.ClockSkew(0, 0))
    for _ in range(2):
        assert unit.lifecycle.reported(1, report) == {"order": "stop", "generation": 1, "hang": True}
    reason = f"2 completions in a row failed and no counter rose: no answer within 60 s; {clause}"
    assert unit.record.reason == reason
    assert unit.record.transitions[-1][3] == reason
    assert unit.saved["reason"] == reason
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    unit.pass_by(8)
    assert unit.record.state == "down"
    assert "hang" not in unit.lifecycle.reported(1, report)


def test_the_ranks_of_a_start_that_ends_in_no_completion_are_examined(tmp_path: Path) -> None:
    unit = SteppedUnit(tmp_path)
    unit.lifecycle.set_desired_state("up", False, unit.clock)
    limit = unit.unit.times.ready_limit
    unit.pass_by(limit)
    assert unit.record.state == "starting"
    until = unit.clock + 60
    while unit.record.state == "starting" and unit.clock < until:
        unit.clock += 2
        for rank in range(2):
            report = {**REPORT, "boot": f"boot{rank}"}
            skew = serve_lifecycle.ClockSkew(0, 0)
            answer = unit.lifecycle.reported(rank, serve_lifecycle.AgentReport.of(report, unit.clock, skew))
    assert unit.record.reason.startswith(f"no correct completion within {limit:g} s")
    assert answer == {"order": "stop", "generation": 1, "hang": True}


REPORT = {
    "state": "running",
    "generation": 1,
    "boot": "boot1",
    "clean": True,
    "leaving": False,
    "detail": "",
    "gate": None,
    "kernel": "",
}
"""As of an agent of the release before, which knows of no hang."""


def test_a_unit_that_hangs_leaves_evidence_on_each_node_and_names_the_cause(
    rack: ServingRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(rack.folder, monkeypatch, "echo '2411, 20.31, 96, 0, P0'")
    rack.with_docker()
    rack.up(restart={"times": 0})
    rack.start()
    pids = [node.processes() for node in rack.nodes]
    rack.nodes[0].fault("completions")
    reason = rack.wait_for("held")["reason"]
    assert "2 completions in a row failed" in reason
    assert "; GPU 96 % at 20 W on spark1: it spins" in reason
    assert "; GPU 96 % at 20 W on spark2: it spins" in reason
    for node, before in zip(rack.nodes, pids, strict=True):
        found = json.loads((node.folder / "state/toy.hang.json").read_text())
        assert (found["node"], found["generation"]) == (node.name, 1)
        assert {process["pid"] for process in found["processes"]} & set(before), "it was stopped before"
