"""A rank is stopped when its control group is empty, whatever docker and systemd say: with real control groups."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.control_groups import container, mounted, put
from tests.serving.serve_modules import serve_slice, serve_tether, serve_unit
from tests.serving.test_tether import LoneTether

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="control groups need root")
SLICE = "sparkrack.slice/sparkrack-qwen.slice"


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "cgroups") as root:
        yield root


@pytest.fixture
def engine(groups: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the container of the unit."""
    process = subprocess.Popen(["sleep", "600"])
    put(container(groups, "qwen"), process.pid)
    yield process
    process.kill()
    process.wait()


def reached(condition: Callable[[], object]) -> bool:
    until = time.monotonic() + 60
    while not (found := condition()) and time.monotonic() < until:
        time.sleep(0.02)
    return bool(found)


def finishes(tether: serve_tether.Tether, task: str) -> bool:
    """Wait until a task of a tether has ended."""

    def finished() -> bool:
        tether._finish_tasks()
        return getattr(tether, task) is None

    return reached(finished)


def after_its_service(folder: Path, cgroups: Path, **record: object) -> serve_tether.Tether:
    """A tether whose service has failed: the client of docker was killed."""
    tether = LoneTether(folder, cgroups).tether
    (folder / "journal").write_text("")
    tether._service = serve_tether.ServiceState("failed", "exit code 137, result timeout", ended=True)
    for name, value in record.items():
        setattr(tether.record, name, value)
    return tether


@ROOT
def test_an_engine_that_docker_left_is_ended_by_the_kernel_and_is_not_idle_before(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    tether = after_its_service(tmp_path, groups, running=True, generation=5)
    report = tether._report()
    assert report["state"] == "ended"
    assert report["detail"] == f"exit code 137, result timeout; left of the rank: {engine.pid} sleep (S)"
    tether._obey("stop", 5)
    assert tether.record.running, "it is not known to have ended"
    assert engine.wait(60) == -9
    assert reached(lambda: not tether._slice.populated())
    assert tether._report()["state"] == "stopping", "it is not confirmed yet"
    tether._obey("stop", 5)
    assert (tether._report()["state"], tether.record.running) == ("idle", False)


@ROOT
def test_a_stop_whose_time_is_over_ends_the_engine_while_the_service_still_stops(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    """As with a docker that hangs: systemd waits for its client once more, to remove the container."""
    tether = after_its_service(tmp_path, groups, running=True, generation=5)
    tether._service = serve_tether.ServiceState("deactivating")
    tether._stop = serve_tether.ServeTask(["sleep", "600"], 0.0)
    assert finishes(tether, "_stop")
    assert engine.wait(60) == -9


@ROOT
def test_a_rank_of_another_start_is_ended_by_the_kernel_once_it_was_ordered_to_stop(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    tether = after_its_service(tmp_path, groups)
    tether._service = serve_tether.ServiceState("active")
    tether._obey("stop", 5)
    assert finishes(tether, "_stop")
    tether._service = serve_tether.ServiceState("failed")
    tether._obey("stop", 5)
    assert engine.wait(60) == -9


@ROOT
def test_a_process_that_its_tether_did_not_start_is_named_and_runs_on(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    tether = after_its_service(tmp_path, groups)
    tether._obey("stop", 5)
    report = tether._report()
    assert report["state"] == "unknown"
    assert report["detail"] == (
        f"not started by its tether: {engine.pid} sleep (S) in {groups}/{SLICE}; end them, a container by "
        "`docker rm -f`"
    )
    assert engine.poll() is None
    assert tether._verdict is None
    tether._obey("gate", 6)
    assert tether._gate is None, "no gate passes beside an engine that runs"


@ROOT
def test_a_slice_without_processes_is_empty_and_one_with_a_process_below_it_is_not(
    groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    found = serve_slice.UnitSlice("qwen", str(groups))
    assert found.populated()
    assert found.processes() == [engine.pid]
    found.kill()
    engine.wait(60)
    assert reached(lambda: not found.populated())
    for group in (container(groups, "qwen"), *container(groups, "qwen").parents[:2]):
        assert group.is_dir()
        group.rmdir()
        assert not found.populated(), "its parents can be listed, and do not have it"


def laid_out(folder: Path, **files: str) -> Path:
    """A folder that has the files of a slice, for what a kernel seldom shows."""
    made = folder / "cgroups" / SLICE
    made.mkdir(parents=True)
    for name, text in files.items():
        (made / name.replace("_", ".")).write_text(text)
    return folder / "cgroups"


def test_processes_that_stay_after_kill_are_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits in the kernel does not end: here `cgroup.kill` is a file that nothing reads."""
    cgroups = laid_out(tmp_path, cgroup_events="populated 1\nfrozen 0\n", cgroup_procs=f"{os.getpid()}\n")
    monkeypatch.setattr(serve_tether, "KILL_LIMIT", 0.0)
    tether = after_its_service(tmp_path, cgroups, running=True, generation=5)
    tether._obey("stop", 5)
    assert (cgroups / SLICE / "cgroup.kill").read_text() == "1"
    report = tether._report()
    assert report["state"] == "stopping"
    assert f"the kernel was asked to end {os.getpid()} " in str(report["detail"])
    assert str(report["detail"]).endswith("which wait in it (state D): restart the node")


@pytest.mark.parametrize("text", ["", "frozen 0\n", "populated x\n"])
def test_a_slice_that_does_not_answer_is_unknown_never_idle(tmp_path: Path, text: str) -> None:
    tether = after_its_service(tmp_path, laid_out(tmp_path, cgroup_events=text))
    report = tether._report()
    assert report["state"] == "unknown"
    assert "whether a process of the rank is left is unknown: " in str(report["detail"])
    assert str(report["detail"]).endswith("; restart the node")
    tether.record.running = True
    tether._obey("stop", 5)
    assert tether._report()["state"] == "stopping"
    assert tether.record.running


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "a slice without cgroup.events"])
def test_a_slice_is_absent_only_where_its_parents_can_be_listed(tmp_path: Path, there: str) -> None:
    root = tmp_path / "cgroups"
    if there == "an empty folder":
        root.mkdir()
    elif there != "nothing":
        laid_out(tmp_path)
    with pytest.raises(serve_unit.ServeError):
        serve_slice.UnitSlice("qwen", str(root)).populated()
