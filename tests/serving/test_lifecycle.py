"""Which end of a unit is followed by a restart: the state machine alone, with a clock of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contact.nodes import free_port
from tests.serving.serve_modules import FOLDER, serve_keeper, serve_lifecycle, serve_probe, serve_unit
from tests.serving.test_unit_file import MINIMAL, written


class SteppedUnit:
    """A unit of two ranks whose tethers obey at once. `clock` is both clocks, in seconds."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.unit = serve_unit.load_unit(written(folder, MINIMAL | changes))
        self.clock = 1000.0
        self.full = False
        self.saved: dict[str, Any] = {}
        record = serve_lifecycle.UnitRecord("qwen")
        self.lifecycle = serve_lifecycle.UnitLifecycle(self.unit, record, self.save, self.clock, lambda: self.clock)
        self.running: dict[int, int] = {}
        self.gates: dict[int, int] = {}
        self.ended: set[int] = set()
        self.hung: set[int] = set()
        self.kernel = ""
        self.skews = [serve_lifecycle.ClockSkew(0.0, 0.01), serve_lifecycle.ClockSkew(0.0, 0.01)]
        self.versions = [self.unit.version, self.unit.version]

    def save(self, values: dict[str, Any]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.saved = values

    def pass_by(self, seconds: float) -> None:
        """Let time pass; every tether asks every 2 s."""
        until = self.clock + seconds
        while self.clock < until:
            self.clock += 2
            for rank in range(2):
                self.ask(rank)

    def ask(self, rank: int) -> str:
        state = "ended" if rank in self.ended else "running" if rank in self.running else "idle"
        if rank in self.hung:
            state = "starting"
        gate = (self.gates[rank], True, "") if rank in self.gates else None
        report = serve_lifecycle.TetherReport(
            state=state,
            generation=self.running.get(rank, 0),
            boot=f"boot{rank}",
            clean=True,
            leaving=False,
            detail="exit code 0",
            gate=gate,
            heard=self.clock,
            skew=self.skews[rank],
            kernel=self.kernel,
            version=self.versions[rank],
        )
        answer = self.lifecycle.reported(rank, report)
        if answer["order"] == "stop":
            self.running.pop(rank, None)
            self.gates.pop(rank, None)
            self.ended.discard(rank)
            self.hung.discard(rank)
        elif answer["order"] == "gate":
            self.gates[rank] = answer["generation"]
        elif rank not in self.running and self.gates.get(rank) == answer["generation"]:
            self.running[rank] = answer["generation"]
        return str(answer["order"])

    def up(self) -> None:
        assert self.lifecycle.wished("up", False, self.clock)[0]
        self.prove()

    def prove(self) -> None:
        self.pass_by(8)
        self.lifecycle.proved(self.record.generation, 0.5, False, self.clock)
        assert self.record.state == "ready"

    @property
    def record(self) -> Any:
        return self.lifecycle.record


@pytest.fixture
def unit(tmp_path: Path) -> SteppedUnit:
    return SteppedUnit(tmp_path)


def test_a_unit_that_ran_for_10_minutes_is_restarted_once_in_six_hours(unit: SteppedUnit) -> None:
    unit.up()
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.generation) == ("starting", 2)
    unit.prove()
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert unit.record.state == "held"
    assert "not restarted: 1 restarts within 21600 s" in unit.record.reason
    unit.up()
    unit.pass_by(6 * 3600)
    unit.ended.add(0)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.generation) == ("starting", 4), "the budget is not renewed"


def test_a_unit_that_ends_early_is_held(unit: SteppedUnit) -> None:
    unit.up()
    unit.pass_by(500)
    unit.ended.add(1)
    unit.pass_by(8)
    assert unit.record.state == "held"
    assert unit.record.reason.endswith("not restarted: it ended within 600 s of its start")
    assert not unit.running


def test_a_unit_whose_kernel_logged_a_fault_is_held(unit: SteppedUnit) -> None:
    unit.up()
    unit.pass_by(700)
    unit.ended.add(1)
    unit.kernel = "the kernel logged: NVRM: Xid 79"
    unit.pass_by(8)
    assert unit.record.state == "held"
    assert "not restarted: spark1: the kernel logged: NVRM: Xid 79; spark2: the kernel" in unit.record.reason


