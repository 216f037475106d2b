"""The journal of a run: whole lines at every moment, private, the newest kept."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from core.util.command_error import CommandError, DeclinedError
from core.util.event import value_change
from sparkrack.engine.journal import (
    EVENTS,
    KINDS,
    MAX_JOURNALS,
    HostError,
    HostMessage,
    Line,
    OperationFinished,
    RunFinished,
    RunJournal,
    RunStarted,
)
from sparkrack.engine.recorded_run import recorded_run
from tests.unit.model.racks import SWITCH, loaded

HOSTILE = "\x1b[2J\x9b\u2028\u2029\r\n\x00 ä \"'{}"
RUN = "20260314T091500-3fa2"
LINES: tuple[Line, ...] = (
    RunStarted(run=RUN, operator="ana@desk", scope="spark1", file="rack.yaml", revision="", plan="4f1d2a7be09c3358"),
    HostMessage.of(RUN, "spark1", value_change("memory.level", "old", "new")),
    HostError(run=RUN, host="spark1", reason="the connection was lost"),
    OperationFinished(run=RUN, host="spark1", role="memory", operation="Turn it off", result="failed", seconds=0.25),
    RunFinished(run=RUN, result="interrupted", failed=("spark1",), in_progress={"spark2": "memory: Turn it off"}),
)
"""A line of each kind, in the order of EVENTS."""
ANY: TypeAdapter[Line] = TypeAdapter(Line)
WRITER = """\
import sys
from pathlib import Path
from sparkrack.engine.journal import HostError, RunJournal
journal = RunJournal(Path(sys.argv[1]), "run")
while True:
    journal.write(HostError(run="run", host="spark1", reason="x" * 3000))
