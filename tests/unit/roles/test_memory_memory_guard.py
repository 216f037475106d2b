"""The guard's script, run by a real bash that finds no program at all, on a node that runs out of memory."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which

import pytest

from core.model import Rack
from core.util.event import FieldValue
from roles.memory import cgroups, memory_guard
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import rooted

RACK = loaded(SWITCH)
TEXT = memory_guard.script(RACK).content.decode()
FLOOR = 1000
BASH = which("bash") or "/bin/bash"


class Node:
    """A folder like a node's, with the guard running in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.slice = root / "sys/fs/cgroup/sparkrack.slice"
        for folder in (self.slice, root / "proc", root / "dev"):
            folder.mkdir(parents=True)
        (root / "dev/kmsg").touch()
        self.has(2 * FLOOR)
        self.populated(1)
        self.process: subprocess.Popen[str] | None = None
        self.armed = ""

    def has(self, kib: int | str) -> None:
        new = self.root / "proc/new"
        new.write_text(
            f"MemTotal:       125829120 kB\nMemFree:           1 kB\nMemAvailable:   {kib} kB\nBuffers: 1 kB\n"
        )
        new.replace(self.root / "proc/meminfo")

    def populated(self, some: int) -> None:
        (self.slice / "cgroup.events").write_text(f"populated {some}\nfrozen 0\n")
        (self.slice / "cgroup.kill").write_text("")

    def start(self) -> None:
        script = self.root / "memory-guard"
        script.write_text(rooted(TEXT, self.root).replace("> /dev/kmsg", f">> {self.root}/dev/kmsg"))
        self.process = subprocess.Popen(
            [BASH, str(script), str(FLOOR)], stdout=subprocess.PIPE, text=True, env={"PATH": "/nowhere"}
        )
        assert self.process.stdout
        self.armed = self.process.stdout.readline()
        self.until(lambda: self.children() == "")

    def children(self) -> str:
        assert self.process
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().strip()

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.02)

    def ended(self, times: int = 1) -> bool:
        """Whether the kernel was reported; the file here takes what is written to it."""
        return (self.slice / "cgroup.kill").read_text() == "1\n" and len(self.printed("ended every")) == times

    def reported_at(self) -> float:
        """When the kernel was reported last, as the guard wrote it and not as the test saw it."""
        return (self.root / "dev/kmsg").stat().st_mtime

    def printed(self, text: str) -> list[str]:
        return [line for line in (self.root / "dev/kmsg").read_text().splitlines() if text in line]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    if found.process:
        found.process.kill()
        found.process.wait()


def test_it_ends_what_is_there_says_so_and_is_armed_again(node: Node) -> None:
    node.start()
    time.sleep(0.6)
    assert node.printed("") == [], "it acted with enough memory"
    node.has(FLOOR)
    time.sleep(0.6)
    assert node.printed("") == [], "the floor itself is enough"
    node.has(FLOOR - 1)
    node.until(node.ended)
    reported = (
        "999 KiB of memory are available, less than the floor of 1000 KiB: ended every container in sparkrack.slice"
    )
    assert node.printed("") == [f"<2>sparkrack-memory-guard: {reported}"]
    node.has(2 * FLOOR)
    node.until(lambda: bool(node.printed("armed again: 2000 KiB of memory are available")))
    node.populated(1)
    node.has(5)
    node.until(lambda: node.ended(times=2))
    assert node.process
    # The journal is reported after the kernel: its end by an unknown amount comes after both.
    node.has("lots")
    out, _ = node.process.communicate(timeout=60)
    assert node.armed.startswith("armed: ends every container in sparkrack.slice when less than 1000 KiB")
    assert [line[:3] for line in out.splitlines()] == ["<2>", "<5>", "<2>", "<2>"], "the journal has it too"


def test_it_does_not_fire_again_at_once_while_memory_is_late(node: Node) -> None:
    node.start()
    node.has(FLOOR - 1)
    node.until(node.ended)
    first = node.reported_at()
    node.populated(1)
    node.until(lambda: node.ended(times=2))
    # bash counts whole seconds, and the kernel's time of a file is up to a tick old
    assert node.reported_at() - first > memory_guard.AGAIN - 1.1


def unit_runs(node: Node, name: str, since: int, anon: int, takes: int) -> Path:
    """Have a served unit in the slice, wanted since some seconds of 1970; return the file by which it is ended."""
    folder = node.slice / f"sparkrack-{name}.slice"
    folder.mkdir()
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    (folder / "cgroup.kill").write_text("")
    (folder / "memory.stat").write_text(f"anon {anon}\nfile 999999999\nkernel 1024\nshmem 1024\n")
    unit = node.root / f"etc/systemd/system/sparkrack-{name}.slice"
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(f"[Slice]\nMemoryMax=1G\n[X-Sparkrack]\nTakes={takes}\n")
    mark = node.root / f"run/sparkrack-serve/{name}/wanted"
    mark.parent.mkdir(parents=True)
    mark.touch()
    os.utime(mark, (since, since))
    return folder / "cgroup.kill"


