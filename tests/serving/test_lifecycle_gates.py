"""The gates of a start by the state machine alone: verdicts, versions of files, and the clocks of the nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.serving.serve_modules import serve_lifecycle, serve_unit
from tests.serving.stepped_unit import SteppedUnit, gating, report


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


def test_a_rank_that_lost_its_verdict_says_so_if_it_knows(unit: SteppedUnit) -> None:
    gating(unit)
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    for seconds in (6, 5):
        unit.clock += seconds
        report(unit, 0, state="running", generation=1)
        report(unit, 1, gate=(1, False, "disk full"))
    assert unit.record.reason == "spark2 (rank 1) did not start within 10 s: disk full"


@pytest.mark.parametrize("text", ["", "spark2: "])
def test_a_gate_that_fails_without_a_reason_lets_no_rank_start(unit: SteppedUnit, text: str) -> None:
    gating(unit)
    unit.lifecycle.reports.clear()
    report(unit, 0, gate=(1, True, ""))
    report(unit, 1, gate=(1, False, text))
    assert (unit.record.state, unit.record.cause) == ("held", "gate")
    assert unit.record.reason == "gate of spark2 (rank 1): failed without a reason"


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


def test_the_clock_may_be_off_by_its_limit(unit: SteppedUnit) -> None:
    gating(unit)
    unit.skews = [serve_lifecycle.ClockSkew(0.75, 0.25), serve_lifecycle.ClockSkew(-0.75, 0.25)]
    for rank in (0, 1):
        report(unit, rank, gate=(1, True, ""))
    assert unit.record.state == "starting"


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
