"""Which end of a unit is followed by a restart, by the state machine alone, with a clock of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.serve_modules import serve_lifecycle
from tests.serving.stepped_unit import SteppedUnit, gating


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
