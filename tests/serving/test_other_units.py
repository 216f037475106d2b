"""The gate of a unit on a node with other units: one gate at a time, memory that is promised, and their processes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import FOLDER, serve_gate_command, serve_other_units
from tests.serving.serving_rack import PATIENCE
from tests.serving.test_gate import GATE_PROGRAMS, WANTED, GateNode

MEMORY = f"{GATE_PROGRAMS}/memory-gate"
MIB = 1 << 20
LOADING = "run/sparkrack-serve/{}/loading"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateNode:
    made = GateNode(tmp_path)
    monkeypatch.setitem(serve_gate_command.ENVIRONMENT, "PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return made


def beside(node: GateNode, name: str, slot: str | None = None) -> None:
    """Have the files of another unit on the node."""
    node.file(f"{name}.gate.json", json.dumps({**WANTED, "unit": name, "slot": slot}))


def loads(node: GateNode, name: str, at: float, available: int, takes: int) -> None:
    """Have another unit load that takes so much, and before whose start so much was available, in MiB."""
    beside(node, name)
    node.file(LOADING.format(name), json.dumps({"at": at, "available": available * MIB, "bytes": takes * MIB}))


def available(node: GateNode, mib: int) -> None:
    node.file("proc/meminfo", f"MemTotal: {1 << 20} kB\nMemFree: 0 kB\nMemAvailable: {mib << 10} kB\n")


def test_gpu_and_memory_are_looked_at_while_no_other_gate_runs_and_the_lock_is_taken_once(
    node: GateNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[list[str]] = []
    hold = serve_other_units.OtherUnits.one_gate_at_a_time

    @contextlib.contextmanager
    def noted(units: Any) -> Iterator[None]:
        before = len(node.calls_file.read_text().splitlines())
        with hold(units):
            yield
        held.append([line.split()[0] for line in node.calls_file.read_text().splitlines()[before:]])

    monkeypatch.setattr(serve_other_units.OtherUnits, "one_gate_at_a_time", noted)
    assert node.gate(capsys, proof=None) == "ready"
    assert held == [["nvidia-smi", "nvidia-smi", "memory-gate"]]


@pytest.mark.parametrize(
    ("now", "loading", "pending"),
    [
        (1000, [], 0),
        (1000, [(1, 1000, 300)], 300),
        (900, [(1, 1000, 300)], 200),
        (700, [(1, 1000, 300)], 0),
        (500, [(1, 1000, 300)], 0),
        (1100, [(1, 1000, 300)], 300),
        (1000, [(1, 1000, 300), (2, 1000, 100)], 400),
        (600, [(1, 1000, 300), (2, 700, 100)], 0),
        (650, [(1, 1000, 300), (2, 700, 100)], 50),
        # The first has taken more than it declared: what the second takes is not counted as taken by that.
        (500, [(1, 1000, 300), (2, 500, 100)], 100),
    ],
)
def test_what_units_that_load_have_not_taken_yet_is_asked_for_as_well(
    node: GateNode, capsys: pytest.CaptureFixture[str], now: int, loading: list[tuple[int, int, int]], pending: int
) -> None:
    available(node, now)
    for at, before, takes in loading:
        loads(node, f"glm{at}", at, before, takes)
    assert node.gate(capsys, memory={"bytes": 100 * MIB, "floor": 3 * MIB}) == "ready"
    assert node.calls("memory-gate") == [f"{103 + pending}M --seconds 60"]


def test_a_refusal_names_the_unit_that_loads_and_what_it_has_not_taken(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    available(node, 2048)
    loads(node, "glm", 1, 3072, 2048)
    node.command(MEMORY, "echo 'memory-gate: 2097152 KiB of memory are available' >&2; exit 1")
    line = node.gate(capsys)
    assert ", of which glm, which load here, have not taken 1.0 GiB yet; end what holds memory" in line


def test_a_gate_that_passes_before_a_start_leaves_what_its_unit_takes(
    node: GateNode, capsys: pytest.CaptureFixture[str]
) -> None:
    available(node, 800)
    assert node.gate(capsys, memory={"bytes": 100 * MIB, "floor": 3 * MIB}) == "ready"
    assert not (node.root / LOADING.format("qwen")).exists(), "the gate in the service of the rank has left it"
    line = node.gate(capsys, "--together", proof=None, memory={"bytes": 100 * MIB, "floor": 3 * MIB})
    assert line.startswith("ready")
    left = json.loads((node.root / LOADING.format("qwen")).read_text())
    assert (left["available"], left["bytes"]) == (800 * MIB, 100 * MIB)
    node.command("nvidia-smi", "exit 1")
    (node.root / LOADING.format("qwen")).unlink()
    node.gate(capsys, "--together", proof=None)
    assert not (node.root / LOADING.format("qwen")).exists(), "a gate that refuses has left it"


def test_its_own_start_is_not_counted_against_a_unit(node: GateNode, capsys: pytest.CaptureFixture[str]) -> None:
    available(node, 800)
    loads(node, "qwen", 1, 800, 100)
    assert node.gate(capsys, memory={"bytes": 100 * MIB, "floor": 0}) == "ready"
    assert node.calls("memory-gate") == ["100M --seconds 60"]


@pytest.mark.parametrize(
    ("slots", "processes", "expected"),
    [
        (("a", None), "4711, python3", "ready"),
        ((None, None), "4711, python3", "ready"),
        ((None, None), "4711, python3\n4712, x", "1 process uses the GPU: 4712, x; end it"),
        (("a", "a"), "4711, python3", "unit glm of slot a runs here, and one unit of a slot is up at a time"),
    ],
)
def test_only_processes_of_units_that_may_run_beside_it_use_the_gpu(
    node: GateNode,
    capsys: pytest.CaptureFixture[str],
    slots: tuple[str | None, str | None],
    processes: str,
    expected: str,
) -> None:
    beside(node, "glm", slots[1])
    group = "sys/fs/cgroup/sparkrack.slice/sparkrack-glm.slice"
    node.file(f"{group}/cgroup.events", "populated 1\nfrozen 0\n")
    node.file(f"{group}/docker-1.scope/cgroup.procs", "4711\n")
    node.command("nvidia-smi", f"case $1 in *pid*) echo '{processes}' ;; *pstate*) echo 'P8, 208, Active' ;; esac")
    assert node.gate(capsys, slot=slots[0]).startswith(expected)


def test_two_gates_never_measure_a_node_at_once(node: GateNode) -> None:
    """The gate of glm is held in its measurement of memory: that of qwen begins with it when glm's has ended."""
    beside(node, "glm")
    node.file("qwen.gate.json", json.dumps(WANTED))
    node.command(MEMORY, f"while [ ! -e {node.root}/go ]; do sleep 0.1; done; echo end >> {node.calls_file}")
    gates = [start(node, "glm")]
    wait(lambda: node.calls("memory-gate"))
    gates.append(start(node, "qwen"))
    wait(lambda: waits_for_the_lock(gates[1]))
    assert len(node.calls("memory-gate")) == 1
    (node.root / "go").touch()
    for gate in gates:
        assert gate.wait(PATIENCE) == 0
    lines = node.calls_file.read_text().splitlines()
    measured = [line.split()[0] for line in lines if line.startswith(("memory-gate", "end"))]
    assert measured == ["memory-gate", "end", "memory-gate", "end"]


def test_the_lock_of_a_gate_that_was_killed_is_free(node: GateNode) -> None:
    beside(node, "glm")
    node.file("qwen.gate.json", json.dumps(WANTED))
    node.command(MEMORY, f"[ -e {node.root}/go ] || exec sleep {PATIENCE:g}")
    held = start(node, "glm")
    wait(lambda: node.calls("memory-gate"))
    (node.root / "go").touch()
    held.kill()
    held.wait(PATIENCE)
    assert start(node, "qwen").wait(PATIENCE) == 0


def start(node: GateNode, unit: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, str(FOLDER / "serve_start_gate.py"), str(node.root / f"{unit}.gate.json")]
    environment = {"PATH": f"{node.root}/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([*words, "--root", str(node.root)], env=environment, stdout=subprocess.DEVNULL)


def waits_for_the_lock(gate: subprocess.Popen[bytes]) -> bool:
    """Whether a gate has opened the folder whose lock the other one holds."""
    return any(descriptor.is_dir() for descriptor in Path(f"/proc/{gate.pid}/fd").iterdir())


def wait(reached: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)
