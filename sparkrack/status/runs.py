"""The journals of runs that this machine keeps of a rack: a summary of each, and one of them step by step."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from core.model.errors import printable_line, truncate
from core.util import regular_file
from core.util.event import EventKind
from core.util.records import Record, Text
from sparkrack.engine.journal import (
    HostError,
    HostMessage,
    Line,
    Moment,
    OperationFinished,
    Result,
    RunFinished,
    RunStarted,
    log_path,
)
from sparkrack.status.history import StatusHistoryError, broken, journal_paths, read_run

State = Literal["done", "failed", "stopped", "interrupted", "in progress", "unknown"]
"""The result of a run. A journal without an end is "in progress" while its process is alive, "interrupted" after that,
and "unknown" where the file system has no locks."""

_OLD_RESULTS = {"cut off": "interrupted"}
"""Results of `sparkrack.journal/1` that have another name now."""
_SCHEMA = RunStarted.model_fields["schema_"].default
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


class RunSummary(Record):
    """One run. `seconds`: its duration; None for a run without an end."""

    run: str
    began: Moment
    ended: Moment | None
    seconds: float | None
    operator: Text
    scope: Text
    result: State


class UnreadableRun(Record):
    """A journal that cannot be read, and the reason."""

    file: Text
    reason: Text


class RunList(Record):
    """What `sparkrack runs --json` prints: the runs of a rack, the newest first."""

    schema_: Literal["sparkrack.runs/1"] = Field("sparkrack.runs/1", alias="schema", serialization_alias="schema")
    rack: str
    runs: tuple[RunSummary, ...]
    unreadable: tuple[UnreadableRun, ...]


class RunMessage(Record):
    """One thing that an operation reported; `kind` as in a plan."""

    kind: EventKind
    message: Text


class RunOperation(Record):
    """One operation on one host. `result` and `seconds` are None for an operation that did not end; its name is in the
    journal's last line, and unknown where that is missing. `errors`: a lost connection, or a fault of the program."""

    at: Moment
    host: str
    role: str | None
    operation: Text | None
    result: Result | None
    seconds: float | None
    messages: tuple[RunMessage, ...]
    errors: tuple[Text, ...]


class RunDetail(Record):
    """What `sparkrack runs ID --json` prints: a run with its operations, in the order in which they ended. `failed`:
    the hosts on which an operation failed. `log`: the file of the debug log; None where none is kept."""

    schema_: Literal["sparkrack.run/1"] = Field("sparkrack.run/1", alias="schema", serialization_alias="schema")
    rack: str
    run: RunSummary
    journal: Text
    log: Text | None
    file: Text
    revision: str
    plan: str
    failed: tuple[str, ...]
    steps: tuple[RunOperation, ...]


def list_runs(rack: str, state: Path) -> RunList:
    """Return the runs of a rack whose journals are in this state folder. Raises StatusHistoryError for the folder."""
    runs: list[RunSummary] = []
    unreadable: list[UnreadableRun] = []
    for path in journal_paths(state):
        try:
            runs.append(_read_summary(path))
        except StatusHistoryError as fault:
            why = str(fault).removeprefix(printable_line(f"{path}: "))
            unreadable.append(UnreadableRun(file=str(path), reason=why))
    return RunList(rack=rack, runs=tuple(runs), unreadable=tuple(unreadable))


def run_detail(rack: str, state: Path, run: str) -> RunDetail:
    """Return one run step by step. Raises StatusHistoryError when there is no such run, or it cannot be read."""
    paths = {path.stem: path for path in journal_paths(state)}
    if run not in paths:
        newest = f"the newest is {next(iter(paths))}" if paths else "none is kept"
        raise StatusHistoryError(printable_line(f"{truncate(run)}: no run of {rack} has this ID; {newest}"))
    path = paths[run]
    summary, (first, *rest) = _read_summary(path), _journal_lines(path)
    if not isinstance(first, RunStarted):
        raise broken(path, ValueError(), "line 1 is not run_started")
    end = next((line for line in rest if isinstance(line, RunFinished)), None)
    return RunDetail(
        rack=rack,
        run=summary,
        journal=str(path),
        log=str(log_path(path)) if log_path(path).is_file() else None,
        file=first.file,
        revision=first.revision,
        plan=first.plan,
        failed=end.failed if end else (),
        steps=tuple(_operations_of(rest, end)),
    )


