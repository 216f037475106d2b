"""Earlier runs of `sparkrack drift`, kept on the operator's machine: one JSON file each, named by its time (UTC)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from core.model.errors import printable_line, truncate
from core.util import atomic_file, regular_file
from core.util.command_error import CommandError
from core.util.paths import state_folder
from sparkrack.drift.findings import SCHEMA, Drift

MAX_RUNS = 500
"""Runs that are kept: three weeks of one an hour."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"(\d{1,4})([mhdw])")
_RUN = re.compile(r"\d{8}T\d{6}\.\d{3}Z")


class DriftHistoryError(CommandError):
    """There is no earlier run to compare with. The text is one line."""


def folder(rack: str) -> Path:
    """Return the folder of the runs of a rack."""
    return state_folder(rack) / "drift"


def name(drift: Drift) -> str:
    """Return the name of a run: its time in UTC, to the millisecond."""
    made = drift.made.astimezone(UTC)
    return f"{made:%Y%m%dT%H%M%S}.{made.microsecond // 1000:03d}Z"


def store_run(drift: Drift) -> Path:
    """Keep a run, and only the newest `MAX_RUNS`. Raises OSError."""
    path = folder(drift.rack) / f"{name(drift)}.json"
    atomic_file.write_atomic(path, drift.model_dump_json(by_alias=True, exclude={"since"}) + "\n")
    for old in runs(drift.rack)[MAX_RUNS:]:
        old.unlink(missing_ok=True)
    return path


def runs(rack: str) -> list[Path]:
    """The files of the runs that are kept, the newest first."""
    found = folder(rack).glob("*.json")
    return sorted((path for path in found if _RUN.fullmatch(path.stem)), key=lambda path: path.stem, reverse=True)


def span(text: str) -> timedelta:
    """`30m`, `12h`, `2d`, `1w`. Raises ValueError for anything else."""
    match = _SPAN.fullmatch(text)
    if not match:
        raise ValueError(f"{printable_line(text)} is not a time span; write 30m, 12h, 2d or 1w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def candidates(rack: str, when: str, now: datetime) -> list[Path]:
    """Return the runs to compare with, best first: the one of that name, or those from that time or before; the oldest
    one where none is so old.

    `when`: a run, an age like `2d`, or a time like `2026-11-20` or `2026-11-20T08:00` (UTC, unless it has a time zone).
    Raises DriftHistoryError.
    """
    kept = runs(rack)
    if not kept:
        raise DriftHistoryError(f"--since {printable_line(when)}: no run of {rack} is kept yet in {folder(rack)}")
    named = [path for path in kept if path.stem == when]
    if named:
        return named
    if _RUN.fullmatch(when):
        raise DriftHistoryError(f"--since {when}: that run is not kept; the newest is {kept[0].stem}")
    then = _parse_moment(when, now)
    return [path for path in kept if _time_of_file(path) <= then] or kept[-1:]


def _parse_moment(when: str, now: datetime) -> datetime:
    if _SPAN.fullmatch(when):
        return now - span(when)
    try:
        then = datetime.fromisoformat(when)
        return then.astimezone(UTC) if then.tzinfo else then.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise DriftHistoryError(
            f"--since {printable_line(when)}: neither a run, nor an age (2d, 12h), nor a time (2026-11-20)"
        ) from None


def _time_of_file(path: Path) -> datetime:
    return datetime.strptime(path.stem, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)


def select_run(paths: Sequence[Path], now: Drift, warn: Callable[[str], None]) -> tuple[str, Drift]:
    """Return the first of these runs that covered everything that `now` covers, else the first readable one; with its
    name.

    An unreadable file is reported to `warn` and skipped. Raises DriftHistoryError when no file can be read.
    """
    first: tuple[str, Drift] | None = None
    for path in paths:
        try:
            then = Drift.model_validate_json(regular_file.read_bytes(path))
        except (OSError, ValidationError) as fault:
            warn(f"{path}: skipped, {_reading_error(fault)}")
            continue
        if _compared_pairs(now) <= _compared_pairs(then):
            return path.stem, then
        first = first or (path.stem, then)
    if not first:
        raise DriftHistoryError("no earlier run can be read")
    return first


def _reading_error(fault: OSError | ValidationError) -> str:
    if isinstance(fault, OSError):
        return f"cannot be read: {fault.strerror or fault}"
    errors = fault.errors(include_url=False)
    other = next((error for error in errors if error["loc"] == ("schema",) and error["type"] == "literal_error"), None)
    if other:
        return printable_line(f"its schema is {truncate(other['input'])}, and only {SCHEMA} can be compared")
    return printable_line(f"cannot be read: {errors[0]['msg']}")


def _compared_pairs(drift: Drift) -> set[tuple[str, str]]:
    return {(machine.name, looked.role) for machine in drift.hosts for looked in machine.roles}
