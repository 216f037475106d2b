"""`serve use`: what is refused before any connection, and what `serve status` says of a slot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from core.model import load
from serving.options import served_units
from sparkrack.cli.main import sparkrack
from sparkrack.serving.coordinator import CoordinatorError, CoordinatorStatus, UnitAbsentError
from sparkrack.serving.unit_status import SlotStatus, build_serve_status, next_command
from tests.unit.model.serving_racks import put, text, unit


def answer(name: str, state: str, asked: str) -> CoordinatorStatus:
    values: dict[str, Any] = {"name": name, "desired_state": asked, "state": state, "reason": "x", "generation": 1}
    values |= {"since": 0.0, "restarts": (), "figures": {}, "failed_gates": {}, "transitions": (), "clock": 1.0}
    ranks = [{"rank": number, "node": f"n{number}", "state": "idle", "age_s": 1.0} for number in (0, 1)]
    return CoordinatorStatus.model_validate({**values, "unsaved": "", "ranks": ranks, "unconfirmed": ()})


def slot(folder: Path, one: object, two: object, declared: str) -> tuple[SlotStatus, list[str]]:
    units = {name: unit(slot="main", state="up" if name == declared else "down") for name in ("one", "two")}
    rack = load(put(folder, text(units)))
    answers: dict[str, Any] = {"one": one, "two": two}
    found = build_serve_status(rack, served_units(rack).values(), answers)
    return found.slots[0], next_command(found)


UP, DOWN, HELD = ("ready", "up"), ("down", "down"), ("held", "up")


@pytest.mark.parametrize(
    ("one", "two", "declared", "up", "reason", "then"),
    [
        (UP, DOWN, "one", ("one",), "", ["status"]),
        (DOWN, DOWN, "none", (), "", ["status"]),
        (DOWN, UP, "one", ("two",), "rack.yaml has one up, and two is: a change was not", ["serve", "use", "two"]),
        (DOWN, UP, "none", ("two",), "rack.yaml has none up, and two is: a change was not", ["serve", "use", "two"]),
        (UP, UP, "one", ("one", "two"), "rack.yaml has one up, and one, two are: a change", ["serve", "use", "one"]),
        (DOWN, DOWN, "one", (), "no unit is up, and rack.yaml has one up: `sparkrack serve use one` starts it", None),
        (("stopping", "down"), DOWN, "two", (), "no unit is up (one is being stopped), and rack.yaml has two", None),
        (HELD, DOWN, "one", (), "", ["serve", "logs", "one"]),
    ],
)
def test_a_slot_shows_how_it_differs_from_rack_yaml(
    tmp_path: Path,
    one: tuple[str, str],
    two: tuple[str, str],
    declared: str,
    up: tuple[str, ...],
    reason: str,
    then: list[str] | None,
) -> None:
    found, command = slot(tmp_path, answer("one", *one), answer("two", *two), declared)
    assert found.up == up
    assert found.reason.startswith(reason)
    assert bool(found.reason) == bool(reason)
    assert command == (then or ["serve", "use", declared])


@pytest.mark.parametrize("fault", [UnitAbsentError("n0: no files"), CoordinatorError("n0: no answer")])
def test_a_slot_of_which_a_unit_is_unknown_names_no_unit(tmp_path: Path, fault: CoordinatorError) -> None:
    found, _ = slot(tmp_path, fault, answer("two", *DOWN), "two")
    none = "no unit is up, and rack.yaml has two up: `sparkrack serve use two` starts it"
    assert found.reason == (none if isinstance(fault, UnitAbsentError) else "which unit is up is unknown")


def test_a_unit_without_a_slot_is_refused(tmp_path: Path) -> None:
    file = put(tmp_path, text({"one": unit()}))
    done = CliRunner().invoke(sparkrack, ["serve", "use", "one", "--rack", str(file)])
    assert (done.exit_code, "unit one has no slot; `sparkrack serve start one` starts it" in done.output) == (1, True)
