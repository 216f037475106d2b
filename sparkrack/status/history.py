"""Records of a rack on this machine: the newest `drift` run, and the newest journal of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from core.model.errors import printable_line
from core.util import regular_file
from core.util.command_error import CommandError
from sparkrack.status.model import LastDrift, LastRun


class StatusHistoryError(CommandError):
    """An existing file cannot be parsed. The text is one line and names it."""


class _RunFile(BaseModel):
    """As much of a file of `sparkrack drift` or `sparkrack apply` as matters here, under its names of today and of
    before; other fields are not read."""

    model_config = ConfigDict(frozen=True, extra="ignore")


_OLD_KINDS = {"runtime": "broken", "fleet": "outlier"}
"""The kinds of findings of `sparkrack.drift/1` that have another name now."""


class _Finding(_RunFile):
    kind: str


class _Looked(_RunFile):
    role: str
    findings: tuple[_Finding, ...]


class _Compared(_RunFile):
    name: str
    complete: bool = Field(validation_alias=AliasChoices("complete", "told"))
    roles: tuple[_Looked, ...]


class _Drift(_RunFile):
    schema_: Literal["sparkrack.drift/1", "sparkrack.drift/2"] = Field(alias="schema")
    made: AwareDatetime
    hosts: tuple[_Compared, ...] = Field(validation_alias=AliasChoices("hosts", "machines"))


class _Began(_RunFile):
    event: Literal["run_started", "began"]
    schema_: Literal["sparkrack.journal/1", "sparkrack.journal/2"] = Field(alias="schema")
    at: AwareDatetime
    operator: str = Field(validation_alias=AliasChoices("operator", "who"))
    scope: str = Field(validation_alias=AliasChoices("scope", "what"))


class _Ended(_RunFile):
    at: AwareDatetime
    result: str


class _Line(_RunFile):
    event: str


def last_drift(state: Path) -> LastDrift | None:
    """Return the newest drift run in this state folder; None when there is none. Raises StatusHistoryError."""
    path = _newest_file(state / "drift", "*.json")
    if path is None:
        return None
    try:
        kept = _Drift.model_validate_json(regular_file.read_bytes(path))
    except (OSError, ValueError) as fault:
        raise broken(path, fault) from None
    kinds = Counter(
        _OLD_KINDS.get(finding.kind, finding.kind)
        for machine in kept.hosts
        for looked in machine.roles
        for finding in looked.findings
    )
    return LastDrift(
        run=path.stem,
        made=kept.made,
        hosts=tuple(machine.name for machine in kept.hosts),
        roles=tuple(dict.fromkeys(looked.role for machine in kept.hosts for looked in machine.roles)),
        unknown_hosts=tuple(machine.name for machine in kept.hosts if not machine.complete),
        counts=dict(sorted(kinds.items())),
    )


def last_run(state: Path) -> LastRun | None:
    """Return the newest run with a journal; None when there is none. Raises StatusHistoryError."""
    path = _newest_file(state / "runs", "*.ndjson")
    return read_run(path) if path else None


def journal_paths(state: Path) -> list[Path]:
    """Return the journals of runs in this state folder, the newest first. Raises StatusHistoryError."""
    return _kept_files(state / "runs", "*.ndjson")


def read_run(path: Path) -> LastRun:
    """Return what the first and the last line of a journal say of its run. Raises StatusHistoryError."""
    try:
        # Its last line may be half a one, if the machine went away: the end was not written then.
        *lines, _ = regular_file.read_bytes(path).split(b"\n")
        began, last = _Began.model_validate_json(lines[0]), lines[-1]
        finished = _Line.model_validate_json(last).event in ("run_finished", "ended")
        ended = _Ended.model_validate_json(last) if finished else None
    except (OSError, ValueError, IndexError) as fault:
        raise broken(path, fault) from None
    return LastRun(
        run=path.stem,
        began=began.at,
        operator=began.operator,
        scope=began.scope,
        ended=ended.at if ended else None,
        result=ended.result if ended else None,
    )


def _newest_file(folder: Path, pattern: str) -> Path | None:
    return next(iter(_kept_files(folder, pattern)), None)


def _kept_files(folder: Path, pattern: str) -> list[Path]:
    """By their names, which begin with the time; the newest first."""
    try:
        return sorted((path for path in folder.iterdir() if path.match(pattern)), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as fault:
        raise broken(folder, fault) from None


def broken(path: Path, fault: Exception, where: str = "") -> StatusHistoryError:
    """The error about a file that cannot be read or parsed; `where`: which part of it."""
    why = "is not what sparkrack has kept"
    if isinstance(fault, OSError):
        why = f"cannot be read: {fault.strerror or fault}"
    elif isinstance(fault, ValidationError):
        error = fault.errors(include_url=False)[0]
        why += f": {'.'.join(map(str, error['loc']))}: {error['msg']}"
    if where:
        why += f": {where}"
    return StatusHistoryError(printable_line(f"{path}: {why}"))