"""


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def broke(why: str) -> HostError:
    return HostError(run=RUN, host="spark1", reason=why)


def test_a_line_is_there_at_once_and_is_what_its_model_says(tmp_path: Path) -> None:
    one = RunJournal(tmp_path / "runs", RUN)
    for number, line in enumerate(LINES, 1):
        one.write(line)
        assert len(read(one.path)) == number
    one.close()
    written = read(one.path)
    assert tuple(line["event"] for line in written) == EVENTS
    assert [tuple(line)[:3] for line in written] == [("run", "at", "event")] * len(EVENTS)
    assert [set(line) for line in written] == [set(names(kind)) for kind in KINDS]
    assert tuple(map(ANY.validate_json, one.path.read_bytes().splitlines())) == tuple(
        line.model_copy(update={"at": line.at.replace(microsecond=line.at.microsecond // 1000 * 1000)})
        for line in LINES
    )


def names(kind: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


def test_a_time_is_in_utc_and_has_milliseconds(tmp_path: Path) -> None:
    one = RunJournal(tmp_path, "run")
    one.write(broke("").model_copy(update={"at": datetime(2026, 3, 14, 10, 15, tzinfo=timezone(timedelta(hours=1)))}))
    assert read(one.path)[0]["at"] == "2026-03-14T09:15:00.000+00:00"


@pytest.mark.parametrize(
    ("number", "wrong"),
    [
        (0, {"schema": "sparkrack.journal/1"}),
        (0, {"at": "2026-03-14T09:15:00.250"}),
        (1, {"kind": "nonsense"}),
        (1, {"event": "nonsense"}),
        (2, {"text": "a field of another kind"}),
        (3, {"result": "nonsense"}),
        (3, {"seconds": "long"}),
        (4, {"result": "nothing to do"}),
        (4, {"failed": "spark1"}),
        (4, {"run": None}),
    ],
)
def test_what_is_not_a_line_is_refused(number: int, wrong: dict[str, Any]) -> None:
    line = LINES[number].model_dump(mode="json", by_alias=True)
    assert ANY.validate_python(line).event == line["event"]
    with pytest.raises(ValidationError):
        ANY.validate_python(line | wrong)


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        one = RunJournal(tmp_path / "state/runs", "run")
    finally:
        os.umask(before)
    assert f"{one.path.stat().st_mode & 0o777:o}" == "600"
    assert f"{one.path.parent.stat().st_mode & 0o777:o}" == "700"


def test_whatever_a_machine_says_is_one_line_of_ascii(tmp_path: Path) -> None:
    one = RunJournal(tmp_path, "run")
    one.write(broke(HOSTILE))
    content = one.path.read_bytes()
    assert content.isascii()
    assert content.decode()[:-1].isprintable()
    assert len(content.splitlines()) == 1
    assert read(one.path)[0]["reason"] == HOSTILE


@pytest.mark.parametrize(
    ("reported", "kept"),
    [("a\ud800b", "a\ufffdb"), ("caf\udce9", "caf\ufffd"), ("\ud83d\ude80", "\U0001f680"), ("ä", "ä")],
)
def test_what_is_not_a_text_can_be_read_by_strict_readers(tmp_path: Path, reported: str, kept: str) -> None:
    one = RunJournal(tmp_path, "run")
    one.write(broke(reported))
    line = ANY.validate_json(one.path.read_bytes())
    assert isinstance(line, HostError)
    assert line.reason == kept


def test_killed_in_the_middle_every_whole_line_parses(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    path, until = tmp_path / "run.ndjson", time.monotonic() + 60
    while time.monotonic() < until and (not path.exists() or path.stat().st_size < 100_000):
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait(60)
    lines = read(path)
    assert len(lines) > 30
    assert {line["reason"] for line in lines} == {"x" * 3000}


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, real = RunJournal(tmp_path, "run"), os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
    one.write(broke("more than seven"))
    monkeypatch.undo()
    assert read(one.path)[0]["reason"] == "more than seven"


def test_a_disk_that_is_full_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = RunJournal(tmp_path, "run")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        one.write(broke(""))


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(MAX_JOURNALS + 7):
        (tmp_path / f"2026{number:04}.ndjson").touch()
    (tmp_path / "notes.txt").touch()
    RunJournal(tmp_path, "20270101")
    left = sorted(path.name for path in tmp_path.glob("*.ndjson"))
    assert len(left) == MAX_JOURNALS
    assert (left[0], left[-1]) == ("20260008.ndjson", "20270101.ndjson")
    assert (tmp_path / "notes.txt").exists()


def test_few_are_all_kept(tmp_path: Path) -> None:
    for number in range(3):
        RunJournal(tmp_path, f"run{number}")
    assert len(list(tmp_path.iterdir())) == 3


def test_no_run_writes_into_that_of_another(tmp_path: Path) -> None:
    RunJournal(tmp_path, "run")
    with pytest.raises(FileExistsError):
        RunJournal(tmp_path, "run")


def test_the_debug_log_of_a_journal_goes_with_it(tmp_path: Path) -> None:
    for number in range(MAX_JOURNALS):
        (tmp_path / f"2026{number:04}.ndjson").touch()
        (tmp_path / f"2026{number:04}.log").touch()
    RunJournal(tmp_path, "20270101").close()
    assert len(list(tmp_path.glob("*.log"))) == MAX_JOURNALS - 1
    assert not (tmp_path / "20260000.log").exists()


def test_a_journal_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    one = RunJournal(tmp_path, "run")
    with one.path.open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        one.close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_system_without_locks_keeps_a_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    one = RunJournal(tmp_path, "run")
    one.write(broke("x"))
    assert len(read(one.path)) == 1


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "sparkrack/two/runs"


def test_a_command_without_a_plan_keeps_a_journal_and_a_log_of_what_it_is(state: Path) -> None:
    rack = loaded(SWITCH)
    with recorded_run(rack, "reboot: restart the node") as run:
        own = run.begin("restart of spark1")
        (path,) = state.glob("*.ndjson")
        assert path.with_suffix(".log").exists()
        (started,) = read(path)
    assert own.what == "restart of spark1"
    assert (started["run"], started["operator"], started["scope"]) == (own.id, own.who, "restart of spark1")
    assert path.stem == own.id
    assert (started["plan"], started["file"]) == ("", str(rack.source))
    ended = read(path)[-1]
    assert (ended["event"], ended["result"], ended["failed"], ended["in_progress"]) == ("run_finished", "done", [], {})
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("fault", "failing", "result"),
    [
        (None, (), "done"),
        (None, ("spark1", "spark2", "spark1"), "failed"),
        (ValueError, (), "failed"),
        (CommandError("no"), ("spark1",), "failed"),
        (KeyboardInterrupt, ("spark1",), "interrupted"),
        (DeclinedError, (), "interrupted"),
    ],
)
def test_the_end_of_a_command_is_in_its_journal(
    state: Path, fault: BaseException | type[BaseException] | None, failing: tuple[str, ...], result: str
) -> None:
    with suppress(BaseException), recorded_run(loaded(SWITCH), "reboot: restart the node") as run:
        run.fail("spark9", "before it began")
        run._failed.clear()
        run.begin("x")
        for host in failing:
            run.fail(host, "password=geheim: it is off")
        if fault:
            raise fault
    (path,) = state.glob("*.ndjson")
    lines = read(path)
    failed = list(dict.fromkeys(failing))
    assert [line["host"] for line in lines if line["event"] == "host_error"] == list(failing)
    assert "geheim" not in path.read_text()
    assert (lines[-1]["result"], lines[-1]["failed"]) == (result, failed)
    assert lines[-1]["in_progress"] == dict.fromkeys(failed, "reboot: restart the node")


def test_a_fault_is_raised_as_it_was(state: Path) -> None:
    for fault in (ValueError, KeyboardInterrupt, DeclinedError):
        with pytest.raises(fault), recorded_run(loaded(SWITCH), "reboot"):
            raise fault
    assert not state.exists()


def test_a_command_that_can_keep_no_journal_changes_nothing(state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.touch()
    with pytest.raises(CommandError) as refused, recorded_run(loaded(SWITCH), "reboot") as run:
        run.begin("x")
    assert str(refused.value) == f"{state}: no journal can be kept: File exists; nothing was changed"


def test_a_disk_that_is_full_meanwhile_ends_no_command(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with recorded_run(loaded(SWITCH), "reboot") as run:
        run.begin("x")
        monkeypatch.setattr(RunJournal, "write", full)
        run.fail("spark1", "it is off")
    (path,) = state.glob("*.ndjson")
    assert [line["event"] for line in read(path)] == ["run_started"]


def test_a_command_that_ends_before_its_journal_begins_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(CommandError, match="the rack is locked"), recorded_run(loaded(SWITCH), "reboot"):
        raise CommandError("the rack is locked")
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_a_journal_is_locked_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that met it without its lock would call the run interrupted."""
    seen: list[bool] = []
    lock = fcntl.flock

    def noted(handle: int, how: int) -> None:
        seen.append((tmp_path / f"{RUN}.ndjson").exists())
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", noted)
    RunJournal(tmp_path, RUN).close()
    assert (seen, [path.name for path in tmp_path.iterdir()]) == ([False], [f"{RUN}.ndjson"])


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / f"{RUN}.ndjson").write_text("of another run")
    with pytest.raises(FileExistsError):
        RunJournal(tmp_path, RUN)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["of another run"]
