"""Runs that are kept on the operator's machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from core.util.event import EventKind
from sparkrack.drift import history
from sparkrack.drift.compare import compare_runs
from sparkrack.drift.findings import Drift, drift_of
from tests.unit.drift.plans import MADE, MIXED, machine, plan

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sparkrack/lab/drift"


def kept(*ages: timedelta) -> list[str]:
    """Runs of these ages; their names."""
    return [history.store_run(drift_of(plan(machine("spark1"), made=NOW - age))).stem for age in ages]


def test_a_run_is_kept_as_it_was_for_its_owner_alone(state: Path) -> None:
    drift = drift_of(MIXED)
    path = history.store_run(drift.model_copy(update={"since": compare_runs(drift, drift, "x")}))
    assert path == state / "20261120T083005.123Z.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert Drift.model_validate_json(path.read_text()) == drift
    assert list(state.iterdir()) == [path]


def test_it_is_named_by_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    tokyo = MADE.astimezone(timezone(timedelta(hours=9)))
    with monkeypatch.context() as here:
        here.setenv("TZ", "JST-9")
        time.tzset()
        names = {history.name(drift_of(plan(made=made))) for made in (MADE, tokyo)}
    time.tzset()
    assert names == {"20261120T083005.123Z"}


def test_the_newest_are_kept(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_RUNS", 3)
    (state.parent).mkdir(parents=True)
    names = kept(*(timedelta(hours=hour) for hour in (5, 4, 9, 3, 2)))
    (state / "notes.json").touch()
    assert [path.stem for path in history.runs("lab")] == [names[4], names[3], names[1]]
    kept(timedelta(hours=1))
    assert (state / "notes.json").exists()
    assert len(list(state.iterdir())) == 4


HOURS = [timedelta(hours=hour) for hour in (60, 49, 47, 20, 3, 1)]


@pytest.mark.parametrize(
    ("when", "index"),
    [
        ("2d", 1),
        ("48h", 1),
        ("1d", 2),
        ("90m", 4),
        ("0m", 5),
        ("1w", 0),
        ("2026-11-21", 3),
        ("2026-11-20", 2),
        ("2026-11-21T10:59", 4),
        ("2026-11-21T11:00Z", 5),
        ("2026-11-21T12:00+02:00", 4),
        ("2000-01-01", 0),
        ("20261121T090000.000Z", 4),
    ],
)
def test_when(when: str, index: int) -> None:
    names = kept(*HOURS)
    paths = history.candidates("lab", when, NOW)
    assert paths[0].stem == names[index]


NEVER = ["", "soon", "2 d", "2y", "-1d", "99999d", "2026-13-01", "0001-01-01T00:00+01:00", "../lab/drift", "x\x1b[31m"]


@pytest.mark.parametrize("when", NEVER)
def test_what_is_not_a_time(when: str) -> None:
    kept(*HOURS)
    with pytest.raises(history.DriftHistoryError, match="neither a run, nor an age") as error:
        history.candidates("lab", when, NOW)
    assert str(error.value).isprintable()


def test_a_run_that_is_not_kept() -> None:
    kept(*HOURS)
    with pytest.raises(history.DriftHistoryError, match=r"not kept; the newest is 20261121T110000\.000Z"):
        history.candidates("lab", "20261121T090000.001Z", NOW)


def test_no_history_yet() -> None:
    with pytest.raises(history.DriftHistoryError, match="no run of lab is kept yet"):
        history.candidates("lab", "2d", NOW)


def test_a_run_that_looked_at_all_of_it_is_better_than_a_newer_one() -> None:
    whole = history.store_run(drift_of(plan(machine("spark1"), made=NOW - timedelta(hours=3))))
    part = history.store_run(drift_of(plan(machine("spark1"), made=NOW - timedelta(hours=2), roles={"preflight"})))
    other = history.store_run(drift_of(plan(machine("spark2"), made=NOW - timedelta(hours=1))))
    paths = history.candidates("lab", "0m", NOW)
    assert paths == [other, part, whole]
    assert history.select_run(paths, drift_of(plan(machine("spark1"))), pytest.fail)[0] == whole.stem
    assert (
        history.select_run(paths, drift_of(plan(machine("spark1"), roles={"preflight"})), pytest.fail)[0] == part.stem
    )
    both = drift_of(plan(machine("spark1"), machine("spark2")))
    assert history.select_run(paths, both, pytest.fail)[0] == other.stem


@pytest.mark.parametrize("garbage", ["", "{", '{"schema": "sparkrack.drift/2"}', "[]", "\x00\x1b[31m"])
def test_a_file_that_cannot_be_read_is_named_and_skipped(state: Path, garbage: str) -> None:
    old, new = (
        history.store_run(drift_of(plan(machine("spark1"), made=MADE + timedelta(hours=hour)))) for hour in (0, 1)
    )
    new.write_text(garbage)
    reported: list[str] = []
    assert history.select_run([new, old], drift_of(plan(machine("spark1"))), reported.append)[0] == old.stem
    (line,) = reported
    assert line.startswith(f"{new}: skipped, cannot be read: ")
    assert line.isprintable()
    old.unlink()
    old.mkdir()
    with pytest.raises(history.DriftHistoryError, match="no earlier run can be read"):
        history.select_run([new, old], drift_of(plan(machine("spark1"))), reported.append)
    assert reported[-1].endswith("Is a directory")


def test_a_file_of_an_older_schema_is_skipped_by_name() -> None:
    old, new = (
        history.store_run(drift_of(plan(machine("spark1"), made=MADE + timedelta(hours=hour)))) for hour in (0, 1)
    )
    new.write_text(new.read_text().replace("sparkrack.drift/2", "sparkrack.drift/1"))
    reported: list[str] = []
    assert history.select_run([new, old], drift_of(plan(machine("spark1"))), reported.append)[0] == old.stem
    assert reported == [f"{new}: skipped, its schema is sparkrack.drift/1, and only sparkrack.drift/2 can be compared"]


def test_a_machine_that_says_what_is_not_a_text(state: Path) -> None:
    path = history.store_run(drift_of(plan(machine("spark1", ("fabric", EventKind.CHANGE, "\udc80 \ud800")))))
    assert history.select_run([path], drift_of(plan(machine("spark1"))), pytest.fail)[0] == path.stem


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h", 3600), ("30m", 1800), ("2d", 172800), ("1w", 604800), ("9999m", 599940)]
)
def test_a_span(text: str, seconds: int) -> None:
    assert history.span(text) == timedelta(seconds=seconds)


def test_of_many_runs_the_newest_500_are_kept(state: Path) -> None:
    state.mkdir(parents=True)
    for number in range(500):
        (state / f"20260101T000000.{number:03}Z.json").touch()
    path = history.store_run(drift_of(plan(machine("spark1"))))
    assert len(list(state.iterdir())) == 500
    assert history.runs("lab")[0] == path
    assert not (state / "20260101T000000.000Z.json").exists()


@pytest.mark.parametrize("text", ["", "h", "1", "1s", "1.5h", "1h30m", "²d", "1h\n"])
def test_no_span(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time span"):
        history.span(text)
