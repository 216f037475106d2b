"""The launch step, run by a real shell on a node with a stand-in for time."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from roles.memory import memory_gate
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import calls, run, stand_in

TEXT = memory_gate.script(loaded(SWITCH)).content.decode()
GIB = 1024**2


def has(node: Path, kib: int) -> str:
    text = f"MemTotal: 125829120 kB\nMemFree: 5 kB\nMemAvailable: {kib} kB\n"
    (node / "proc/meminfo").write_text(text)
    return text


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "proc/sys/vm").mkdir(parents=True)
    for name in ("drop_caches", "compact_memory"):
        (tmp_path / "proc/sys/vm" / name).touch()
    stand_in(tmp_path, "sleep")
    stand_in(tmp_path, "sync", f"[ ! -s {tmp_path}/proc/sys/vm/drop_caches ]")
    has(tmp_path, 90 * GIB)
    return tmp_path


def gated(node: Path, *words: str) -> tuple[int, str, str]:
    done = run(f"set -- {shlex.join(words)}\n{TEXT}", node)
    return done.returncode, done.stdout, done.stderr


def cleaned(node: Path) -> list[str]:
    return [(node / "proc/sys/vm" / name).read_text() for name in ("drop_caches", "compact_memory")]


def test_enough_is_there(node: Path) -> None:
    reported = "memory-gate: 94371840 KiB of memory are available after 0 s, 94371840 KiB (90G) were needed\n"
    assert gated(node, "90G") == (0, reported, "")
    assert cleaned(node) == ["3\n", "1\n"]
    assert calls(node) == ["sync "], "what is dirty is written before caches are dropped"


def test_not_in_time(node: Path) -> None:
    has(node, 90 * GIB - 1)
    reported = "memory-gate: 94371839 KiB of memory are available after 3 s, 94371840 KiB (90G) are needed\n"
    assert gated(node, "90G", "--seconds", "3") == (1, "", reported)
    assert calls(node).count("sleep 1") == 3


def test_it_waits_a_minute(node: Path) -> None:
    has(node, 1)
    assert gated(node, "512M")[0] == 1
    assert calls(node).count("sleep 1") == memory_gate.DEFAULT_WAIT_SECONDS == 60


def test_memory_that_comes_back_late(node: Path) -> None:
    late = node / "late"
    late.write_text(has(node, 512 * 1024))
    has(node, 5)
    stand_in(node, "sleep", f"[ $(grep -c sleep {node}/calls) -lt 2 ] || cp {late} {node}/proc/meminfo")
    code, reported, _ = gated(node, "512M")
    assert (code, reported.partition(",")[0]) == (0, "memory-gate: 524288 KiB of memory are available after 2 s")


@pytest.mark.parametrize(
    "words",
    [
        (), ("",), ("90",), ("G",), ("-1G",), ("90g",), ("1.5G",), ("090G",), ("99999999G",), ("$(reboot)G",),
        ("90G", "60"), ("90G", "--seconds"), ("90G", "--seconds", "x"), ("90G", "--seconds", "-1"),
        ("90G", "--second", "5"),
        ("90G", "--seconds", "5", "6"), ("--seconds", "5"), ("a b", "c"),
    ],
)  # fmt: skip
def test_called_wrong(node: Path, words: tuple[str, ...]) -> None:
    code, out, reported = gated(node, *words)
    assert (code, out) == (2, "")
    assert "use: memory-gate AMOUNT [--seconds N]" in reported
    assert cleaned(node) == ["", ""]


def test_a_kernel_without_compaction(node: Path) -> None:
    (node / "proc/sys/vm/compact_memory").unlink()
    assert gated(node, "1G")[0] == 0
    assert not (node / "proc/sys/vm/compact_memory").exists()


def test_what_is_unknown_is_not_a_go(node: Path) -> None:
    (node / "proc/meminfo").write_text("MemTotal: 5 kB\n")
    code, out, reported = gated(node, "1G")
    assert (code, out) == (1, "")
    assert reported.endswith("/proc/meminfo does not tell what is available\n")
