"""What `sparkrack apply` prints as JSON and keeps as its journal, however it ends: always what its models say."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from sparkrack.engine.apply_result import ApplyResult
from sparkrack.engine.journal import EVENTS, HostError, Line, OperationFinished, RunFinished, RunStarted
from tests.unit.cli.apply_cases import CASES, Runs
from tests.unit.cli.rack_folder import NAMES, World
from tests.unit.cli.test_apply_signals import FIRST, Middle, until

INT, TERM, KILL = signal.SIGINT, signal.SIGTERM, signal.SIGKILL
LINE: TypeAdapter[Line] = TypeAdapter(Line)

ENDS: Mapping[str, tuple[str | None, Mapping[str, str]]] = {
    "all": ("done", {}),
    "json": ("done", {}),
    "quiet": ("done", {}),
    "one": ("done", {}),
    "canary fails": ("failed", {"spark1": "failed"}),
    "fails": ("failed", {"spark2": "failed"}),
    "bug": ("failed", {"spark2": "failed"}),
    "late": ("failed", {"spark2": "refused"}),
    "creeps": ("failed", {"spark2": "refused"}),
    "canary creeps": ("failed", {"spark1": "refused"}),
    "lock goes": ("done", {}),
    "disk full": (None, {}),
    "git": ("done", {}),
    "yes": ("done", {}),
}
"""The runs that began: what came of each (None: its journal has no end), and what went wrong on which machine."""


def kept(world: World) -> list[Line]:
    """The whole journal; raises ValidationError when a line is none."""
    (path,) = world.journals
    lines = [LINE.validate_json(line) for line in path.read_bytes().splitlines()]
    assert isinstance(lines[0], RunStarted)
    assert {line.run for line in lines} == {path.stem}
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    assert not [line for line in lines[1:] if isinstance(line, RunStarted)]
    assert not [line for line in lines[:-1] if isinstance(line, RunFinished)]
    return lines


def test_these_are_all_that_began(applied: Runs) -> None:
    assert set(ENDS) == {name for name, (world, _) in applied.items() if world.journals}


@pytest.mark.parametrize("name", ENDS)
def test_every_line_is_what_its_model_says(name: str, applied: Runs) -> None:
    result, faults = ENDS[name]
    last = kept(applied[name][0])[-1]
    assert isinstance(last, RunFinished) == (result is not None)
    if isinstance(last, RunFinished):
        assert (last.result, last.failed, last.in_progress) == (result, tuple(faults), {})


def test_all_kinds_of_lines_were_seen(applied: Runs) -> None:
    lines = {name: kept(applied[name][0]) for name in ENDS}
    assert {line.event for found in lines.values() for line in found} == set(EVENTS)
    assert [line.host for line in lines["bug"] if isinstance(line, HostError)] == ["spark2"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "--json" in case.words])
def test_what_is_printed_is_what_its_model_says(name: str, applied: Runs) -> None:
    world, ended = applied[name]
    report = ApplyResult.model_validate_json(ended.stdout)
    assert report.code == ended.code
    if name == "nothing-json":
        assert (report, world.journals) == (ApplyResult(result="nothing to do"), [])
        return
    (path,) = world.journals
    assert (report.run, report.journal) == (path.stem, str(path))
    result, faults = ENDS[name]
    assert report.result == result
    assert [state.name for state in report.hosts] == list(NAMES)
    assert {state.name: state.fault for state in report.hosts if state.fault} == faults
    steps = [line for line in kept(world) if isinstance(line, OperationFinished) and line.result == "changed"]
    assert [state.changed for state in report.hosts] == [sum(step.host == name for step in steps) for name in NAMES]


def test_a_fault_of_the_lock_is_not_a_success(applied: Runs) -> None:
    report = ApplyResult.model_validate_json(applied["lock goes"][1].stdout)
    assert (report.result, len(report.faults), report.code) == ("done", 1, 1)


@pytest.mark.parametrize(
    ("signals", "result", "in_progress"),
    [
        ((INT,), "stopped", ()),
        ((INT, TERM), "interrupted", ("spark2", "spark3")),
        ((KILL,), None, ()),
    ],
    ids=["interrupted", "interrupted", "killed"],
)
def test_a_run_that_another_user_ends(
    signals: tuple[int, ...], result: str | None, in_progress: tuple[str, ...], tmp_path: Path
) -> None:
    run = Middle(tmp_path)
    for number in signals:
        run.send(number)
        if number == INT:
            until(lambda: FIRST in run.text)
    if result == "stopped":
        run.go()
    run.end()
    run.go()
    last = kept(run.world)[-1]
    if result is None:
        assert not isinstance(last, RunFinished)
    else:
        assert isinstance(last, RunFinished)
        assert (last.result, tuple(sorted(last.in_progress))) == (result, in_progress)