def test_a_rank_that_does_not_start_ends_the_others(unit: SteppedUnit) -> None:
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    while unit.record.state != "starting":
        unit.ask(0)
        unit.ask(1)
    unit.gates.pop(0)  # its tether was restarted
    unit.pass_by(20)
    assert unit.record.state == "held"
    assert unit.record.reason.startswith("spark1 (rank 0) did not start within 10 s")
    assert not unit.running


def test_a_rank_that_is_not_running_for_longer_than_a_lease_ends_the_others(unit: SteppedUnit) -> None:
    unit.up()
    unit.hung.add(1)  # its tether reports, and the rank never comes to run
    unit.pass_by(10)
    assert unit.record.state == "ready"
    unit.pass_by(10)
    assert unit.record.state == "held"
    assert unit.record.reason.startswith("spark2 (rank 1) is starting for more than 10 s")
    assert not unit.running


def test_a_unit_is_not_ready_before_all_its_ranks_run(unit: SteppedUnit) -> None:
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    while unit.record.state != "starting":
        unit.ask(0)
        unit.ask(1)
    unit.lifecycle.proved(unit.record.generation, 0.5, False, unit.clock)
    assert unit.record.state == "starting"
    unit.prove()


def test_a_clock_that_is_set_back_gives_no_restart(unit: SteppedUnit) -> None:
    unit.record.restarts = [unit.clock + 1e6]
    unit.up()
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert unit.record.state == "held"


def test_a_full_disk_ends_no_unit_and_starts_none(unit: SteppedUnit) -> None:
    unit.up()
    unit.full = True
    unit.pass_by(700)
    assert unit.record.state == "ready"
    unit.ended.add(1)
    unit.pass_by(8)
    assert unit.record.state == "held"
    assert unit.record.reason == "the state file cannot be written: No space left on device"
    assert not unit.running
    unit.full = False
    unit.pass_by(2)
    assert unit.saved["state"] == "held"


def test_two_misses_end_it_and_a_rising_counter_forgives_one(unit: SteppedUnit) -> None:
    unit.up()
    for busy in (False, True):
        unit.lifecycle.missed(1, "no answer within 60 s", unit.clock)
        unit.lifecycle.proved(1, 0.5, busy, unit.clock)
    assert unit.record.state == "busy"
    unit.lifecycle.missed(1, "no answer within 60 s", unit.clock)
    assert unit.record.state == "busy"
    unit.lifecycle.missed(1, "no answer within 60 s", unit.clock)
    assert unit.record.state == "stuck"
    assert unit.ask(0) == unit.ask(1) == "stop"


def test_a_probe_of_an_earlier_generation_counts_nothing(unit: SteppedUnit) -> None:
    unit.up()
    unit.lifecycle.missed(0, "late", unit.clock)
    unit.lifecycle.missed(0, "late", unit.clock)
    assert unit.record.state == "ready"


@pytest.mark.parametrize(
    "values",
    [
        {"state": "asleep"},
        {"wish": "sideways"},
        {"name": "other"},
        {"generation": "1"},
        {"restarts": ["yesterday"]},
        {"boots": [1]},
        {"unknown": 1},
    ],
)
def test_a_garbled_record_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(serve_unit.ServeError, match="the state file"):
        serve_lifecycle.UnitRecord.of(values, "qwen")


@pytest.mark.parametrize(
    "change",
    [
        {"state": 1},
        {"gate": [1, 1, "x"]},
        {"gate": "passed"},
        {"generation": True},
        {"clean": None},
        {"kernel": None},
        {"version": None},
    ],
)
def test_a_garbled_report_is_refused(change: dict[str, Any]) -> None:
    right = {"state": "idle", "generation": 0, "boot": "b", "clean": True, "leaving": False, "kernel": "", "detail": ""}
    right |= {"gate": None, "version": ""}
    skew = serve_lifecycle.ClockSkew(0.0, 0.01)
    serve_lifecycle.TetherReport.of(right, 0.0, skew)
    with pytest.raises(serve_unit.ServeError, match="the report has no valid"):
        serve_lifecycle.TetherReport.of(right | change, 0.0, skew)


