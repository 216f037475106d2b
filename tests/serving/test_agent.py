"""What an agent does with an order of its coordinator: alone, with a systemctl that notes how it is called."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernel_journal import GUARD, KernelJournal, needs_journal
from tests.serving.serve_modules import FOLDER, serve_agent, serve_coordinator, serve_slice, serve_unit
from tests.serving.test_unit_file import MINIMAL, written

START = "start sparkrack-serve-qwen.service"


class LoneAgent:
    """The agent of rank 1, whose service is at rest."""

    def __init__(self, folder: Path, cgroups: Path | str = serve_slice.CGROUPS) -> None:
        self.calls = folder / "calls"
        self.calls.touch()
        (folder / "systemctl").write_text(f'echo "$*" >> {self.calls}\n')
        (folder / "secret").write_text("0" * 64)
        (folder / "secret").chmod(0o600)
        (folder / "boot").write_text("boot1\n")
        self.journal = folder / "journal"
        """A script that prints what journalctl does."""
        commands = {
            name: ["sh", str(file)]
            for name, file in (("systemctl", folder / "systemctl"), ("journalctl", self.journal))
        }
        values = MINIMAL | {"secret_file": str(folder / "secret"), **commands}
        self.folder, self.cgroups = folder, cgroups
        self.unit = serve_unit.load_unit(written(folder, values))
        self.agent = self.begin()

    def begin(self) -> serve_agent.Agent:
        """Start an agent."""
        paths = str(self.folder / "state"), str(self.folder / "boot")
        agent = serve_agent.Agent(self.unit, self.unit.rank(1), *paths, cgroups=str(self.cgroups))
        agent._service = serve_agent.ServiceState("inactive")
        return agent

    def run(self, generation: int, verdict: tuple[int, bool, str] | None) -> list[str]:
        """Return what systemctl was asked for after the order to run, with this verdict of the gate."""
        self.agent._verdict = verdict
        self.agent._obey_order("run", generation)
        if self.agent._start and (process := self.agent._start._process):
            process.wait(60)
        return self.calls.read_text().splitlines()


@pytest.fixture
def lone(tmp_path: Path) -> LoneAgent:
    return LoneAgent(tmp_path)


@pytest.mark.parametrize(
    "verdict", [None, (4, True, ""), (6, True, ""), (5, False, "12 GiB")], ids=["none", "before", "after", "failed"]
)
def test_no_rank_starts_without_a_gate_that_passed_for_its_generation(
    lone: LoneAgent, verdict: tuple[int, bool, str] | None
) -> None:
    """Whatever the coordinator says, which may have lost its state."""
    assert lone.run(5, verdict) == []
    assert lone.agent.record.generation == 0
    assert lone.run(5, (5, True, "")) == [START]


def test_no_rank_starts_twice_in_a_generation(lone: LoneAgent) -> None:
    assert lone.run(5, (5, True, "")) == [START]
    lone.agent._start = None
    lone.agent.record.running = False
    for generation in (5, 4):
        assert lone.run(generation, (generation, True, "")) == [START]
    assert lone.run(6, (6, True, "")) == [START, START]


@needs_journal
@pytest.mark.parametrize(
    ("identifier", "logged"),
    [
        (GUARD, "9 KiB of memory are available, less than the floor of 10 KiB: ended every container"),
        ("kernel", "NVRM: Xid (PCI:000f:01:00): 79, pid=1234, GPU has fallen off the bus."),
        ("kernel", "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"),
        ("kernel", "Memory cgroup out of memory: Killed process 4711 (VLLM::Worker) total-vm:104857600kB"),
        (
            GUARD,
            "9 KiB, less than the floor of 10 KiB: ended every container of unit qwen, which was started last, in x",
        ),
    ],
)
def test_a_fault_that_the_kernel_logged_forbids_another_start(
    lone: LoneAgent, tmp_path: Path, identifier: str, logged: str
) -> None:
    """By the real journalctl, and although the clock of the node was set back after the start of the rank."""
    journal, begun = KernelJournal(tmp_path), 1_764_230_000
    journal.log(logged, begun - 1, identifier)
    lone.journal.write_text(journal.reader)
    lone.agent._begin_rank(1)
    journal.log("armed again: 9 KiB of memory are available", begun + 1, GUARD)
    journal.log("9 KiB, less than 10 KiB: ended every container of unit glm, which grew, in x", begun - 3600, GUARD)
    journal.log("NVRM: Xid (PCI:000f:01:00): 45, pid=1234, Ch 00000008", begun - 3600)
    assert lone.agent._kernel_fault() == ""
    journal.log(logged, begun - 3599, identifier)
    shown = logged if identifier == "kernel" else f"{identifier}: {logged}"
    assert lone.agent._kernel_fault() == f"the kernel logged: {shown}"


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exit 1", "exit code 1"), ("echo 'No journal files were found.' >&2", "No journal files were found.")],
)
def test_a_kernel_log_that_cannot_be_read_forbids_another_start(lone: LoneAgent, script: str, reason: str) -> None:
    lone.journal.write_text(script)
    assert lone.agent._kernel_fault() == f"the kernel's log cannot be read: {reason}"


def test_an_agent_reads_the_record_of_another_release(lone: LoneAgent) -> None:
    file = lone.folder / "state/qwen.rank.json"
    before = serve_agent.RankRecord("boot1", 7, running=True, invocation="x", started=12.5, kernel="Xid")
    for name in asdict(before):
        values = {key: value for key, value in asdict(before).items() if key != name} | {"of a later release": 1}
        file.write_text(json.dumps(values))
        record = lone.begin().record
        default = asdict(serve_agent.RankRecord("boot1"))[name]
        assert asdict(record) == {**asdict(before), "ended_clean": False, name: default}
        assert json.loads(file.read_text()) == asdict(record)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON: Expecting"),
        ("[1]", "expected an object"),
        ('{"generation": true}', "generation is True"),
        ('{"generation": "7"}', "generation is '7'"),
        ('{"started": "x"}', "started is 'x'"),
    ],
)
def test_a_damaged_record_of_a_rank_is_refused_with_the_file_and_what_repairs_it(
    lone: LoneAgent, content: str, said: str
) -> None:
    file = lone.folder / "state/qwen.rank.json"
    file.write_text(content)
    with pytest.raises(serve_unit.ServeError) as refused:
        lone.begin()
    assert str(refused.value).startswith(f"{file}: {said}")
    assert str(refused.value).endswith("; stop the rank (`systemctl stop sparkrack-serve-qwen`) and remove the file")
    file.unlink()
    assert lone.begin().record.generation == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON: "),
        ("[1]", "expected an object"),
        ('{"generation": true}', "the state file: generation is True"),
    ],
)
def test_a_damaged_record_of_a_unit_is_refused_with_the_file_and_what_repairs_it(
    lone: LoneAgent, content: str, said: str
) -> None:
    file = lone.folder / "qwen.record"
    file.write_text(content)
    with pytest.raises(serve_unit.ServeError) as refused:
        serve_coordinator._read_unit_record(str(file), lone.unit)
    assert str(refused.value).startswith(f"{file}: {said}")
    assert str(refused.value).endswith(
        "; stop coordinator and agents on all nodes (`systemctl stop sparkrack-serve-qwen-coordinator "
        "sparkrack-serve-qwen-agent`), remove the file, and run `sparkrack apply --only serving`"
    )
    file.unlink()
    assert serve_coordinator._read_unit_record(str(file), lone.unit).state == "down"


FAILED = "docker: Error response from daemon: unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown"
NO_GPU = (
    "docker gave the container no GPU (unresolvable CDI devices runtime.nvidia.com/gpu=all: unknown); "
    "`nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
)


@pytest.mark.parametrize(
    ("active", "ended", "beginning"),
    [("failed", True, ""), ("deactivating", True, "its process ended without being asked to: ")],
)
def test_a_rank_that_ends_at_its_start_reports_what_docker_printed(
    lone: LoneAgent, active: str, ended: bool, beginning: str
) -> None:
    """Only lines of this invocation, since its start: the ones before may be of another fault."""
    lone.journal.write_text(
        'case "$*" in "--output=cat --no-pager --lines=200 --since=@1700000000 _SYSTEMD_INVOCATION_ID=abc") '
        f"echo '{FAILED}'; echo \"Run 'docker run --help' for more information\" ;; esac\n"
    )
    lone.agent.record.running, lone.agent.record.started = True, 1700000000.5
    detail = "exit code 125, result exit-code"
    lone.agent._service = serve_agent.ServiceState(active, detail, "abc", ended, "125")
    assert lone.agent._make_report()["detail"] == f"{beginning}{detail}: {NO_GPU}"


def test_a_rank_whose_log_cannot_be_read_reports_its_exit_code(lone: LoneAgent) -> None:
    lone.journal.write_text("exit 1")
    lone.agent.record.running = True
    lone.agent._service = serve_agent.ServiceState("failed", "exit code 1, result exit-code", "abc", True, "1")
    assert lone.agent._make_report()["detail"] == "exit code 1, result exit-code"


def test_a_rank_that_was_asked_to_stop_reports_nothing_of_its_log(lone: LoneAgent) -> None:
    lone.journal.write_text(f"echo '{FAILED}'")
    lone.agent.record.running, lone.agent._ended = True, True
    lone.agent._service = serve_agent.ServiceState("deactivating", "exit code 0", "abc", True, "0")
    assert lone.agent._make_report()["detail"] == ""


@pytest.mark.parametrize(("anyway", "words"), [(False, ""), (True, "--anyway")])
def test_the_gate_is_asked_as_the_operator_desired(lone: LoneAgent, tmp_path: Path, anyway: bool, words: str) -> None:
    gate = tmp_path / "gate"
    gate.write_text('echo "n1: ready; it says $*"')
    lone.agent.unit = replace(lone.agent.unit, gate=("sh", str(gate)))
    lone.agent._obey_order("gate", 3, anyway=anyway)
    assert lone.agent._gate
    assert lone.agent._gate[1]._process
    lone.agent._gate[1]._process.wait(60)
    lone.agent._finish_tasks()
    assert lone.agent._verdict == (3, True, f"it says {words}".strip())
    assert lone.run(3, lone.agent._verdict) == [START], "a remark does not keep the rank from starting"


def test_a_gate_that_passed_without_a_remark_has_none(lone: LoneAgent, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.write_text('echo "n1: ready"')
    lone.agent.unit = replace(lone.agent.unit, gate=("sh", str(gate)))
    lone.agent._obey_order("gate", 3)
    assert lone.agent._gate
    assert lone.agent._gate[1]._process
    lone.agent._gate[1]._process.wait(60)
    lone.agent._finish_tasks()
    assert lone.agent._verdict == (3, True, "")


# What a command says


def ended_by(task: Any) -> int:
    """The exit code of the command of a task."""
    return int(task._process.wait(60))


def ended(task: Any) -> Any:
    if task._process:
        task._process.wait(60)
    assert task.done()
    return task


def test_a_command_that_fails_is_reported_by_its_last_line_or_its_exit_code() -> None:
    for script, reason in (
        ("echo a; echo b; exit 3", "b"),
        ("echo a >&2; exit 3", "a"),
        ("exit 3", "exit code 3"),
        ("echo a", ""),
    ):
        assert ended(serve_agent.ServeTask(["sh", "-c", script], 60)).reason == reason
    assert ended(serve_agent.ServeTask(["/nowhere/gate"], 60)).reason == "/nowhere/gate: No such file or directory"


def test_a_command_past_its_limit_is_killed_with_what_it_started(tmp_path: Path) -> None:
    task = serve_agent.ServeTask(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; wait"], 600)
    assert not task.done()
    until = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    task._until, task._limit = time.monotonic() - 1, 7.5
    assert task.done()
    assert task.reason == "no end within 7.5 s"
    assert task._process is not None
    assert task._process.poll() == -9
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until, "what it started runs on"
        time.sleep(0.02)


def test_a_remark_follows_the_word_ready_in_the_last_line() -> None:
    for script, remark in (("echo 'n1: ready; a; b'", "a; b"), ("echo 'x: ready; a'; echo 'n1: ready'", ""), (":", "")):
        assert ended(serve_agent.ServeTask(["sh", "-c", script], 60)).remark() == remark


# What systemd says


def answers(lone: LoneAgent, script: str) -> None:
    (lone.folder / "systemctl").write_text(f'echo "$*" >> {lone.calls}\n{script}\n')


SHOWN = (
    "echo ActiveState=failed; echo Result=exit-code; echo ExecMainStatus=125; echo InvocationID=abc; echo MainPID={}"
)


def test_the_service_is_as_systemd_shows_it(lone: LoneAgent) -> None:
    for pid, over in (("0", True), ("17", False)):
        answers(lone, SHOWN.format(pid))
        expected = serve_agent.ServiceState("failed", "exit code 125, result exit-code", "abc", over, "125")
        assert lone.agent._read_service() == expected
    asked = "show --property=ActiveState,Result,ExecMainStatus,InvocationID,MainPID sparkrack-serve-qwen.service"
    assert lone.calls.read_text().splitlines() == [asked, asked]


@pytest.mark.parametrize(
    ("script", "detail"),
    [
        ("echo ActiveState=active", "systemctl does not report the service"),
        ("exit 1", "systemctl does not answer: Command "),
    ],
)
def test_a_service_of_which_systemd_does_not_tell_is_unknown(lone: LoneAgent, script: str, detail: str) -> None:
    answers(lone, script)
    found = lone.agent._read_service()
    assert (found.active, found.ended) == ("unknown", False)
    assert found.detail.startswith(detail)
    assert len(found.detail) <= len("systemctl does not answer: ") + 120


@pytest.mark.parametrize(
    ("active", "script", "leaving"),
    [
        ("inactive", "echo SystemState=stopping", True),
        ("failed", "echo SystemState=stopping", True),
        ("inactive", "echo SystemState=running", False),
        ("inactive", "", False),
        ("inactive", "exit 1", True),
        ("active", "echo SystemState=stopping", False),
    ],
)
def test_a_machine_that_shuts_down_or_may_do_so_is_leaving(
    lone: LoneAgent, active: str, script: str, leaving: bool
) -> None:
    answers(lone, script)
    lone.agent._service = serve_agent.ServiceState(active)
    assert lone.agent._machine_shuts_down() is leaving
    assert lone.calls.read_text() == ("show --property=SystemState\n" if active != "active" else "")


TASK: Any = object()


@pytest.mark.parametrize(
    ("active", "more", "state"),
    [
        ("active", {}, "running"),
        ("reloading", {}, "running"),
        ("refreshing", {}, "running"),
        ("activating", {}, "starting"),
        ("deactivating", {}, "stopping"),
        ("unknown", {}, "unknown"),
        ("maintenance", {}, "unknown"),
        ("inactive", {"_start": TASK}, "starting"),
        ("failed", {"_start": TASK, "_stop": TASK}, "starting"),
        ("inactive", {"_stop": TASK}, "stopping"),
        ("active", {"_stop": TASK}, "running"),
        ("inactive", {"running": True}, "ended"),
        ("failed", {"running": True, "_ended": True}, "stopping"),
        ("inactive", {"_gate": TASK}, "gating"),
        ("inactive", {}, "idle"),
        ("failed", {"_ended": True}, "idle"),
    ],
)
def test_the_state_of_a_rank_follows_from_its_service_and_what_runs(
    tmp_path: Path, active: str, more: dict[str, Any], state: str
) -> None:
    (tmp_path / "cgroups/sparkrack.slice").mkdir(parents=True)
    agent = LoneAgent(tmp_path, tmp_path / "cgroups").agent
    agent._service = serve_agent.ServiceState(active)
    for name, value in more.items():
        setattr(agent.record if name == "running" else agent, name, value)
    assert agent._rank_state() == state


# What is reported


def test_a_report_has_what_the_coordinator_judges_by(lone: LoneAgent) -> None:
    agent = lone.agent
    agent.unit = replace(agent.unit, version="v1", rdma="required")
    agent._rdma = str(lone.folder / "absent"), str(lone.folder)
    agent.record = serve_agent.RankRecord("boot1", 5, running=True, invocation="abc", clean=False, kernel="Xid")
    agent._service = serve_agent.ServiceState("active", "exit code 0", "abc")
    agent._hang, agent._network, agent._verdict = "spins", "IB", (5, True, "x")
    assert agent._make_report() == {
        "kind": "report",
        "rank": 1,
        "state": "running",
        "generation": 5,
        "boot": "boot1",
        "clean": False,
        "leaving": False,
        "kernel": "Xid",
        "hang": "spins",
        "detail": "",
        "gate": (5, True, "x"),
        "version": "v1",
        "rdma": {},
        "network": "IB",
        "beside": [],
        "phases": {},
    }
    agent._service = serve_agent.ServiceState("active", "", "of another start")
    assert agent._make_report()["generation"] is None
    (lone.folder / "fabric").write_text("NCCL_IB_HCA=a\n")
    agent._rdma = str(lone.folder / "fabric"), str(lone.folder)
    assert agent._make_report()["rdma"] == {"a": None}
    agent.unit = replace(agent.unit, rdma="ignored")
    assert agent._make_report()["rdma"] == {}


def test_the_first_invocation_of_a_start_is_its_own(lone: LoneAgent) -> None:
    agent = lone.agent
    agent._service = serve_agent.ServiceState("active", "", "abc")
    assert agent._make_report()["generation"] is None, "it did not start it"
    agent.record = serve_agent.RankRecord("boot1", 5, running=True)
    agent._stop = TASK
    assert agent._make_report()["generation"] is None, "it stops it"
    agent._stop = None
    assert agent._make_report()["generation"] == 5
    assert json.loads((lone.folder / "state/qwen.rank.json").read_text())["invocation"] == "abc"


def test_a_service_that_is_stopped_by_another_hand_is_reported(lone: LoneAgent) -> None:
    lone.journal.write_text("")
    lone.agent.record.running = True
    lone.agent._service = serve_agent.ServiceState("deactivating", "exit code 0, result success", "abc")
    detail = "sparkrack-serve-qwen.service is being stopped on the node, not by its agent"
    assert lone.agent._make_report()["detail"] == detail


# What is done


@pytest.mark.parametrize("generation", [4, 5])
def test_an_order_to_run_of_an_earlier_or_the_own_generation_starts_nothing(lone: LoneAgent, generation: int) -> None:
    lone.agent.record.generation = 5
    assert lone.run(generation, (generation, True, "")) == []


def test_nothing_is_started_while_the_service_is_unknown(lone: LoneAgent) -> None:
    lone.agent._service = serve_agent.ServiceState("unknown")
    assert lone.run(5, (5, True, "")) == []
    lone.agent._obey_order("gate", 5)
    assert lone.agent._gate is None


@pytest.mark.parametrize("answer", [{"loaded": True}, {"order": "stop"}])
def test_what_a_gate_has_left_goes_when_the_unit_has_loaded_or_is_stopped(
    lone: LoneAgent, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    loading = lone.folder / "loading"
    lone.agent._loading = loading
    loading.touch()
    answers = [{"order": "run", "generation": 5}, {"order": "run", "generation": 5, **answer}]
    monkeypatch.setattr(serve_agent, "ask", lambda *_: answers.pop(0))
    for expected in (True, False):
        order, generation, *_ = lone.agent._send_question(1.0)
        lone.agent._obey_order(order, generation)
        assert loading.exists() == expected


def test_the_other_units_of_a_node_are_those_whose_slices_have_processes(tmp_path: Path) -> None:
    for name, populated in (("glm", 1), ("qwen", 0)):
        folder = tmp_path / f"sparkrack.slice/sparkrack-{name}.slice"
        folder.mkdir(parents=True)
        (folder / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
    (tmp_path / "sparkrack.slice/sparkrack-odd.slice").mkdir()
    assert serve_slice.running_units(str(tmp_path)) == ["glm"]
    assert serve_slice.running_units(str(tmp_path / "absent")) == []


def test_a_rank_that_is_wanted_leaves_a_mark_until_it_is_stopped(lone: LoneAgent) -> None:
    wanted = lone.folder / "wanted"
    lone.agent._wanted = wanted
    lone.agent._obey_order("run", 0)
    assert wanted.exists()
    lone.agent._obey_order("stop", 0)
    assert not wanted.exists()
    lone.agent._wanted = lone.folder / "absent/wanted"
    assert lone.run(5, (5, True, "")) == []
    assert lone.agent._verdict == (5, False, f"{lone.folder}/absent/wanted: No such file or directory")


def test_a_start_whose_record_cannot_be_written_is_refused(lone: LoneAgent) -> None:
    lone.agent.record.kernel = "Xid"
    lone.agent._path = f"{lone.folder}/absent/qwen.rank.json"
    before = lone.agent.record
    assert lone.run(5, (5, True, "")) == []
    assert lone.agent._verdict == (5, False, f"{lone.folder}/absent/qwen.rank.json: No such file or directory")
    assert lone.agent.record == before


def test_a_start_forgets_what_the_rank_before_has_shown(lone: LoneAgent) -> None:
    agent = lone.agent
    agent._ended, agent._network, agent._ordered, agent._killed = True, "IB", True, 7.0
    before = time.time()
    assert lone.run(5, (5, True, "")) == [START]
    assert (agent._ended, agent._network, agent._ordered, agent._killed) == (False, "", False, 0.0)
    assert (agent.record.generation, agent.record.running, agent.record.boot) == (5, True, "boot1")
    assert before <= agent.record.started <= time.time()
    assert json.loads((lone.folder / "state/qwen.rank.json").read_text())["running"] is True


def test_a_gate_runs_once_for_each_generation_and_not_beside_that_of_another(lone: LoneAgent) -> None:
    agent = lone.agent
    agent.unit = replace(agent.unit, gate=("sleep", "600"))
    agent._detail, agent._hang, agent.record.kernel = "x", "spins", "Xid"
    agent._obey_order("gate", 3)
    first = agent._gate
    assert first
    assert (agent._detail, agent._hang, agent.record.kernel) == ("", "", "")
    agent._obey_order("gate", 3)
    assert agent._gate is first
    agent._obey_order("gate", 4)
    assert ended_by(first[1]) == -9
    assert agent._gate
    assert agent._gate[0] == 4
    agent._gate[1].kill()
    agent._gate, agent._verdict = None, (4, False, "no")
    agent._obey_order("gate", 4)
    assert agent._gate is None
    assert agent._verdict == (4, False, "no")


def test_an_order_to_stop_ends_the_gate_and_its_verdict(lone: LoneAgent) -> None:
    agent = lone.agent
    agent._gate, agent._verdict = (3, serve_agent.ServeTask(["sleep", "600"], 600)), (3, True, "")
    gate = agent._gate[1]
    agent._obey_order("stop", 3)
    assert ended_by(gate) == -9
    assert [agent._gate, agent._verdict, agent._stop] == [None] * 3


def test_an_order_to_stop_ends_the_command_that_starts_the_service_and_is_given_once(
    lone: LoneAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = lone.agent
    start = agent._start = serve_agent.ServeTask(["sleep", "600"], 600)
    for _ in range(2):
        agent._obey_order("stop", 3)
    assert ended_by(start) == -9
    assert agent._start is None
    assert agent._stop
    ended_by(agent._stop)
    assert lone.calls.read_text() == "stop sparkrack-serve-qwen.service\n"
    assert agent._detail == "the coordinator ordered it"
    assert capsys.readouterr().out == "stop sparkrack-serve-qwen.service: the coordinator ordered it\n"


def test_a_start_that_fails_is_the_detail_of_the_rank(lone: LoneAgent) -> None:
    lone.agent._start = ended(serve_agent.ServeTask(["sh", "-c", "echo 'no such unit'; exit 5"], 60))
    lone.agent._finish_tasks()
    assert lone.agent._start is None
    assert lone.agent._detail == "systemctl start failed: no such unit"


@pytest.mark.parametrize(
    ("script", "verdict", "logged"),
    [
        ("echo 'no room'; exit 1", (3, False, "no room"), "generation 3: gate failed: no room\n"),
        ("echo 'n1: ready'", (3, True, ""), "generation 3: gate passed\n"),
        ("echo 'n1: ready; x'", (3, True, "x"), "generation 3: gate passed; x\n"),
    ],
)
def test_the_verdict_of_a_gate_is_kept_and_logged(
    lone: LoneAgent,
    capsys: pytest.CaptureFixture[str],
    script: str,
    verdict: tuple[int, bool, str],
    logged: str,
) -> None:
    lone.agent._gate = 3, ended(serve_agent.ServeTask(["sh", "-c", script], 60))
    lone.agent._finish_tasks()
    assert lone.agent._gate is None
    assert lone.agent._verdict == verdict
    assert capsys.readouterr().out == logged


def test_a_service_that_systemd_cannot_stop_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cgroups/sparkrack.slice").mkdir(parents=True)
    lone = LoneAgent(tmp_path, tmp_path / "cgroups")
    lone.agent._stop = ended(serve_agent.ServeTask(["sh", "-c", "exit 1"], 60))
    lone.agent._finish_tasks()
    assert lone.agent._stop is None
    assert lone.calls.read_text() == "kill --signal=KILL sparkrack-serve-qwen.service\n"
    assert capsys.readouterr().out == "systemctl stop failed: exit code 1; its processes are killed\n"
    lone.agent._stop = ended(serve_agent.ServeTask(["true"], 60))
    lone.agent._finish_tasks()
    assert lone.calls.read_text().count("kill") == 1


@pytest.mark.parametrize(("cursor", "after"), [("s=1;i=7", "--after-cursor=s=1;i=7"), ("", "--since=@12")])
def test_a_rank_that_is_empty_is_stopped_and_the_kernel_is_asked_why(tmp_path: Path, cursor: str, after: str) -> None:
    """By the line that was the newest when the rank began; by time only where the record has none."""
    (tmp_path / "cgroups/sparkrack.slice").mkdir(parents=True)
    lone = LoneAgent(tmp_path, tmp_path / "cgroups")
    asked = f"--dmesg --no-pager --output=short-unix --no-hostname {after}"
    there = f'"--dmesg --no-pager --output=export --output-fields=_BOOT_ID --cursor={cursor}") echo "__CURSOR={cursor}"'
    lone.journal.write_text(f'case "$*" in {there} ;; "{asked}") echo "1.5 kernel: NVRM: Xid (PCI:1): 79, x" ;; esac\n')
    lone.agent.record = serve_agent.RankRecord("boot1", 5, running=True, invocation="abc", started=12.5, cursor=cursor)
    lone.agent._obey_order("stop", 5)
    saved = json.loads((tmp_path / "state/qwen.rank.json").read_text())
    assert (saved["running"], saved["invocation"], saved["generation"]) == (False, "", 5)
    assert saved["kernel"] == "the kernel logged: NVRM: Xid (PCI:1): 79, x"


@needs_journal
def test_a_fault_is_seen_although_the_log_has_lost_all_lines_before_it(lone: LoneAgent, tmp_path: Path) -> None:
    """By the real journalctl: that of systemd 252 does not show the line that is nearest to a cursor that is gone."""
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    before, after = KernelJournal(tmp_path / "before"), KernelJournal(tmp_path / "after")
    before.log("Linux version 7.0.0", 1_764_230_000)
    lone.journal.write_text(before.reader)
    lone.agent._begin_rank(1)
    assert lone.agent.record.cursor
    lone.journal.write_text(after.reader)
    after.log("NVRM: Xid (PCI:1): 79, x", 1_764_230_001)
    after.log("a line", 1_764_230_002)
    assert lone.agent._kernel_fault() == "the kernel logged: NVRM: Xid (PCI:1): 79, x"


@pytest.mark.parametrize(("answer", "cursor"), [("echo __CURSOR=s=1; echo MESSAGE=x", "s=1"), ("", ""), ("exit 1", "")])
def test_the_newest_line_of_the_kernel_is_remembered_when_a_rank_begins(
    lone: LoneAgent, answer: str, cursor: str
) -> None:
    """A clock that is set back while the rank runs then hides no fault. A log that does not answer keeps no rank from
    its start: it is asked again at the end of the rank.
    """
    asked = '"--dmesg --no-pager --output=export "*" --lines=1"'
    lone.journal.write_text(f'case "$*" in {asked}) {answer or ":"} ;; esac\n')
    lone.agent._begin_rank(3)
    saved = json.loads(Path(lone.agent._path).read_text())
    assert (saved["generation"], saved["running"], saved["cursor"]) == (3, True, cursor)


def test_a_kernel_log_of_which_nothing_answers_forbids_another_start(lone: LoneAgent) -> None:
    lone.agent.unit = replace(lone.agent.unit, journalctl=("/nowhere/journalctl",))
    found = lone.agent._kernel_fault()
    assert found.startswith("the kernel's log cannot be read: [Errno 2] No such file or directory")


# A coordinator that is not heard


def test_a_coordinator_that_is_not_heard_for_a_lease_ends_the_rank(
    lone: LoneAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = lone.agent
    agent._service = serve_agent.ServiceState("active", "", "abc")
    agent._heard = time.monotonic() - 5
    agent._not_heard(OSError("refused"))
    assert (agent._lost, agent._stop, capsys.readouterr().out) == (False, None, "")
    agent._heard = time.monotonic() - 11
    agent._not_heard(OSError("refused"))
    agent._not_heard(OSError("refused"))
    assert agent._lost
    assert agent._stop
    ended_by(agent._stop)
    assert lone.calls.read_text() == "stop sparkrack-serve-qwen.service\n"
    assert agent._detail == "no answer of the coordinator for 10 s"
    assert capsys.readouterr().out == (
        "no authentic answer of the coordinator for 10 s: refused\n"
        "stop sparkrack-serve-qwen.service: no answer of the coordinator for 10 s\n"
    )


def test_a_rank_at_rest_does_not_blame_its_end_on_the_coordinator(lone: LoneAgent) -> None:
    lone.agent._heard = time.monotonic() - 11
    lone.agent._not_heard(OSError("refused"))
    assert (lone.agent._lost, lone.agent._stop, lone.agent._detail) == (True, None, "")


@pytest.mark.parametrize(
    "answer", [{}, {"order": "run"}, {"order": "run", "generation": True}, {"order": "halt", "generation": 1}]
)
def test_an_answer_without_a_valid_order_is_not_obeyed(
    lone: LoneAgent, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]
) -> None:
    monkeypatch.setattr(serve_agent, "ask", lambda *_: answer)
    with pytest.raises(serve_unit.ServeError, match="the answer has no valid order"):
        lone.agent._send_question(1.0)


def test_an_order_has_its_generation_and_what_else_is_desired(lone: LoneAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {"order": "stop", "generation": 7}
    asked: list[Any] = []

    def ask(*words: Any) -> dict[str, Any]:
        asked.append(words)
        return given

    monkeypatch.setattr(serve_agent, "ask", ask)
    lone.journal.write_text("echo 'x NCCL INFO Using network IB'")
    lone.agent._service = serve_agent.ServiceState("active", "", "abc")
    lone.agent.record.invocation = "abc"
    assert lone.agent._send_question(1.5) == ("stop", 7, False, False)
    assert (asked[0][3:], asked[0][2]["state"]) == ((1.5, "10.0.0.2"), "running")
    assert lone.agent._network == "", "it was not asked for"
    given |= {"hang": True, "anyway": True, "witness": True}
    assert lone.agent._send_question(1.5) == ("stop", 7, True, True)
    assert lone.agent._network == "IB"
    given |= {"hang": 1, "anyway": "yes"}
    assert lone.agent._send_question(1.5) == ("stop", 7, False, False)


def test_systemd_hears_that_an_agent_goes_on_before_the_slow_search_of_a_log(
    lone: LoneAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The search may take as long as the watchdog of the service waits."""
    lone.journal.write_text("exit 0")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(0)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

        def ask(*_: object) -> dict[str, Any]:
            with contextlib.suppress(BlockingIOError):
                while systemd.recv(100):
                    """What was heard before the answer."""
            return {"order": "run", "generation": 1, "witness": True}

        monkeypatch.setattr(serve_agent, "ask", ask)
        lone.agent._send_question(1.0)
        assert systemd.recv(100) == b"WATCHDOG=1"


