"""What this machine has kept of a rack: the newest look of `drift`, and the newest journal of a run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sparkrack.fleet import regular
from sparkrack.fleet.errors import one_line
from sparkrack.status.model import LastDrift, LastRun


class HistoryError(Exception):
    """A file that is there cannot be understood. The text is one line and names it."""


class _Kept(BaseModel):
    """As much of a file of `sparkrack drift` as matters here; whatever else is in it is its own business."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Finding(_Kept):
    kind: str


class _Looked(_Kept):
    role: str
    findings: tuple[_Finding, ...]


class _Compared(_Kept):
    name: str
    told: bool
    roles: tuple[_Looked, ...]


class _Drift(_Kept):
    schema_: Literal["sparkrack.drift/1"] = Field(alias="schema")
    made: AwareDatetime
    machines: tuple[_Compared, ...]


class _Began(_Kept):
    event: Literal["began"]
    schema_: Literal["sparkrack.journal/1"] = Field(alias="schema")
    at: AwareDatetime
    who: str
    what: str


class _Ended(_Kept):
    at: AwareDatetime
    result: str


class _Line(_Kept):
    event: str


def last_drift(state: Path) -> LastDrift | None:
    """The newest look at the rack whose state folder this is; None when nobody has looked yet. Raises
    HistoryError."""
    path = _newest(state / "drift", "*.json")
    if path is None:
        return None
    try:
        kept = _Drift.model_validate_json(regular.read_bytes(path))
    except (OSError, ValueError) as fault:
        raise _broken(path, fault) from None
    kinds = Counter(
        finding.kind for machine in kept.machines for looked in machine.roles for finding in looked.findings
    )
    return LastDrift(
        run=path.stem,
        made=kept.made,
        machines=tuple(machine.name for machine in kept.machines),
        roles=tuple(dict.fromkeys(looked.role for machine in kept.machines for looked in machine.roles)),
        untold=tuple(machine.name for machine in kept.machines if not machine.told),
        counts=dict(sorted(kinds.items())),
    )


def last_run(state: Path) -> LastRun | None:
    """The newest run whose journal is kept; None when there is none. Raises HistoryError."""
    path = _newest(state / "runs", "*.ndjson")
    if path is None:
        return None
    try:
        # Its last line may be half a one, if the machine went away: the end was not written then.
        *lines, _ = regular.read_bytes(path).split(b"\n")
        began, last = _Began.model_validate_json(lines[0]), lines[-1]
        ended = _Ended.model_validate_json(last) if _Line.model_validate_json(last).event == "ended" else None
    except (OSError, ValueError, IndexError) as fault:
        raise _broken(path, fault) from None
    return LastRun(
        run=path.stem,
        began=began.at,
        who=began.who,
        what=began.what,
        ended=ended.at if ended else None,
        result=ended.result if ended else None,
    )


def _newest(folder: Path, pattern: str) -> Path | None:
    """By its name, which begins with the time."""
    try:
        return max((path for path in folder.iterdir() if path.match(pattern)), default=None)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise _broken(folder, fault) from None


def _broken(path: Path, fault: Exception) -> HistoryError:
    why = "is not what sparkrack has kept"
    if isinstance(fault, OSError):
        why = f"cannot be read: {fault.strerror or fault}"
    elif isinstance(fault, ValidationError):
        error = fault.errors(include_url=False)[0]
        why += f": {'.'.join(map(str, error['loc']))}: {error['msg']}"
    return HistoryError(one_line(f"{path}: {why}"))
