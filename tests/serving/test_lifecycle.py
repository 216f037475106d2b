"""Which end of a unit is followed by a restart: the state machine alone, with a clock of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contact.nodes import free_port
from tests.serving.serve_modules import FOLDER, serve_lifecycle, serve_unit
from tests.serving.test_unit_file import MINIMAL, written


class SteppedUnit:
    """A unit of two ranks whose agents obey at once. `clock` is the monotonic clock, in seconds; that of the day is
    ahead of it by `step`.
    """

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.unit = serve_unit.load_unit(written(folder, MINIMAL | changes))
        self.clock = 1000.0
        self.step = 0.0
        self.full = self.anyway = False
        self.saved: dict[str, Any] = {}
        record = serve_lifecycle.UnitRecord("qwen")
        self.keep(record)
        self.running: dict[int, int] = {}
        self.gates: dict[int, int] = {}
        self.ended: set[int] = set()
        self.hung: set[int] = set()
        self.rest: dict[int, str] = {}
        """What the agent of a rank whose service has ended reports, where it is not idle."""
        self.kernel, self.remark = "", ""
        self.skews = [serve_lifecycle.ClockSkew(0.0, 0.01), serve_lifecycle.ClockSkew(0.0, 0.01)]
        self.versions = [self.unit.version, self.unit.version]
        self.boots = ["boot0", "boot1"]
        self.clean = [True, True]
        self.away: set[int] = set()

    def keep(self, record: Any) -> None:
        """Start a coordinator with this record."""
        self.lifecycle = serve_lifecycle.UnitLifecycle(
            self.unit, record, self.save, self.clock, lambda: self.clock + self.step
        )

    def save(self, values: dict[str, Any]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.saved = values

    def pass_by(self, seconds: float) -> None:
        """Let time pass; every agent asks every 2 s."""
        until = self.clock + seconds
        while self.clock < until:
            self.clock += 2
            for rank in {0, 1} - self.away:
                self.ask(rank)

    def ask(self, rank: int) -> str:
        state = "ended" if rank in self.ended else "running" if rank in self.running else self.rest.get(rank, "idle")
        if rank in self.hung:
            state = "starting"
        gate = (self.gates[rank], True, self.remark) if rank in self.gates else None
        report = serve_lifecycle.AgentReport(
            state=state,
            generation=self.running.get(rank, 0),
            boot=self.boots[rank],
            clean=self.clean[rank],
            leaving=False,
            detail="exit code 0",
            gate=gate,
            heard=self.clock,
            skew=self.skews[rank],
            kernel=self.kernel,
            version=self.versions[rank],
        )
        answer = self.lifecycle.reported(rank, report)
        self.anyway = "anyway" in answer
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
        assert self.lifecycle.set_desired_state("up", False, self.clock)[0]
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


@pytest.mark.parametrize("rest", ["stopping", "unknown"])
def test_a_unit_is_not_down_while_a_rank_is_not_empty(unit: SteppedUnit, rest: str) -> None:
    unit.up()
    unit.rest = {1: rest}
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    unit.pass_by(600)
    assert unit.record.state == "stopping"
    assert unit.lifecycle.status(unit.clock)["unconfirmed"] == ["spark2"]
    unit.rest = {}
    unit.pass_by(4)
    assert unit.record.state == "down"


@pytest.mark.parametrize("rest", ["stopping", "unknown"])
def test_a_unit_that_was_down_is_not_called_so_once_a_rank_is_not_empty(unit: SteppedUnit, rest: str) -> None:
    unit.pass_by(4)
    assert unit.lifecycle.set_desired_state("down", False, unit.clock) == (True, "unit qwen is down already")
    assert unit.lifecycle.status(unit.clock)["left"] == []
    unit.rest = {1: rest}
    unit.pass_by(4)
    assert unit.lifecycle.status(unit.clock)["left"] == ["spark2"]
    assert unit.lifecycle.set_desired_state("down", False, unit.clock) == (True, "unit qwen is stopping")
    unit.clock += 3600
    assert unit.lifecycle.status(unit.clock)["left"] == [], "a node that gives no report was empty before"


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
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    while unit.record.state != "starting":
        unit.ask(0)
        unit.ask(1)
    unit.gates.pop(0)  # its agent was restarted
    unit.pass_by(20)
    assert unit.record.state == "held"
    assert unit.record.reason.startswith("spark1 (rank 0) did not start within 10 s")
    assert not unit.running


def test_a_rank_that_is_not_running_for_longer_than_a_lease_ends_the_others(unit: SteppedUnit) -> None:
    unit.up()
    unit.hung.add(1)  # its agent reports, and the rank never comes to run
    unit.pass_by(10)
    assert unit.record.state == "ready"
    unit.pass_by(10)
    assert unit.record.state == "held"
    assert unit.record.reason.startswith("spark2 (rank 1) is starting for more than 10 s")
    assert not unit.running


def test_a_unit_is_not_ready_before_all_its_ranks_run(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    while unit.record.state != "starting":
        unit.ask(0)
        unit.ask(1)
    unit.lifecycle.proved(unit.record.generation, 0.5, False, unit.clock)
    assert unit.record.state == "starting"
    unit.prove()


# Time


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_how_long_a_unit_ran_is_not_asked_of_the_clock_of_the_day(unit: SteppedUnit, step: float) -> None:
    unit.up()
    unit.pass_by(500 if step > 0 else 2400)
    unit.step = step
    unit.ended.add(1)
    unit.pass_by(8)
    assert unit.record.state == ("held" if step > 0 else "starting")
    assert ("it ended within 600 s of its start" in unit.record.reason) == (step > 0)


def test_a_unit_was_ready_though_the_clock_was_set_back_while_it_loaded(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(8)
    unit.step = -7200.0
    unit.pass_by(92)
    unit.prove()
    assert 90 < unit.record.figures["ready_s"] <= 110
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.generation) == ("starting", 2)


def test_the_seconds_of_the_gates_are_not_those_of_a_clock_that_was_set(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.step = 86400.0
    unit.pass_by(8)
    assert 0 < unit.record.figures["gates_s"] <= 10


def test_a_restart_recorded_in_the_future_does_not_count(unit: SteppedUnit) -> None:
    unit.up()
    unit.record.restarts = [unit.clock + 1e6]
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.generation) == ("starting", 2)
    assert len(unit.record.restarts) == 1


def test_a_clock_that_is_set_gives_no_second_restart_while_the_coordinator_lives(unit: SteppedUnit) -> None:
    for step in (-1e6, 1e6):
        unit.up()
        unit.pass_by(700)
        unit.ended.add(1)
        unit.pass_by(8)
        assert unit.record.state == "starting"
        unit.prove()
        unit.step += step
        unit.pass_by(700)
        unit.ended.add(1)
        unit.pass_by(8)
        assert "not restarted: 1 restarts within 21600 s" in unit.record.reason


def test_a_start_by_the_operator_clears_the_budget(unit: SteppedUnit) -> None:
    unit.up()
    for state in ("starting", "held"):
        unit.pass_by(700)
        unit.ended.add(1)
        unit.pass_by(8)
        assert unit.record.state == state
        if state == "starting":
            unit.prove()
    unit.up()
    assert unit.record.restarts == []
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert unit.record.state == "starting"


def test_a_coordinator_that_came_back_knows_how_long_the_unit_ran_at_least(unit: SteppedUnit) -> None:
    """Also when the clock was set back while it was away."""
    unit.up()
    unit.step = -86400.0
    unit.keep(serve_lifecycle.UnitRecord.of(dict(unit.saved), "qwen"))
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.generation) == ("starting", 2)


def test_a_start_of_50_minutes_is_not_ended(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    for _ in range(50):
        unit.pass_by(60)
        unit.lifecycle.missed(1, "Connection refused", unit.clock)
    assert unit.record.state == "starting"
    unit.prove()
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    unit.pass_by(8)
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(8 + unit.unit.times.ready_limit)
    assert unit.record.reason.startswith("no correct completion within 5400 s")


# What is kept of the past


def test_the_reason_of_a_failure_outlives_days_of_load(unit: SteppedUnit) -> None:
    unit.up()
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    unit.prove()
    for busy in [True, False] * 50:
        unit.lifecycle.proved(2, 0.5, busy, unit.clock)
        unit.pass_by(2)
        assert unit.record.state == ("busy" if busy else "ready")
    assert any("spark2 (rank 1) ended without being asked to" in one[3] for one in unit.record.transitions)
    assert [one[1] for one in unit.record.transitions][-2:] == ["starting", "ready"]


def test_a_start_after_a_power_loss_while_it_stopped_waits_for_every_machine(unit: SteppedUnit) -> None:
    unit.up()
    unit.pass_by(700)
    assert unit.lifecycle.set_desired_state("down", False, unit.clock)[0]
    unit.away.add(1)
    unit.pass_by(30)
    assert unit.record.state == "stopping"
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.away.clear()
    unit.running.pop(1)
    unit.boots[1], unit.clean[1] = "boot1 again", False
    unit.pass_by(8)
    assert (unit.record.state, unit.running) == ("held", {})
    assert unit.record.reason == "spark2 ended without a clean shutdown while the unit ran"
    done, text = unit.lifecycle.set_desired_state("up", False, unit.clock)
    assert (done, "reboot spark1, or use --anyway" in text) == (False, True)
    unit.boots[0], unit.clean[1] = "boot0 again", True
    unit.pass_by(2)
    unit.up()
    assert unit.record.state == "ready"


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
        {"desired_state": "sideways"},
        {"name": "other"},
        {"generation": "1"},
        {"restarts": ["yesterday"]},
        {"restarts": [True]},
        {"boots": [1]},
        {"generation": True},
        {"started": True},
        {"figures": {"ready_s": "1"}},
        {"failed_gates": {"spark1": 1}},
        {"transitions": [1, 2]},
        {"transitions": [[1.0, "ready", 1]]},
        {"transitions": [[1.0, "ready", "1", "x"]]},
        {"transitions": [["now", "ready", 1, "x"]]},
        {"transitions": [[1.0, "ready", 1, 2]]},
        {"transitions": [[1.0, "ready", 1, "x", "y"]]},
        {"unplanned": [1]},
        {"figures": {"ready_s": True}},
    ],
)
def test_a_garbled_record_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(serve_unit.ServeError, match="the state file"):
        serve_lifecycle.UnitRecord.of(values, "qwen")


def test_a_record_of_another_release_is_read_with_what_it_has(unit: SteppedUnit) -> None:
    unit.up()
    for name in unit.saved:
        values = {key: value for key, value in unit.saved.items() if key not in (name,)} | {"of a later release": [1]}
        record = serve_lifecycle.UnitRecord.of(values, "qwen")
        default = getattr(serve_lifecycle.UnitRecord("qwen"), name)
        assert getattr(record, name) == default
        if name != "generation":
            assert record.generation == 1


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
        {"boot": 1},
        {"leaving": 0},
        {"detail": None},
        {"network": None},
        {"hang": 5},
        {"gate": [1, True]},
        {"gate": [True, True, "x"]},
        {"generation": "1"},
        {"rdma": []},
    ],
)
def test_a_garbled_report_is_refused(change: dict[str, Any]) -> None:
    right = {"state": "idle", "generation": 0, "boot": "b", "clean": True, "leaving": False, "kernel": "", "detail": ""}
    right |= {"gate": None, "version": ""}
    skew = serve_lifecycle.ClockSkew(0.0, 0.01)
    serve_lifecycle.AgentReport.of(right, 0.0, skew)
    with pytest.raises(serve_unit.ServeError, match="the report has no valid"):
        serve_lifecycle.AgentReport.of(right | change, 0.0, skew)


def test_a_report_is_taken_as_printable_lines(unit: SteppedUnit) -> None:
    printed = "a\nb" + "c" * 400
    message = {"state": "ended", "generation": 3, "boot": "b", "clean": False, "leaving": True, "kernel": printed}
    message |= {"detail": printed, "gate": [3, False, printed], "version": "v", "network": printed, "hang": printed}
    skew = serve_lifecycle.ClockSkew(0.5, 0.01)
    found = serve_lifecycle.AgentReport.of({**message, "rdma": {"d": 7}}, 12.0, skew)
    shown = "a b" + "c" * 294 + "..."
    assert (found.detail, found.kernel, found.hang, found.gate) == (shown, shown, shown, (3, False, shown))
    assert found.network == "a b" + "c" * 74 + "..."
    assert (found.state, found.generation, found.boot, found.clean, found.leaving) == ("ended", 3, "b", False, True)
    assert (found.heard, found.skew, found.version, found.rdma) == (12.0, skew, "v", {"d": 7})
    with pytest.raises(serve_unit.ServeError, match=r"^the report has no valid state, boot, clean$"):
        serve_lifecycle.AgentReport.of({**message, "state": 1, "boot": 2, "clean": 3}, 0.0, skew)


# What an agent is reported, and when the unit ends


def report(unit: SteppedUnit, rank: int, **changes: Any) -> dict[str, Any]:
    """Have a rank report this, now; the answer."""
    values = {"state": "idle", "generation": 0, "boot": f"boot{rank}", "clean": True, "leaving": False, "detail": ""}
    values |= {"gate": None, "heard": unit.clock, "skew": unit.skews[rank], "kernel": "", "version": ""}
    return unit.lifecycle.reported(rank, serve_lifecycle.AgentReport(**{**values, **changes}))


def gating(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", False, unit.clock) == (True, "unit qwen is starting: generation 1")
    assert unit.record.state == "gating"


@pytest.mark.parametrize(
    ("state", "order"),
    [("idle", "gate"), ("gating", "gate"), ("stopping", "stop"), ("unknown", "stop"), ("running", "stop")],
)
def test_only_a_rank_at_rest_is_asked_to_run_its_gate(unit: SteppedUnit, state: str, order: str) -> None:
    gating(unit)
    assert report(unit, 1, state=state) == {"order": order, "generation": 1}


@pytest.mark.parametrize(
    ("state", "generation", "order"),
    [
        ("idle", 0, "run"),
        ("idle", 1, "stop"),
        ("starting", 1, "run"),
        ("running", 1, "run"),
        ("unknown", 0, "stop"),
        ("unknown", None, "stop"),
    ],
)
def test_a_rank_of_the_running_generation_and_one_that_may_begin_are_asked_to_run(
    unit: SteppedUnit, state: str, generation: int | None, order: str
) -> None:
    gating(unit)
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert unit.record.state == "starting"
    assert report(unit, 1, state=state, generation=generation)["order"] == order


def test_what_nccl_says_is_asked_for_in_the_start_of_that_generation_only(unit: SteppedUnit) -> None:
    gating(unit)
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert "witness" not in report(unit, 0)
    unit.lifecycle.witness = 1
    assert report(unit, 0)["witness"] is True
    unit.running = {0: 1, 1: 1}
    unit.prove()
    assert "witness" not in report(unit, 0, state="running", generation=1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"state": "ended", "detail": "exit code 1"}, "spark2 (rank 1) ended without being asked to: exit code 1"),
        ({"state": "ended"}, "spark2 (rank 1) ended without being asked to: no reason reported"),
        ({"state": "stopping", "detail": "by hand"}, "spark2 (rank 1) stopped: by hand"),
        ({"state": "idle"}, "spark2 (rank 1) stopped: no reason reported"),
        ({"boot": "another"}, "the machine of spark2 (rank 1) restarted"),
        ({"state": "ended", "boot": "another"}, "the machine of spark2 (rank 1) restarted"),
        ({"generation": None}, "spark2 (rank 1) runs outside of generation 1"),
        ({"state": "starting", "generation": 0}, "spark2 (rank 1) runs outside of generation 1"),
        ({"state": "unknown", "generation": 0}, ""),
        ({"state": "starting"}, ""),
    ],
)
def test_what_a_rank_reports_ends_a_unit_that_serves_with_its_reason(
    unit: SteppedUnit, change: dict[str, Any], reason: str
) -> None:
    unit.up()
    report(unit, 1, **{"state": "running", "generation": 1, **change})
    assert (unit.record.state, unit.record.cause) == (("stopping", "failed") if reason else ("ready", "failed"))
    assert unit.record.reason == (reason or "a completion gave the known answer")


def test_ranks_that_are_lost_are_named_together_after_those_that_ended(unit: SteppedUnit) -> None:
    unit.up()
    unit.clock += 10
    unit.lifecycle.tick(unit.clock)
    assert unit.record.state == "ready", "a lease is whole until it is over"
    unit.clock += 0.1
    unit.lifecycle.tick(unit.clock)
    assert unit.record.reason == "no report from spark1 (rank 0), spark2 (rank 1) for 10 s"


def test_a_rank_that_ended_comes_before_one_that_is_lost(unit: SteppedUnit) -> None:
    unit.up()
    unit.clock += 11
    report(unit, 1, state="ended", generation=1, detail="x")
    assert unit.record.reason == (
        "spark2 (rank 1) ended without being asked to: x; no report from spark1 (rank 0) for 10 s"
    )


def test_a_rank_that_lost_its_verdict_says_so_if_it_knows(unit: SteppedUnit) -> None:
    gating(unit)
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    for seconds in (6, 5):
        unit.clock += seconds
        report(unit, 0, state="running", generation=1)
        report(unit, 1, gate=(1, False, "disk full"))
    assert unit.record.reason == "spark2 (rank 1) did not start within 10 s: disk full"


# Gates


def test_each_gate_that_fails_is_named_with_its_reason_once(unit: SteppedUnit) -> None:
    gating(unit)
    unit.lifecycle.reports.clear()
    report(unit, 0, gate=(1, True, ""))
    assert unit.record.state == "gating"
    report(unit, 1, gate=(1, False, "spark2: no image; run `sparkrack apply`"))
    assert (unit.record.state, unit.record.cause) == ("held", "gate")
    assert unit.record.reason == "gate of spark2 (rank 1): no image; run `sparkrack apply`"
    assert unit.record.failed_gates == {"spark2": "no image; run `sparkrack apply`"}


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, "spark2 (rank 1) is idle"),
        ({"state": "gating"}, "spark2 (rank 1) is gating"),
        ({"state": "unknown", "detail": "systemctl does not answer"}, "is unknown (systemctl does not answer)"),
        ({"state": "unknown"}, "spark2 (rank 1) is unknown"),
        ({"gate": (1, True, ""), "leaving": True}, "spark2 (rank 1) is idle"),
        ({"gate": (1, True, ""), "state": "stopping"}, "spark2 (rank 1) is stopping"),
        (None, "does not report (`journalctl -u sparkrack-serve-qwen-agent` on spark2 may say why)"),
    ],
)
def test_a_gate_without_a_verdict_is_named_when_its_time_is_over(
    unit: SteppedUnit, change: dict[str, Any] | None, shown: str
) -> None:
    gating(unit)
    begun = unit.clock
    while unit.record.state == "gating":
        assert unit.clock <= begun + 181
        unit.clock += 1
        report(unit, 0, gate=(1, True, ""))
        if change is not None and unit.record.state == "gating":
            report(unit, 1, **change)
    assert unit.clock == begun + 181
    assert unit.record.state == "held"
    assert unit.record.reason.startswith("no verdict of every gate within 180 s: spark2 (rank 1) ")
    assert unit.record.reason.endswith(shown)
    assert unit.record.cause == "gate"


def test_a_verdict_of_another_generation_opens_no_gate(unit: SteppedUnit) -> None:
    gating(unit)
    for rank in (0, 1):
        report(unit, rank, gate=(2, True, ""))
    assert unit.record.state == "gating"


@pytest.mark.parametrize("seen", [1, 7])
def test_a_generation_is_later_than_any_that_a_rank_has_seen(unit: SteppedUnit, seen: int) -> None:
    gating(unit)
    answer = report(unit, 1, generation=seen, gate=(1, True, ""))
    assert answer == {"order": "gate", "generation": seen + 1}
    assert unit.saved["generation"] == seen + 1


def test_the_clock_may_be_off_by_its_limit(unit: SteppedUnit) -> None:
    gating(unit)
    unit.skews = [serve_lifecycle.ClockSkew(0.75, 0.25), serve_lifecycle.ClockSkew(-0.75, 0.25)]
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert unit.record.state == "starting"


def test_a_start_records_boots_and_figures(unit: SteppedUnit) -> None:
    gating(unit)
    unit.record.figures, unit.record.remark, unit.record.proven = {"old": 1.0}, "old", 5.0
    unit.clock += 3.26
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert (unit.record.boots, unit.record.figures) == (["boot0", "boot1"], {"gates_s": 3.3})
    assert (unit.record.started, unit.record.proven, unit.record.remark) == (unit.clock, 0.0, "")
    unit.running = {0: 1, 1: 1}
    unit.pass_by(20)
    unit.lifecycle.proved(1, 0.51239, False, unit.clock, beside=["b", "c"], remark="sockets")
    assert unit.record.figures == {"gates_s": 3.3, "ready_s": 20.0, "completion_s": 0.512}
    assert (unit.record.proven, unit.record.remark) == (unit.clock, "sockets")
    assert unit.record.reason == "a completion gave the known answer, b, c; remark: sockets"
    unit.lifecycle.proved(1, 9.0, True, unit.clock, why="tokens")
    assert (unit.record.state, unit.record.reason) == ("busy", "tokens; remark: sockets")
    assert unit.record.figures["completion_s"] == 0.512


# DesiredStates


def test_a_desired_state_is_answered_with_the_state_of_the_unit(unit: SteppedUnit) -> None:
    gating(unit)
    assert unit.lifecycle.set_desired_state("up", False, unit.clock) == (True, "unit qwen is gating")
    unit.prove()
    unit.record.restarts = [1.0]
    assert unit.lifecycle.set_desired_state("up", False, unit.clock) == (True, "unit qwen is ready")
    assert unit.saved["restarts"] == []
    assert unit.lifecycle.set_desired_state("down", False, unit.clock) == (True, "unit qwen is stopping")
    assert (unit.record.reason, unit.record.cause) == ("asked to stop", "asked")
    count = len(unit.record.transitions)
    assert unit.lifecycle.set_desired_state("up", False, unit.clock) == (True, "unit qwen is stopping")
    assert unit.saved["desired_state"] == "up"
    assert unit.lifecycle.set_desired_state("down", False, unit.clock) == (True, "unit qwen is stopping")
    assert (unit.saved["desired_state"], len(unit.record.transitions)) == ("down", count)
    unit.pass_by(8)
    assert unit.lifecycle.set_desired_state("down", False, unit.clock) == (True, "unit qwen is down already")


def test_a_unit_that_is_held_goes_down_when_it_is_asked_to(unit: SteppedUnit) -> None:
    gating(unit)
    report(unit, 1, gate=(1, False, "no"))
    assert unit.record.state == "held"
    assert unit.lifecycle.set_desired_state("down", False, unit.clock) == (True, "unit qwen is stopping")
    unit.pass_by(8)
    assert unit.record.state == "down"


def test_a_unit_that_was_asked_to_start_while_it_stopped_starts_then(unit: SteppedUnit) -> None:
    unit.up()
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    unit.lifecycle.set_desired_state("up", False, unit.clock)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.generation, unit.record.restarts) == ("starting", 2, [])
    assert [one[3] for one in unit.record.transitions if one[1] == "gating"] == ["asked to start"] * 2


# Answers that are wrong, and completions that fail


def test_as_many_wrong_answers_as_misses_end_a_start_and_no_other_state(unit: SteppedUnit) -> None:
    gating(unit)
    unit.lifecycle.refused(1, "early", unit.clock)
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert unit.record.state == "starting"
    unit.lifecycle.refused(0, "of before", unit.clock)
    unit.lifecycle.refused(1, "it is empty", unit.clock)
    unit.lifecycle.missed(1, "Connection refused", unit.clock)
    assert (unit.lifecycle.misses, unit.lifecycle.last_probe) == (0, "Connection refused")
    unit.lifecycle.refused(1, "it is empty", unit.clock)
    assert (unit.record.state, unit.lifecycle.misses) == ("starting", 1)
    unit.lifecycle.refused(1, "it is still empty", unit.clock)
    assert (unit.record.state, unit.record.reason) == ("stopping", "it is still empty")
    assert unit.record.cause == "failed"


def test_a_miss_of_a_unit_that_is_stopped_counts_nothing(unit: SteppedUnit) -> None:
    unit.up()
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    for _ in range(3):
        unit.lifecycle.missed(1, "x", unit.clock)
        unit.lifecycle.proved(1, 0.5, False, unit.clock)
    assert (unit.record.state, unit.lifecycle.misses) == ("stopping", 0)


def test_a_start_whose_probe_is_at_fault_is_not_ended_by_its_limit(unit: SteppedUnit) -> None:
    gating(unit)
    unit.pass_by(8)
    unit.lifecycle.probe_fault = "no key"
    unit.pass_by(6000)
    assert unit.record.state == "starting"
    assert unit.lifecycle.status(unit.clock)["probe_fault"] == "no key"
    unit.lifecycle.probe_fault = ""
    unit.pass_by(2)
    assert unit.record.reason.startswith("no correct completion within 5400 s: no completion was tried")


def test_a_fault_of_the_probe_ends_with_the_unit(unit: SteppedUnit) -> None:
    unit.up()
    unit.lifecycle.probe_fault = "no key"
    unit.lifecycle.proved(1, 0.0, True, unit.clock)
    assert unit.lifecycle.probe_fault == "no key"
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    assert unit.lifecycle.probe_fault == ""


# After the stop


@pytest.mark.parametrize(
    ("boot", "clean", "state", "reason"),
    [
        ("hold", [True, True], "held", "spark2 rebooted, and boot is hold"),
        ("start", [True, True], "starting", ""),
        ("start", [True, False], "held", "spark2 ended without a clean shutdown while the unit ran"),
        ("hold", [False, True], "held", "spark2 rebooted, and boot is hold"),
    ],
)
def test_a_machine_that_was_booted_is_followed_by_a_start_only_after_a_clean_shutdown(
    tmp_path: Path, boot: str, clean: list[bool], state: str, reason: str
) -> None:
    unit = SteppedUnit(tmp_path, boot=boot)
    unit.up()
    unit.pass_by(700)
    unit.boots[1], unit.clean = "another", clean
    unit.running.pop(1)
    unit.pass_by(8)
    assert unit.record.state == state
    if reason:
        assert (unit.record.reason, unit.record.cause) == (reason, "machine")
    else:
        reasons = [one[3] for one in unit.record.transitions if one[1] == "gating"]
        assert reasons[-1] == "spark2 rebooted after a clean shutdown"
    assert unit.record.unplanned == (["boot0", "boot1"] if False in clean and "clean" in reason else [])


def test_a_unit_that_was_never_ready_is_not_restarted(unit: SteppedUnit) -> None:
    gating(unit)
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(8)
    assert unit.record.state == "held"
    assert unit.record.reason.endswith("exit code 0; not restarted: it was never ready")


@pytest.mark.parametrize(("times", "ran", "restarted"), [(1, 600, True), (1, 598, False), (0, 700, False)])
def test_a_restart_needs_the_uptime_and_a_budget(tmp_path: Path, times: int, ran: int, restarted: bool) -> None:
    unit = SteppedUnit(tmp_path, restart={"times": times})
    unit.up()
    begun = unit.lifecycle._begun or 0.0
    unit.pass_by(ran - (unit.clock - begun) - 2)
    unit.ended.add(1)
    unit.pass_by(2)
    assert unit.record.state == "stopping"
    assert unit.clock == begun + ran
    unit.pass_by(8)
    assert (unit.record.state == "starting") is restarted
    if restarted:
        printed = [one[3] for one in unit.record.transitions if one[1] == "gating"][-1]
        assert printed == "restart 1 of 1: spark2 (rank 1) ended without being asked to: exit code 0"
    elif not times:
        assert unit.record.reason.endswith("; not restarted: 0 restarts within 21600 s")


def test_a_coordinator_that_came_back_takes_the_longer_of_what_it_knows(unit: SteppedUnit) -> None:
    unit.up()
    unit.pass_by(700)
    unit.keep(serve_lifecycle.UnitRecord.of(dict(unit.saved), "qwen"))
    unit.ended.add(1)
    unit.pass_by(8)
    assert (unit.record.state, unit.record.generation) == ("starting", 2), "it ran before this coordinator"


@pytest.mark.parametrize(("age", "restarted"), [(21600, True), (21598, False)])
def test_a_restart_of_an_earlier_coordinator_counts_for_its_time(unit: SteppedUnit, age: int, restarted: bool) -> None:
    unit.up()
    unit.pass_by(700)
    unit.ended.add(1)
    unit.pass_by(2)
    assert unit.record.state == "stopping"
    while unit.record.state == "stopping":
        unit.record.restarts = [unit.clock + 2 - age]
        unit.pass_by(2)
    assert (unit.record.state == "gating") is restarted


def test_20_transitions_are_kept_and_each_has_its_time_and_generation(unit: SteppedUnit) -> None:
    unit.clock = 1000.12345
    for _ in range(15):
        unit.up()
        unit.lifecycle.set_desired_state("down", False, unit.clock)
        unit.pass_by(8)
    kept = unit.saved["transitions"]
    assert len(kept) == 20
    assert [one[1] for one in kept[-5:]] == ["gating", "starting", "ready", "stopping", "down"]
    assert kept[-5][2] == 15
    assert kept[-1][0] == round(unit.saved["since"], 3) != unit.saved["since"]


def test_a_disk_without_words_for_its_fault_is_reported_too(unit: SteppedUnit) -> None:
    def fails(_: object) -> None:
        raise OSError("worn out")

    unit.lifecycle._save = fails
    unit.lifecycle.set_desired_state("up", False, unit.clock)
    assert unit.lifecycle.status(unit.clock)["unsaved"] == "worn out"


def test_the_status_has_what_is_known_beside_the_record(unit: SteppedUnit) -> None:
    found = unit.lifecycle.status(unit.clock)
    assert [one["state"] for one in found["ranks"]] == ["unknown", "unknown"]
    assert (found["ranks"][1]["age_s"], found["unconfirmed"], found["left"]) == (None, ["spark1", "spark2"], [])
    report(unit, 0, state="idle", detail="x")
    report(unit, 1, state="unknown")
    unit.clock += 10.04
    unit.step = 0.12345
    found = unit.lifecycle.status(unit.clock)
    assert found["ranks"][0] == {
        "rank": 0,
        "node": "spark1",
        "state": "unknown",
        "generation": 0,
        "age_s": 10.0,
        "detail": "x",
    }
    assert found["unconfirmed"] == ["spark1", "spark2"]
    assert (found["clock"], found["version"], found["name"]) == (round(unit.clock + unit.step, 3), "", "qwen")
    unit.clock -= 0.04
    found = unit.lifecycle.status(unit.clock)
    assert (found["unconfirmed"], found["left"]) == (["spark2"], ["spark2"])
    report(unit, 0, leaving=True)
    assert unit.lifecycle.status(unit.clock)["unconfirmed"] == ["spark1", "spark2"], "its machine shuts down"


# The files of the nodes


def test_a_node_with_files_of_another_version_is_a_refusal(unit: SteppedUnit) -> None:
    """As after an `apply` that was killed between two nodes."""
    unit.versions[1] = "0123456789abcdef"
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(8)
    assert (unit.record.state, unit.running) == ("held", {})
    assert "gate of spark2 (rank 1): its agent has another version of the unit's files" in unit.record.reason
    assert list(unit.record.failed_gates) == ["spark2"]
    unit.versions[1] = unit.unit.version
    unit.up()
    assert unit.record.state == "ready"


def test_the_gate_of_a_node_is_heard_before_its_version_is_judged(unit: SteppedUnit) -> None:
    """Files that are half written have another version, too, and the gate has the better reason."""
    unit.versions[1] = "0123456789abcdef"
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.ask(1)
    assert unit.record.state == "gating"
    unit.ask(1)
    assert unit.record.state == "held"


def test_an_agent_that_is_older_than_versions_is_heard_and_starts_no_rank(unit: SteppedUnit) -> None:
    """Its report has no version. A coordinator that refused it would wait until the limit of the gates, and not know
    why."""
    right = {"state": "idle", "generation": 0, "boot": "b", "clean": True, "leaving": False, "kernel": "", "detail": ""}
    report = serve_lifecycle.AgentReport.of({**right, "gate": None}, 0.0, serve_lifecycle.ClockSkew(0.0, 0.01))
    assert report.version == ""
    unit.unit = unit.lifecycle.unit = replace(unit.unit, version="0123456789abcdef")
    unit.versions = [unit.unit.version, report.version]
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(8)
    assert (unit.record.state, unit.running) == ("held", {})
    assert "gate of spark2 (rank 1): its agent has another version of the unit's files" in unit.record.reason


def test_previous_files_that_have_no_version_start(unit: SteppedUnit) -> None:
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
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(8)
    assert (unit.record.state, unit.running) == ("held", {})
    assert text in unit.record.reason
    assert unit.record.failed_gates["spark2"].startswith("its clock is ")


def test_a_clock_that_is_not_known_well_enough_is_asked_for_again(unit: SteppedUnit) -> None:
    unit.skews[1] = serve_lifecycle.ClockSkew(0.2, 2.5)
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(60)
    assert (unit.record.state, unit.running) == ("gating", {})
    unit.skews[1] = serve_lifecycle.ClockSkew(0.2, 0.1)
    unit.pass_by(4)
    assert unit.record.state == "starting"


def test_a_clock_that_is_never_known_is_a_refusal_with_its_figure(unit: SteppedUnit) -> None:
    unit.skews[1] = serve_lifecycle.ClockSkew(0.2, 2.5)
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
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


def test_what_gates_remark_is_in_the_reason_of_the_start(unit: SteppedUnit) -> None:
    unit.remark = "CUDA's free memory is unknown: the node has no libcuda.so.1"
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(8)
    first, second = (rank.node for rank in unit.unit.ranks)
    assert unit.record.state == "starting"
    assert unit.record.reason == f"all gates passed; {first}: {unit.remark}; {second}: {unit.remark}"


def test_gates_are_asked_anyway_until_the_next_desired_state(unit: SteppedUnit) -> None:
    assert unit.lifecycle.set_desired_state("up", True, unit.clock)[0]
    unit.pass_by(2)
    assert unit.anyway
    assert unit.saved["anyway"], "a coordinator that starts again asks in the same way"
    unit.prove()
    unit.lifecycle.set_desired_state("down", False, unit.clock)
    unit.pass_by(60)
    assert unit.record.state == "down"
    assert unit.lifecycle.set_desired_state("up", False, unit.clock)[0]
    unit.pass_by(2)
    assert not unit.anyway


def test_a_unit_stays_busy_while_counters_rise_and_ready_while_completions_end(unit: SteppedUnit) -> None:
    unit.up()
    states = []
    for busy in (False, True, True, False, False):
        unit.lifecycle.proved(1, 0.5, busy, unit.clock)
        states.append(unit.record.state)
    assert states == ["ready", "busy", "busy", "ready", "ready"]


def test_the_status_names_each_rank_and_the_age_of_its_report(unit: SteppedUnit) -> None:
    unit.up()
    found = unit.lifecycle.status(unit.clock + 1)
    assert (found["state"], found["generation"], found["misses"], found["unconfirmed"]) == ("ready", 1, 0, [])
    shown = [(one["node"], one["state"], one["generation"], one["age_s"]) for one in found["ranks"]]
    assert shown == [("spark1", "running", 1, 1.0), ("spark2", "running", 1, 1.0)]


def test_a_coordinator_writes_each_state_to_its_file_and_its_log(tmp_path: Path) -> None:
    """The program alone, on loopback; no rank reports to it."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("1f" * 32)
    ranks = [{"node": f"spark{number}", "address": f"127.0.0.{number}"} for number in (1, 2)]
    ends = {end: {"address": "127.0.0.1", "port": free_port()} for end in ("head", "api")}
    file = written(tmp_path, {**MINIMAL, **ends, "ranks": ranks, "secret_file": str(secret)})
    program = [sys.executable, "-B", f"{FOLDER}/serve_coordinator.py", file]
    log = tmp_path / "log"
    with log.open("wb") as output:
        coordinator = subprocess.Popen([*program, "run", "--state", f"{tmp_path}/state"], stdout=output, stderr=output)
    try:
        while "the coordinator listens at" not in log.read_text():
            assert coordinator.poll() is None, log.read_text()
            time.sleep(0.05)
        assert subprocess.run([*program, "up"]).returncode == 0, log.read_text()
        saved = json.loads((tmp_path / "state/qwen.json").read_text())
    finally:
        coordinator.kill()
        coordinator.wait()
    assert (saved["state"], saved["generation"]) == ("gating", 1)
    assert "unit qwen, generation 1: gating: " in log.read_text()