# Its boots, and its program


@pytest.mark.parametrize(
    ("boot", "running", "ended_clean", "clean", "expected"),
    [
        ("boot1", True, True, True, True),
        ("boot1", True, False, True, True),
        ("boot0", True, True, True, True),
        ("boot0", True, False, True, False),
        ("boot0", False, False, True, True),
        ("boot0", False, True, False, False),
    ],
)
def test_a_boot_that_ended_out_of_order_while_the_rank_ran_is_not_clean(
    lone: LoneAgent, boot: str, running: bool, ended_clean: bool, clean: bool, expected: bool
) -> None:
    values = {"boot": boot, "generation": 4, "running": running, "ended_clean": ended_clean, "clean": clean}
    (lone.folder / "state/qwen.rank.json").write_text(json.dumps(values))
    record = lone.begin().record
    assert (record.boot, record.generation, record.clean, record.ended_clean) == ("boot1", 4, expected, False)
    assert record.running == (running and boot == "boot1")


def program(lone: LoneAgent, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", str(FOLDER / "serve_agent.py"), str(lone.folder / "qwen.json"), *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_an_agent_that_cannot_begin_says_why(lone: LoneAgent) -> None:
    state = (f"--state={lone.folder}/state", f"--boot-id={lone.folder}/boot")
    done = program(lone, "7", *state)
    assert (done.returncode, done.stderr) == (1, "serve-agent: unit qwen has no rank 7, expected 0 to 1\n")
    (lone.folder / "boot").unlink()
    done = program(lone, "1", *state)
    assert (done.returncode, done.stderr) == (1, f"serve-agent: {lone.folder}/boot: No such file or directory\n")


# Its loop


class OneRoundError(Exception):
    """Ends the loop of an agent at its first wait."""


def round_of(
    lone: LoneAgent, monkeypatch: pytest.MonkeyPatch, answer: Any, heard_ago: float, *, lost: bool = False
) -> tuple[float, float]:
    """Let the loop of an agent go round once; the limit of its question, and how long it waits then."""
    found: dict[str, float] = {}
    now = time.monotonic()

    def ask(limit: float) -> Any:
        found["limit"] = limit
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(seconds: float) -> None:
        found["wait"] = seconds
        raise OneRoundError

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep, time=time.time)
    monkeypatch.setattr(serve_agent, "time", clock)
    monkeypatch.setattr(lone.agent, "_send_question", ask)
    answers(lone, SHOWN.format("17"))
    lone.agent._heard, lone.agent._lost = now - heard_ago, lost
    with pytest.raises(OneRoundError):
        lone.agent.run()
    return found["limit"], found["wait"]