# The files of the nodes


def test_a_node_with_files_of_another_version_is_a_refusal(unit: SteppedUnit) -> None:
    """As after an `apply` that was killed between two nodes."""
    unit.versions[1] = "0123456789abcdef"
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    unit.pass_by(8)
    assert (unit.record.state, unit.running) == ("held", {})
    assert "gate of spark2 (rank 1): its tether has another version of the unit's files" in unit.record.reason
    assert list(unit.record.failed_gates) == ["spark2"]
    unit.versions[1] = unit.unit.version
    unit.up()
    assert unit.record.state == "ready"


def test_the_gate_of_a_node_is_heard_before_its_version_is_judged(unit: SteppedUnit) -> None:
    """Files that are half written have another version, too, and the gate has the better reason."""
    unit.versions[1] = "0123456789abcdef"
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    unit.ask(1)
    assert unit.record.state == "gating"
    unit.ask(1)
    assert unit.record.state == "held"


def test_a_tether_that_is_older_than_versions_is_heard_and_starts_no_rank(unit: SteppedUnit) -> None:
    """Its report has no version. A keeper that refused it would wait until the limit of the gates, and not know why."""
    right = {"state": "idle", "generation": 0, "boot": "b", "clean": True, "leaving": False, "kernel": "", "detail": ""}
    report = serve_lifecycle.TetherReport.of({**right, "gate": None}, 0.0, serve_lifecycle.ClockSkew(0.0, 0.01))
    assert report.version == ""
    unit.unit = unit.lifecycle.unit = replace(unit.unit, version="0123456789abcdef")
    unit.versions = [unit.unit.version, report.version]
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    unit.pass_by(8)
    assert (unit.record.state, unit.running) == ("held", {})
    assert "gate of spark2 (rank 1): its tether has another version of the unit's files" in unit.record.reason


def test_former_files_that_have_no_version_start(unit: SteppedUnit) -> None:
    """As `recreate` puts them back after an upgrade: all nodes have the same, and none has a version."""
    assert unit.unit.version == ""
    unit.versions = ["", ""]
    unit.up()
    assert unit.record.state == "ready"


# The clocks of the nodes


@pytest.mark.parametrize(
    ("ahead", "bound", "text"),
    [
        (
            3.2,
            0.1,
            "gate of spark2 (rank 1): its clock is 3.2 s ahead of that of spark1, at most 1 s are allowed; `time",
        ),
        (
            -7200.0,
            0.1,
            "gate of spark2 (rank 1): its clock is 7200.0 s behind that of spark1, at most 1 s are allowed; ",
        ),
        (1.2, 0.1, "its clock is 1.2 s ahead of that of spark1"),
    ],
)
def test_a_clock_beyond_the_limit_is_a_refusal(unit: SteppedUnit, ahead: float, bound: float, text: str) -> None:
    unit.skews[1] = serve_lifecycle.ClockSkew(ahead, bound)
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    unit.pass_by(8)
    assert (unit.record.state, unit.running) == ("held", {})
    assert text in unit.record.reason
    assert unit.record.failed_gates["spark2"].startswith("its clock is ")


def test_a_clock_that_is_not_known_well_enough_is_asked_for_again(unit: SteppedUnit) -> None:
    unit.skews[1] = serve_lifecycle.ClockSkew(0.2, 2.5)
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    unit.pass_by(60)
    assert (unit.record.state, unit.running) == ("gating", {})
    unit.skews[1] = serve_lifecycle.ClockSkew(0.2, 0.1)
    unit.pass_by(4)
    assert unit.record.state == "starting"


def test_a_clock_that_is_never_known_is_a_refusal_with_its_figure(unit: SteppedUnit) -> None:
    unit.skews[1] = serve_lifecycle.ClockSkew(0.2, 2.5)
    assert unit.lifecycle.wished("up", False, unit.clock)[0]
    unit.pass_by(200)
    assert unit.record.state == "held"
    assert "spark2 (rank 1) answers so late that its clock is known to 2.5 s only" in unit.record.reason


