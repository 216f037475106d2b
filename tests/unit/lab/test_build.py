"""A build that ends early: its error is raised at once, and nothing of it runs on or stays in the cache.

The steps are real processes, which sleep under a number that no other process has.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.errors import LabError
from lab.image import build, debian
from lab.image.debian import run
from lab.image.kernel import recipe_hash as kernel_recipe

PATIENCE = 60.0
own_processes = pytest.mark.skipif(
    not debian._namespace_command(), reason="this machine gives a step no processes of its own (unshare)"
)


class Sleepers:
    """Steps that sleep: two processes each, of which the second is in a session of its own."""

    def __init__(self) -> None:
        self.seconds = f"1000.{uuid.uuid4().int % 10**12}"

    @property
    def step(self) -> list[str]:
        return ["sh", "-c", f"setsid sleep {self.seconds} & exec sleep {self.seconds}"]

    def pids(self) -> list[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", self.seconds.encode()]:
                found.append(int(process.name))
        return found

    def wait(self, count: int) -> None:
        until = time.monotonic() + PATIENCE
        while len(found := self.pids()) != count:
            assert time.monotonic() < until, f"{found} run, not {count}"
            time.sleep(0.05)


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    made = Sleepers()
    yield made
    for pid in made.pids():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def lines() -> list[str]:
    return []


def building(monkeypatch: pytest.MonkeyPatch, *, kernel: Callable[[Path], None], image: Callable[[Path], None]) -> None:
    """Let `base` build with these steps; each gets its unfinished folder."""
    monkeypatch.setenv("SPARKRACK_DEBIAN_MIRROR", "http://127.0.0.1:9/debian")

    def build_kernel(labs: Path, *_: Any) -> None:
        work = labs / f"kernel-{kernel_recipe()}.new"
        work.mkdir()
        kernel(work)
        work.rename(work.with_suffix(""))

    def build_image(done: Path, *_: Any) -> None:
        work = done.with_name(f"{done.name}.new")
        work.mkdir()
        image(work)
        work.rename(done)

    monkeypatch.setattr(build, "kernel", build_kernel)
    monkeypatch.setattr(build, "_build_image", build_image)


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "lab").iterdir())


@own_processes
@pytest.mark.parametrize("failing", ["kernel", "image"])
def test_the_error_of_one_ends_the_steps_of_the_other_and_is_the_one_that_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleepers: Sleepers, failing: str
) -> None:
    def fails(_: Path) -> None:
        sleepers.wait(2)
        run(["sh", "-c", "echo wrong; exit 3"], f"the {failing}")

    def sleeps(_: Path) -> None:
        for _number in range(2):  # a step that begins after the error, too
            try:
                run(sleepers.step, "sleeping")
            except LabError:
                continue
        raise LabError("ended")

    both = {"kernel": sleeps, "image": sleeps, failing: fails}
    building(monkeypatch, kernel=both["kernel"], image=both["image"])
    with pytest.raises(LabError, match=rf"the {failing} failed \(exit 3\):\nwrong"):
        build.base(tmp_path, lambda _: None)
    assert sleepers.pids() == []
    assert left(tmp_path) == ["lock"]


@own_processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_lab_ends_its_steps_and_all_but_a_kill_removes_what_is_unfinished(
    tmp_path: Path, sleepers: Sleepers, number: signal.Signals
) -> None:
    program = (
        "import sys, pathlib\nfrom lab.image import build\nfrom lab.image.debian import run\n"
        "from lab.privileges import open_lab\n"
        "def begin(labs, *_):\n    (labs / 'kernel-x.new').mkdir()\n    run(sys.argv[2:], 'sleeping')\n"
        "build.kernel, build._build_image = begin, lambda *_: None\n"
        "open_lab(print)\nbuild.base(pathlib.Path(sys.argv[1]), print)\n"
    )
    environment = {**os.environ, "SPARKRACK_DEBIAN_MIRROR": "http://127.0.0.1:9/debian"}
    command = [sys.executable, "-c", program, str(tmp_path), *sleepers.step]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        sleepers.wait(2)
        assert left(tmp_path) == ["kernel-x.new", "lock"]
        process.send_signal(number)
        process.wait(PATIENCE)
    sleepers.wait(0)
    killed = number == signal.SIGKILL
    assert left(tmp_path) == (["kernel-x.new", "lock"] if killed else ["lock"])
    if number in (signal.SIGTERM, signal.SIGHUP):
        assert process.returncode == 128 + number
    build.remove_unfinished(tmp_path)
    assert left(tmp_path) == ["lock"]


def test_the_next_build_removes_what_a_killed_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    building(monkeypatch, kernel=lambda _: None, image=lambda _: None)
    for name in ("kernel-older.new", "image-older.new", f"kernel-{kernel_recipe()}.new"):
        (tmp_path / "lab" / name).mkdir(parents=True)
    base = build.base(tmp_path, lambda _: None)
    assert left(tmp_path) == sorted(["lock", base.folder.name, base.kernel.folder.name])


def test_a_build_that_runs_keeps_its_unfinished_folders_when_another_lab_goes_down(tmp_path: Path) -> None:
    (tmp_path / "lab/kernel-x.new").mkdir(parents=True)
    with (tmp_path / "lab/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build.remove_unfinished(tmp_path)
    assert left(tmp_path) == ["kernel-x.new", "lock"]


def test_a_lab_that_waits_for_the_build_of_another_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    building(monkeypatch, kernel=lambda _: None, image=lambda _: None)
    waiting = threading.Event()

    def say(line: str) -> None:
        lines.append(line)
        waiting.set()

    (tmp_path / "lab").mkdir()
    with (tmp_path / "lab/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=build.base, args=(tmp_path, say))
        second.start()
        assert waiting.wait(PATIENCE)
        assert left(tmp_path) == ["lock"]
    second.join()
    assert lines == [f"waiting for another `sparkrack lab`, which builds in {tmp_path / 'lab'}"]
    assert len(left(tmp_path)) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_the_cache_belongs_to_who_called_from_the_beginning_and_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    cache = tmp_path / "home/.cache/sparkrack"
    owners: list[set[tuple[int, int]]] = []

    def note_owners(_: Path) -> None:
        owners.append({(path.stat().st_uid, path.stat().st_gid) for path in [*cache.glob("lab"), cache, cache.parent]})
        raise LabError("interrupted")

    building(monkeypatch, kernel=lambda work: (work / "file").touch(), image=note_owners)
    with pytest.raises(LabError, match="interrupted"):
        build.base(cache, lambda _: None)
    assert owners == [{(1234, 1235)}]
    found = [cache, *cache.rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in found} == {(1234, 1235)}
    assert cache / "lab/lock" in found