GO = ("gate", 0, False, False)


@pytest.mark.parametrize(
    ("answer", "heard_ago", "lost", "limit", "wait"),
    [
        (GO, 0.0, False, 2.0, 2.0),
        (GO, 8.5, False, 1.5, 2.0),
        (GO, 9.95, False, 0.1, 2.0),
        (GO, 20.0, True, 2.0, 2.0),
        (OSError("x"), 0.0, False, 2.0, 2.0),
        (OSError("x"), 8.5, False, 1.5, 1.5),
        (OSError("x"), 9.97, False, 0.1, 0.05),
        (OSError("x"), 20.0, True, 2.0, 2.0),
        (serve_unit.ServeError("x"), 8.0, False, 2.0, 2.0),
    ],
)
def test_a_question_ends_with_the_lease_and_the_next_one_comes_in_time(
    lone: LoneAgent,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    heard_ago: float,
    lost: bool,
    limit: float,
    wait: float,
) -> None:
    found = round_of(lone, monkeypatch, answer, heard_ago, lost=lost)
    assert list(found) == pytest.approx([limit, wait])


def test_an_answer_counts_from_its_question_and_is_obeyed(
    lone: LoneAgent, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    obeyed: list[Any] = []
    monkeypatch.setattr(lone.agent, "_obey_order", lambda *words, **more: obeyed.append((words, more)))
    round_of(lone, monkeypatch, ("stop", 7, True, False), 20.0, lost=True)
    assert obeyed == [(("stop", 7), {"hang": True, "anyway": False})]
    assert lone.agent._heard == vars(serve_agent)["time"].monotonic()
    assert not lone.agent._lost
    assert lone.agent._service.active == "failed"
    assert capsys.readouterr().out == (
        "unit qwen: the agent of rank 1 asks 10.0.0.1:29400\nthe coordinator answers again\n"
    )


def test_an_agent_that_ends_in_order_says_so_and_leaves_its_rank_to_run(
    lone: LoneAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", leave)
    gate = serve_agent.ServeTask(["sleep", "600"], 600)
    lone.agent._gate = 3, gate
    with pytest.raises(SystemExit) as left:
        lone.agent.leave()
    assert left.value.code == 0
    assert json.loads((lone.folder / "state/qwen.rank.json").read_text())["ended_clean"] is True
    assert ended_by(gate) == -9
    assert lone.calls.read_text() == ""