def test_a_clock_is_not_asked_for_while_the_unit_runs(unit: SteppedUnit) -> None:
    """A clock that is set meanwhile ends no unit that serves."""
    unit.up()
    unit.skews[1] = serve_lifecycle.ClockSkew(30.0, 0.1)
    unit.pass_by(60)
    assert unit.record.state == "ready"


def test_the_skew_is_known_to_half_of_the_round_trip() -> None:
    skew = serve_lifecycle.ClockSkew.of(100.0, 101.0, 103.0)
    assert (skew.ahead, skew.bound) == (2.5, 0.5)
    for clock in (None, "12", True, [1.0]):
        with pytest.raises(serve_unit.ServeError, match="no valid clock"):
            serve_lifecycle.ClockSkew.of(100.0, 101.0, clock)


def test_a_unit_stays_busy_while_counters_rise_and_ready_while_completions_end(unit: SteppedUnit) -> None:
    unit.up()
    for busy in (False, True, True, False, False):
        unit.lifecycle.proved(1, 0.5, busy, unit.clock)
    assert [state for _, state, *_ in unit.record.transitions][-4:] == ["starting", "ready", "busy", "ready"]


def test_the_status_names_each_rank_and_the_age_of_its_report(unit: SteppedUnit) -> None:
    unit.up()
    found = unit.lifecycle.status(unit.clock + 1)
    assert (found["state"], found["generation"], found["misses"], found["unconfirmed"]) == ("ready", 1, 0, [])
    shown = [(one["node"], one["state"], one["generation"], one["age_s"]) for one in found["ranks"]]
    assert shown == [("spark1", "running", 1, 1.0), ("spark2", "running", 1, 1.0)]


@pytest.mark.parametrize(("later", "progress"), [(6.0, True), (5.0, False)])
def test_a_completion_without_an_answer_is_progress_when_a_counter_rose_meanwhile(
    unit: SteppedUnit, monkeypatch: pytest.MonkeyPatch, later: float, progress: bool
) -> None:
    def send(_: object, method: str, *__: object) -> tuple[int, bytes]:
        if method == "POST":
            raise serve_unit.ServeError("no answer within 60 s")
        return 200, f"{counter} {later}\n".encode()

    unit.up()
    counter = unit.unit.probe.counters[0]
    monkeypatch.setattr(serve_probe.ApiRequest, "send", send)
    prober = serve_keeper.Prober(unit.unit, unit.lifecycle, threading.Lock())
    assert prober._complete(1, 60.0, {counter: 5.0}) == progress
    assert (unit.record.state, unit.lifecycle.misses) == (("busy", 0) if progress else ("ready", 1))


def test_a_keeper_writes_each_state_to_its_file_and_its_log(tmp_path: Path) -> None:
    """The program alone, on loopback; no rank reports to it."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("1f" * 32)
    ranks = [{"node": f"spark{number}", "address": f"127.0.0.{number}"} for number in (1, 2)]
    ends = {end: {"address": "127.0.0.1", "port": free_port()} for end in ("head", "api")}
    file = written(tmp_path, {**MINIMAL, **ends, "ranks": ranks, "secret_file": str(secret)})
    program = [sys.executable, "-B", f"{FOLDER}/serve_keeper.py", file]
    log = tmp_path / "log"
    with log.open("wb") as output:
        keeper = subprocess.Popen([*program, "run", "--state", f"{tmp_path}/state"], stdout=output, stderr=output)
    try:
        while "the keeper listens at" not in log.read_text():
            assert keeper.poll() is None, log.read_text()
            time.sleep(0.05)
        assert subprocess.run([*program, "up"]).returncode == 0, log.read_text()
        saved = json.loads((tmp_path / "state/qwen.json").read_text())
    finally:
        keeper.kill()
        keeper.wait()
    assert (saved["state"], saved["generation"]) == ("gating", 1)
    assert "unit qwen, generation 1: gating: " in log.read_text()
