"""A transient unit of a node: how it is started and read, what a run reports meanwhile, and when it gives up."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paramiko import SSHException
from pyinfra.api.command import StringCommand

from core.ops import detached_unit
from core.ops.detached_unit import PROGRESS_SECONDS, STALL, DetachedUnit, TransferStoppedError
from tests.unit.ops.shells import calls, run, stand_in, write

UNIT = DetachedUnit("sparkrack-copy-1", "/run/sparkrack")


@dataclass(frozen=True)
class State:
    """What the output of a unit means."""

    text: str
    running: bool = True


@dataclass
class Host:
    """A node with a clock: it gives one answer after another, each `step` seconds later."""

    answers: list[list[str] | Exception]
    step: float = 1.0
    now: float = 100.0
    sent: list[str] = field(default_factory=list)
    logged: list[tuple[str, str]] = field(default_factory=list)
    state: Any = field(default_factory=lambda: SimpleNamespace(print_fact_output=False, print_fact_input=False))

    def run_shell_command(self, command: StringCommand, **_: object) -> tuple[bool, Any]:
        self.sent.append(command.get_raw_value())
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            return False, SimpleNamespace(stdout_lines=["half"], stderr_lines=str(answer).splitlines())
        return True, SimpleNamespace(stdout_lines=answer, stderr_lines=[])

    def log_styled(self, text: str, fg: str, **_: object) -> None:
        self.logged.append((text, fg))

    def sleep(self, seconds: float) -> None:
        assert seconds == detached_unit.POLL_SECONDS
        self.now += self.step


def watched(host: Host, monkeypatch: pytest.MonkeyPatch) -> tuple[State, list[str]]:
    """Watch the unit to its end: its last state, and what was reported with the second of it."""
    monkeypatch.setattr(detached_unit, "time", SimpleNamespace(monotonic=lambda: host.now))
    monkeypatch.setattr(detached_unit, "gevent", SimpleNamespace(sleep=host.sleep))
    reported: list[str] = []

    def parse(lines: list[str]) -> State:
        running, log = detached_unit.output_of(lines)
        return State(" ".join(log), running)

    def report(state: State) -> None:
        reported.append(f"{host.now - 100:g} {state.text}")

    return detached_unit.watch(host, UNIT, "spark1", parse, report), reported  # type: ignore[arg-type]


def test_progress_is_reported_every_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([*(["active", f"{number} %"] for number in range(12)), ["inactive", "done"]])
    end, reported = watched(host, monkeypatch)
    assert end == State("done", running=False)
    assert PROGRESS_SECONDS == 5
    assert reported == ["5 5 %", "10 10 %"]
    assert set(host.sent) == {UNIT.look()}


def test_a_unit_that_moves_nothing_for_half_an_hour_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert STALL == 1800
    host = Host([["active", "0 %"], *[["active", "1 %"]] * 9], step=STALL / 4)
    with pytest.raises(TransferStoppedError, match=r"^from spark1: nothing moved for 30 minutes, so it was ended$"):
        watched(host, monkeypatch)
    # It moved for the last time at the second look, and is ended at the sixth after that: at 1800 s it may go on.
    assert host.sent == [UNIT.look()] * 7 + ["systemctl stop sparkrack-copy-1.service"]


def test_a_unit_that_moves_is_not_ended_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([*(["active", f"{number} %"] for number in range(8)), ["failed"]], step=STALL)
    assert watched(host, monkeypatch)[0] == State("", running=False)
    assert host.sent == [UNIT.look()] * 9


def test_a_node_that_does_not_answer_about_its_unit_ends_the_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransferStoppedError, match=r"^the node does not say whether its transfer still runs$"):
        watched(Host([[]]), monkeypatch)


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [
        (OSError("a\nb\nc\nd"), "b; c; d"),
        (OSError("full"), "full"),
        (OSError(""), "the node could not: " + "x" * 80),
    ],
)
def test_a_command_that_fails_is_named_by_its_last_lines_or_its_begin(complaint: Exception, reason: str) -> None:
    with pytest.raises(TransferStoppedError) as stopped:
        detached_unit.send(Host([complaint]), "x" * 90)  # type: ignore[arg-type]
    assert str(stopped.value) == reason


@pytest.mark.parametrize(
    ("state", "running"),
    [
        ("active", True),
        ("activating", True),
        ("deactivating", True),
        ("reloading", True),
        ("inactive", False),
        ("failed", False),
    ],
)
def test_a_unit_runs_until_systemd_calls_it_ended(state: str, running: bool) -> None:
    assert detached_unit.output_of([f" {state} ", " 5 % "]) == (running, ["5 %"])


def stopped_by(fault: Exception) -> Callable[[], None]:
    def deliveries() -> None:
        raise fault

    return deliveries


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (TransferStoppedError("no room"), "images: no room"),
        (
            OSError("the line broke"),
            "images: the line broke; a transfer in progress continues without this run, and the next run waits for it",
        ),
        (
            EOFError("it hung up"),
            "images: it hung up; a transfer in progress continues without this run, and the next run waits for it",
        ),
        (
            SSHException("no session"),
            "images: no session; a transfer in progress continues without this run, and the next run waits for it",
        ),
    ],
)
def test_why_deliveries_stopped_is_in_the_log_in_red(fault: Exception, message: str) -> None:
    host, left = Host([]), []
    assert not detached_unit.deliver(host, "images", stopped_by(fault), lambda: left.append(1))  # type: ignore[arg-type]
    assert (host.logged, left) == ([(message, "red")], [1])


def test_deliveries_that_are_done_log_nothing_and_a_fault_of_the_program_is_not_one_of_the_node() -> None:
    host, left = Host([]), []
    assert detached_unit.deliver(host, "images", lambda: None, lambda: left.append(1))  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        detached_unit.deliver(host, "images", stopped_by(KeyError()), lambda: left.append(2))  # type: ignore[arg-type]
    assert (host.logged, left) == ([], [1, 2])


def test_the_units_of_earlier_runs_are_read_and_other_words_are_refused(tmp_path: Path) -> None:
    for name in ("sparkrack-copy-1.service", "sparkrack-copy-2.service", "other.service"):
        (tmp_path / "sys/fs/cgroup/system.slice" / name).mkdir(parents=True)
    write(tmp_path, "/sys/fs/cgroup/system.slice/sparkrack-copy-3.service")  # a file is not a unit that runs
    output = run(detached_unit.list_running("sparkrack-copy-"), tmp_path).stdout
    assert detached_unit.running_units(output, "sparkrack-copy-", "images") == {"sparkrack-copy-1", "sparkrack-copy-2"}
    assert detached_unit.running_units("\n", "sparkrack-copy-", "images") == frozenset()
    with pytest.raises(ValueError, match=f"^images: unexpected probe output '{'y' * 80}'$"):
        detached_unit.running_units(f"sparkrack-copy-1 {'y' * 90}", "sparkrack-copy-", "images")


def started(root: Path, job: str | None = None, **arguments: Any) -> list[str]:
    """Start the unit on a node: how systemd-run was called, in words."""
    (root / "run").mkdir(exist_ok=True)
    command = StringCommand(UNIT.start(b"echo $1 'x'", ["/usr/bin/nice", "-n", "5"], "copy of it", **arguments))
    if job is not None:
        command.connector_arguments["_stdin"] = base64.b64encode(job.encode()).decode()
    run(command, root)
    return calls(root)


def test_a_unit_is_started_with_its_script_its_log_and_its_user(tmp_path: Path) -> None:
    stand_in(tmp_path, "systemd-run")
    base = f"{tmp_path}/run/sparkrack/sparkrack-copy-1"
    write(tmp_path, "/run/sparkrack/sparkrack-copy-1.log", "of an earlier run")
    assert started(tmp_path, user="ops", arguments=["a b"]) == [
        (
            "systemd-run --quiet --collect --unit=sparkrack-copy-1 --uid=ops --description=copy of it "
            f"--property=StandardOutput=append:{base}.log --property=StandardError=append:{base}.log "
            f"/usr/bin/nice -n 5 {base}.script a b"
        )
    ]
    assert Path(f"{base}.script").read_text() == "echo $1 'x'"
    assert sorted(path.name for path in Path(base).parent.iterdir()) == ["sparkrack-copy-1.script"]


def test_a_unit_without_a_user_is_of_root(tmp_path: Path) -> None:
    stand_in(tmp_path, "systemd-run")
    assert "--uid" not in started(tmp_path)[0]


@pytest.mark.parametrize("starts", [True, False])
def test_only_root_can_read_a_job_and_one_that_does_not_start_leaves_none(tmp_path: Path, starts: bool) -> None:
    stand_in(tmp_path, "systemd-run", "exit 0" if starts else "exit 5")
    write(tmp_path, "/run/sparkrack/sparkrack-copy-1.job", "of an earlier run").chmod(0o644)
    started(tmp_path, job="a token", arguments=[UNIT.job])
    job = tmp_path / "run/sparkrack/sparkrack-copy-1.job"
    assert job.exists() == starts
    if starts:
        assert (job.read_text(), f"{job.stat().st_mode & 0o777:o}") == ("a token", "600")


@pytest.mark.parametrize(
    ("systemctl", "log", "printed"),
    [
        ("echo active", "1 %\r2 %\n", ["active", "1 %", "2 %"]),
        ("echo inactive; exit 3", None, ["inactive"]),
        ("exit 1", "1 %\n", None),
    ],
)
def test_a_look_prints_the_state_and_the_end_of_the_log(
    tmp_path: Path, systemctl: str, log: str | None, printed: list[str] | None
) -> None:
    stand_in(tmp_path, "systemctl", systemctl)
    if log is not None:
        write(tmp_path, "/run/sparkrack/sparkrack-copy-1.log", log)
    done = run(UNIT.look(), tmp_path)
    assert calls(tmp_path) == ["systemctl is-active sparkrack-copy-1.service"]
    assert (done.stdout.splitlines() if done.returncode == 0 else None) == printed


def test_of_a_long_log_a_look_prints_the_last_16000_bytes(tmp_path: Path) -> None:
    stand_in(tmp_path, "systemctl", "echo active")
    write(tmp_path, "/run/sparkrack/sparkrack-copy-1.log", "x" * 20000)
    assert run(UNIT.look(), tmp_path).stdout == "active\n" + "x" * 16000
