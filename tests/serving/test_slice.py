"""A rank is stopped when its control group is empty, whatever docker and systemd say: with real control groups."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.control_groups import container, mounted, put
from tests.serving.serve_modules import serve_agent, serve_slice, serve_unit
from tests.serving.test_agent import LoneAgent

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


def finishes(agent: serve_agent.Agent, task: str) -> bool:
    """Wait until a task of an agent has ended."""

    def finished() -> bool:
        agent._finish_tasks()
        return getattr(agent, task) is None

    return reached(finished)


def after_its_service(folder: Path, cgroups: Path, **record: object) -> serve_agent.Agent:
    """An agent whose service has failed: the client of docker was killed."""
    agent = LoneAgent(folder, cgroups).agent
    (folder / "journal").write_text("")
    agent._service = serve_agent.ServiceState("failed", "exit code 137, result timeout", ended=True)
    for name, value in record.items():
        setattr(agent.record, name, value)
    return agent


@ROOT
def test_an_engine_that_docker_left_is_ended_by_the_kernel_and_is_not_idle_before(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    agent = after_its_service(tmp_path, groups, running=True, generation=5)
    report = agent._make_report()
    assert report["state"] == "ended"
    assert report["detail"] == f"exit code 137, result timeout; left of the rank: {engine.pid} sleep (S)"
    agent._obey_order("stop", 5)
    assert agent.record.running, "it is not known to have ended"
    assert engine.wait(60) == -9
    assert reached(lambda: not agent._slice.populated())
    assert agent._make_report()["state"] == "stopping", "it is not confirmed yet"
    agent._obey_order("stop", 5)
    assert (agent._make_report()["state"], agent.record.running) == ("idle", False)


@ROOT
def test_a_stop_whose_time_is_over_ends_the_engine_while_the_service_still_stops(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    """As with a docker that hangs: systemd waits for its client once more, to remove the container."""
    agent = after_its_service(tmp_path, groups, running=True, generation=5)
    agent._service = serve_agent.ServiceState("deactivating")
    agent._stop = serve_agent.ServeTask(["sleep", "600"], 0.0)
    assert finishes(agent, "_stop")
    assert engine.wait(60) == -9


@ROOT
def test_a_rank_of_another_start_is_ended_by_the_kernel_once_it_was_ordered_to_stop(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    agent = after_its_service(tmp_path, groups)
    agent._service = serve_agent.ServiceState("active")
    agent._obey_order("stop", 5)
    assert finishes(agent, "_stop")
    agent._service = serve_agent.ServiceState("failed")
    agent._obey_order("stop", 5)
    assert engine.wait(60) == -9


@ROOT
def test_a_process_that_its_agent_did_not_start_is_named_and_runs_on(
    tmp_path: Path, groups: Path, engine: subprocess.Popen[bytes]
) -> None:
    agent = after_its_service(tmp_path, groups)
    agent._obey_order("stop", 5)
    report = agent._make_report()
    assert report["state"] == "unknown"
    assert report["detail"] == (
        f"not started by its agent: {engine.pid} sleep (S) in {groups}/{SLICE}; end them, a container by `docker rm -f`"
    )
    assert engine.poll() is None
    assert agent._verdict is None
    agent._obey_order("gate", 6)
    assert agent._gate is None, "no gate passes beside an engine that runs"


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
    monkeypatch.setattr(serve_agent, "KILL_LIMIT", 0.0)
    agent = after_its_service(tmp_path, cgroups, running=True, generation=5)
    agent._obey_order("stop", 5)
    assert (cgroups / SLICE / "cgroup.kill").read_text() == "1"
    report = agent._make_report()
    assert report["state"] == "stopping"
    assert f"the kernel was asked to end {os.getpid()} " in str(report["detail"])
    assert str(report["detail"]).endswith("which wait in it (state D): restart the node")


@pytest.mark.parametrize(
    ("text", "populated"), [("populated 1\nfrozen 0\n", True), ("\nfrozen 1\npopulated 0\n", False)]
)
def test_the_kernel_says_whether_a_slice_has_processes(tmp_path: Path, text: str, populated: bool) -> None:
    root = laid_out(tmp_path, cgroup_events=text)
    assert serve_slice.UnitSlice("qwen", str(root)).populated() is populated


@pytest.mark.parametrize("text", ["", "frozen 0\n", "populated x\n"])
def test_a_slice_that_does_not_answer_is_unknown_never_idle(tmp_path: Path, text: str) -> None:
    agent = after_its_service(tmp_path, laid_out(tmp_path, cgroup_events=text))
    report = agent._make_report()
    assert report["state"] == "unknown"
    assert "whether a process of the rank is left is unknown: " in str(report["detail"])
    assert str(report["detail"]).endswith("; restart the node")
    agent.record.running = True
    agent._obey_order("stop", 5)
    assert agent._make_report()["state"] == "stopping"
    assert agent.record.running


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ("nothing", "{root} cannot be listed: No such file or directory"),
        ("an empty folder", "{root} is empty: no control groups are mounted there"),
        ("a slice without cgroup.events", "{root}/{slice}/cgroup.events is missing"),
        ("a slice that cannot be read", "{root}/{slice}/cgroup.events cannot be read: Is a directory"),
    ],
)
def test_a_slice_is_absent_only_where_its_parents_can_be_listed(tmp_path: Path, there: str, reason: str) -> None:
    root = tmp_path / "cgroups"
    if there == "an empty folder":
        root.mkdir()
    elif there != "nothing":
        laid_out(tmp_path)
    if there == "a slice that cannot be read":
        (root / SLICE / "cgroup.events").mkdir()
    with pytest.raises(serve_unit.ServeError) as caught:
        serve_slice.UnitSlice("qwen", str(root)).populated()
    assert str(caught.value) == reason.format(root=root, slice=SLICE)


@pytest.mark.parametrize("left", ["sparkrack.slice", "sparkrack.slice/sparkrack-other.slice"])
def test_a_slice_that_its_parents_do_not_have_is_empty(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir(parents=True)
    assert serve_slice.UnitSlice("qwen", str(tmp_path)).populated() is False


def test_a_group_whose_processes_cannot_be_listed_hides_none_of_another(tmp_path: Path) -> None:
    root = laid_out(tmp_path, cgroup_procs="7\n8\n")
    for name, text in (("a", "x\n"), ("b", "9\n")):
        (root / SLICE / name).mkdir()
        (root / SLICE / name / "cgroup.procs").write_text(text)
    (root / SLICE / "c/cgroup.procs").mkdir(parents=True)
    assert sorted(serve_slice.UnitSlice("qwen", str(root)).processes()) == [7, 8, 9]


@pytest.mark.parametrize(("count", "more"), [(1, ""), (8, ""), (9, " and 1 more"), (11, " and 3 more")])
def test_eight_processes_are_named_and_the_others_counted(tmp_path: Path, count: int, more: str) -> None:
    absent = 1 << 30  # above what the kernel gives a process
    root = laid_out(tmp_path, cgroup_procs="".join(f"{absent + number}\n" for number in range(count)))
    named = ", ".join(f"{absent + number} (ended)" for number in range(min(count, 8)))
    assert serve_slice.UnitSlice("qwen", str(root)).describe() == f"{named}{more}"


def test_processes_that_are_not_listed_are_called_so(tmp_path: Path) -> None:
    root = laid_out(tmp_path, cgroup_procs="")
    assert serve_slice.UnitSlice("qwen", str(root)).describe() == "processes that are not listed"


def test_a_process_with_brackets_in_its_name_is_named_whole(tmp_path: Path) -> None:
    program = tmp_path / "a) (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        root = laid_out(tmp_path, cgroup_procs=f"{process.pid}\n")
        named = reached(lambda: "a) (b (S)" in serve_slice.UnitSlice("qwen", str(root)).describe())
        found = serve_slice.UnitSlice("qwen", str(root)).describe()
        process.kill()
    assert named, found
    assert found == f"{process.pid} a) (b (S)"
