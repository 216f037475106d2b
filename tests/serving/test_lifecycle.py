"""The states of a unit: how it starts, is ready, is held, ends and goes down, by the state machine alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving.stepped_unit import SteppedUnit, gating, report


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


@pytest.mark.parametrize("seen", [1, 7])
def test_a_generation_is_later_than_any_that_a_rank_has_seen(unit: SteppedUnit, seen: int) -> None:
    gating(unit)
    answer = report(unit, 1, generation=seen, gate=(1, True, ""))
    assert answer == {"order": "gate", "generation": seen + 1}
    assert unit.saved["generation"] == seen + 1


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


def test_a_unit_stays_busy_while_counters_rise_and_ready_while_completions_end(unit: SteppedUnit) -> None:
    unit.up()
    states = []
    for busy in (False, True, True, False, False):
        unit.lifecycle.proved(1, 0.5, busy, unit.clock)
        states.append(unit.record.state)
    assert states == ["ready", "busy", "busy", "ready", "ready"]