@pytest.mark.parametrize(
    ("glm", "qwen", "victim", "why"),
    [
        ((100, 0), (200, 0), "qwen", "which was started last"),
        ((200, 0), (100, 0), "glm", "which was started last"),
        ((100, 4096), (200, 0), "glm", "which has 6 KiB more than it declares"),
        ((100, 4096), (200, 8192), "qwen", "which has 10 KiB more than it declares"),
    ],
)
def test_of_several_units_one_is_ended_and_all_when_memory_is_not_back(
    node: Node, glm: tuple[int, int], qwen: tuple[int, int], victim: str, why: str
) -> None:
    """Of each: since when it is wanted, and the bytes that it has beyond 1 MiB that it declares."""
    takes = 1 << 20
    ends = {
        name: unit_runs(node, name, since, takes + over if over else 0, takes)
        for name, (since, over) in {"glm": glm, "qwen": qwen}.items()
    }
    node.start()
    node.has(FLOOR - 1)
    node.until(lambda: len(node.printed("ended every container")) == 1)
    (line,) = node.printed("ended every container")
    assert line.endswith(f": ended every container of unit {victim}, {why}, in sparkrack.slice")
    assert {name: end.read_text() for name, end in ends.items() if end.read_text()} == {victim: "1\n"}
    assert (node.slice / "cgroup.kill").read_text() == ""
    node.until(lambda: node.ended(times=2))
    assert node.printed("ended every container in sparkrack.slice")


@pytest.mark.parametrize("other", ["absent", "empty"])
def test_one_unit_is_ended_with_every_other_container(node: Node, other: str) -> None:
    unit_runs(node, "glm", 100, 0, 1)
    if other == "empty":
        unit_runs(node, "qwen", 200, 0, 1)
        (node.slice / "sparkrack-qwen.slice/cgroup.events").write_text("populated 0\nfrozen 0\n")
    node.start()
    node.has(FLOOR - 1)
    node.until(node.ended)
    assert node.printed("ended every container in sparkrack.slice")


@pytest.mark.parametrize(
    ("gone", "reported"),
    [
        ("populated", "no container runs in sparkrack.slice, so nothing was ended"),
        ("slice", "there is no sparkrack.slice to end anything in"),
    ],
)
def test_nothing_to_end_is_reported(node: Node, gone: str, reported: str) -> None:
    node.populated(0)
    if gone == "slice":
        node.slice.rename(node.root / "away")
    node.start()
    node.has(1)
    node.until(lambda: len(node.printed(reported)) == 1)
    assert node.process
    assert node.process.poll() is None


def test_a_kernel_that_does_not_obey_is_reported(node: Node) -> None:
    (node.slice / "cgroup.kill").unlink()
    (node.slice / "cgroup.kill").mkdir()
    node.start()
    node.has(1)
    node.until(lambda: bool(node.printed("ending the containers in sparkrack.slice FAILED")))


@pytest.mark.parametrize("kib", ["lots", "-5", ""])
def test_what_is_unknown_ends_it_for_systemd_to_start_it_again(node: Node, kib: str) -> None:
    node.start()
    node.has(kib)
    assert node.process
    assert node.process.wait(timeout=60) == 1
    assert node.printed("") == []


def test_its_loop_makes_no_process(node: Node) -> None:
    """Not one program is found, and no part of the text after the start needs a process of its own."""
    loop = TEXT[TEXT.index("look() {") :]
    assert not re.search(r"\$\((?!\()|`|<\(|[^&]&\s*$|[^|]\|[^|]", loop, re.MULTILINE)
    node.start()
    for _ in range(50):
        time.sleep(0.01)
        assert node.children() == ""


def rack(text: str) -> Rack:
    return loaded(SWITCH + text)


def test_the_floor_is_in_kib() -> None:
    assert memory_guard.command_line(rack("  floor: 4G\n")).endswith("/memory-guard 4194304")
    assert b"/memory-guard 524288\n" in memory_guard.unit(rack("  floor: 512M\n")).content
    assert memory_guard.files(rack("  floor: false\n")) == []


RUNNING = cgroups.MemoryCgroup(
    there=True, runs=memory_guard.command_line(RACK), processes=[cgroups.Process(7, "memory-guard", -1000)]
)


def test_a_guard_that_is_right_is_left_alone() -> None:
    assert memory_guard.restart_reason(RACK, RUNNING) is None


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (cgroups.MemoryCgroup(), "it does not run"),
        (
            cgroups.MemoryCgroup(there=True, runs="/bin/bash /usr/local/lib/sparkrack/memory-guard 1048576"),
            FieldValue("memory.floor", "1G", "3G"),
        ),
        (cgroups.MemoryCgroup(there=True, runs="sleep 5"), FieldValue("memory.floor", "'sleep 5'", "3G")),
        (
            cgroups.MemoryCgroup(runs=RUNNING.runs, processes=[cgroups.Process(7, "memory-guard", 0)]),
            "its OOM score is 0, wanted -1000",
        ),
    ],
)
def test_why_it_is_restarted(now: cgroups.MemoryCgroup, why: str | FieldValue) -> None:
    assert memory_guard.restart_reason(RACK, now) == why
