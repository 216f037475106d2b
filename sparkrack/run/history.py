"""Earlier runs of `sparkrack drift`, kept on the operator's machine: one JSON file each, named by its time (UTC)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from sparkrack.fleet import regular
from sparkrack.fleet.errors import one_line
from sparkrack.fleet.places import state_folder
from sparkrack.run import files
from sparkrack.run.drift import Drift

MOST = 500
"""Runs that are kept: three weeks of one an hour."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"(\d{1,4})([mhdw])")
_RUN = re.compile(r"\d{8}T\d{6}\.\d{3}Z")


class HistoryError(Exception):
    """There is no earlier run to compare with. The text is one line."""


def folder(rack: str) -> Path:
    """Where the runs of a rack are kept."""
    return state_folder(rack) / "drift"


def name(drift: Drift) -> str:
    """What a run is called: its time in UTC, to the millisecond."""
    made = drift.made.astimezone(UTC)
    return f"{made:%Y%m%dT%H%M%S}.{made.microsecond // 1000:03d}Z"


def keep(drift: Drift) -> Path:
    """Keep a run, and only the newest `MOST`. Raises OSError."""
    path = folder(drift.rack) / f"{name(drift)}.json"
    files.keep(path, drift.model_dump_json(by_alias=True, exclude={"since"}) + "\n")
    for old in runs(drift.rack)[MOST:]:
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
        raise ValueError(f"{one_line(text)} is no time span; write 30m, 12h, 2d or 1w")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def candidates(rack: str, when: str, now: datetime) -> list[Path]:
    """The runs to compare with, the best first: the one of that name, or those that were made at that time or before;
    the oldest one where none is so old.

    `when`: a run, an age like `2d`, or a time like `2026-11-20` or `2026-11-20T08:00` (UTC, unless it says otherwise).
    Raises HistoryError.
    """
    kept = runs(rack)
    if not kept:
        raise HistoryError(f"--since {one_line(when)}: no run of {rack} is kept yet in {folder(rack)}")
    named = [path for path in kept if path.stem == when]
    if named:
        return named
    if _RUN.fullmatch(when):
        raise HistoryError(f"--since {when}: that run is not kept; the newest is {kept[0].stem}")
    then = _moment(when, now)
    return [path for path in kept if _made(path) <= then] or kept[-1:]


def _moment(when: str, now: datetime) -> datetime:
    if _SPAN.fullmatch(when):
        return now - span(when)
    try:
        then = datetime.fromisoformat(when)
        return then.astimezone(UTC) if then.tzinfo else then.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise HistoryError(
            f"--since {one_line(when)}: neither a run, nor an age (2d, 12h), nor a time (2026-11-20)"
        ) from None


def _made(path: Path) -> datetime:
    return datetime.strptime(path.stem, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)


def pick(paths: Sequence[Path], now: Drift, warn: Callable[[str], None]) -> tuple[str, Drift]:
    """The first of these runs that looked at all that `now` looked at, else the first that can be read; its name, too.

    A file that cannot be read is told to `warn` and skipped. Raises HistoryError when none can.
    """
    first: tuple[str, Drift] | None = None
    for path in paths:
        try:
            then = Drift.model_validate_json(regular.read_bytes(path))
        except (OSError, ValidationError) as fault:
            warn(f"{path}: skipped, cannot be read: {_why(fault)}")
            continue
        if _pairs(now) <= _pairs(then):
            return path.stem, then
        first = first or (path.stem, then)
    if not first:
        raise HistoryError("no earlier run can be read")
    return first


def _why(fault: OSError | ValidationError) -> str:
    if isinstance(fault, OSError):
        return fault.strerror or str(fault)
    return one_line(fault.errors(include_url=False)[0]["msg"])


def _pairs(drift: Drift) -> set[tuple[str, str]]:
    return {(machine.name, looked.role) for machine in drift.machines for looked in machine.roles}