def read_log(run: RunDetail) -> str:
    """Return the debug log of a run. Raises StatusHistoryError."""
    if run.log is None:
        raise StatusHistoryError(f"{run.run.run}: no debug log of this run is kept")
    try:
        return regular_file.read_bytes(run.log).decode(errors="backslashreplace")
    except OSError as fault:
        raise broken(Path(run.log), fault) from None


def _read_summary(path: Path) -> RunSummary:
    """Raises StatusHistoryError."""
    unfinished = _state_of_unfinished_run(
        path
    )  # before the file is read: a run that ends between the two has its end in the file
    last = read_run(path)
    result = unfinished if last.result is None else _OLD_RESULTS.get(last.result, last.result)
    try:
        return RunSummary.model_validate(
            {
                "run": last.run,
                "began": last.began,
                "ended": last.ended,
                "seconds": (last.ended - last.began).total_seconds() if last.ended else None,
                "operator": last.operator,
                "scope": last.scope,
                "result": result,
            }
        )
    except ValidationError as fault:
        raise broken(path, fault) from None


def _state_of_unfinished_run(path: Path) -> State:
    """The result of a run whose journal has no end: its process holds a lock on the file as long as it lives."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return "unknown"  # reading the file gives the reason
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as fault:
        return "in progress" if fault.errno == errno.EWOULDBLOCK else "unknown"
    finally:
        os.close(handle)
    return "interrupted"


def _journal_lines(path: Path) -> list[Line]:
    """Every complete line of a journal; the last one may be incomplete, as after a power loss. Raises
    StatusHistoryError."""
    found: list[Line] = []
    try:
        *lines, _ = regular_file.read_bytes(path).split(b"\n")
    except OSError as fault:
        raise broken(path, fault) from None
    for number, text in enumerate(lines, 1):
        try:
            found.append(_LINE.validate_json(text))
        except ValidationError:
            raise broken(path, ValueError(), f"line {number} is none of {_SCHEMA}") from None
    return found


def _operations_of(lines: Iterable[Line], end: RunFinished | None) -> Iterable[RunOperation]:
    """Yield the operations; of each host its messages come before the end of the operation that they are about."""
    open_: dict[str, list[HostMessage | HostError]] = {}
    for line in lines:
        if isinstance(line, HostMessage | HostError):
            open_.setdefault(line.host, []).append(line)
        elif isinstance(line, OperationFinished):
            reported = open_.pop(line.host, [])
            yield _run_operation(reported, line.at, line.host, line.role, line.operation, line.result, line.seconds)
    for host, reported in open_.items():
        role, _, operation = (end.in_progress.get(host, "") if end else "").partition(": ")
        roles = [one.role for one in reported if isinstance(one, HostMessage)]
        yield _run_operation(
            reported, reported[-1].at, host, role or next(iter(roles), None), operation or None, None, None
        )


def _run_operation(
    reported: Iterable[HostMessage | HostError],
    at: Moment,
    host: str,
    role: str | None,
    operation: str | None,
    result: Result | None,
    seconds: float | None,
) -> RunOperation:
    reported = tuple(reported)
    return RunOperation(
        at=at,
        host=host,
        role=role,
        operation=operation,
        result=result,
        seconds=seconds,
        messages=tuple(
            RunMessage(kind=one.kind, message=one.message) for one in reported if isinstance(one, HostMessage)
        ),
        errors=tuple(one.reason for one in reported if isinstance(one, HostError)),
    )
