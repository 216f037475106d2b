"""Journal of a run, written line by line during the run: NDJSON on the operator's machine, also of a run that fails.

Each kind of line is a model, and a line is the output of its model. The schema in docs/reference/schemas is generated
from the models, so they always agree.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from core.util.event import Action, Event, EventKind
from core.util.records import Text

MAX_JOURNALS = 500
"""So many journals are kept of a rack."""

Result = Literal["changed", "no change", "failed", "interrupted"]
"""Result of one operation on one host."""
RunResult = Literal["done", "failed", "stopped", "interrupted"]
"""Result of a run."""


Moment = Annotated[
    AwareDatetime,
    PlainSerializer(lambda at: at.astimezone(UTC).isoformat(timespec="milliseconds"), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""ISO 8601, UTC, milliseconds."""


class JournalRecord(BaseModel):
    """What every line of a journal has. `run`: the ID of the run or rebuild, which is also the name of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)

    run: str
    at: Moment = Field(default_factory=lambda: datetime.now(UTC))


class RunStarted(JournalRecord):
    """The first line. `operator`: user@machine. `scope`: which machines and roles. `revision`: the git revision of the
    rack file's folder, with `+` when something there is not committed; empty outside git. `plan`: its fingerprint;
    empty for a command without a plan, such as `sparkrack reboot`."""

    event: Literal["run_started"] = "run_started"
    schema_: Literal["sparkrack.journal/2"] = Field("sparkrack.journal/2", alias="schema", serialization_alias="schema")
    operator: Text
    scope: Text
    file: Text
    revision: str
    plan: str


class JournalField(BaseModel):
    """One named setting: its actual and its desired value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Text
    old: Text | None
    new: Text | None


class HostMessage(JournalRecord):
    """One thing that an operation reports of a machine; the fields are those of a plan. The differences of a file stand
    in the plan only."""

    event: Literal["message"] = "message"
    host: str
    role: str
    kind: EventKind
    subject: Text | None
    old: Text | None
    new: Text | None
    fields: tuple[JournalField, ...]
    path: Text | None
    menu: Text | None
    action: Action | None
    detail: Text | None
    message: Text

    @classmethod
    def of(cls, run: str, host: str, event: Event) -> Self:
        """The line about an event of a host."""
        names = cls.model_fields.keys() - JournalRecord.model_fields.keys() - {"event", "host", "fields"}
        fields = tuple(JournalField(name=one.name, old=one.old, new=one.new) for one in event.fields)
        return cls(run=run, host=host, fields=fields, **{name: getattr(event, name) for name in names})


class HostError(JournalRecord):
    """An operation ended as none should: its connection was lost, or the program has a fault."""

    event: Literal["host_error"] = "host_error"
    host: str
    reason: Text


class OperationFinished(JournalRecord):
    """One operation has ended on one machine; `seconds` it took."""

    event: Literal["operation_finished"] = "operation_finished"
    host: str
    role: str
    operation: str
    result: Result
    seconds: float


class RunFinished(JournalRecord):
    """The last line; none when the run was killed. `failed`: machines on which an operation failed.
    `in_progress`: those that were in the middle of one, with its sentence."""

    event: Literal["run_finished"] = "run_finished"
    result: RunResult
    failed: tuple[str, ...]
    in_progress: dict[str, Text]


Line = Annotated[RunStarted | HostMessage | HostError | OperationFinished | RunFinished, Field(discriminator="event")]
"""Any line, distinguished by its `event`."""
KINDS: tuple[type[JournalRecord], ...] = (RunStarted, HostMessage, HostError, OperationFinished, RunFinished)
EVENTS = tuple(str(kind.model_fields["event"].default) for kind in KINDS)
"""The events of a line; docs/apply.md lists the fields of each."""


def log_path(journal: Path) -> Path:
    """Return the path of the debug log of a run: beside its journal."""
    return journal.with_suffix(".log")


def remove_journal(journal: Path) -> None:
    """Remove a journal and its debug log, if they exist. Raises OSError."""
    journal.unlink(missing_ok=True)
    log_path(journal).unlink(missing_ok=True)


class RunJournal:
    """The journal of one run. Each line is written after its event."""

    def __init__(self, folder: Path, run: str) -> None:
        """`folder`: where the journals of the rack are. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.ndjson"))[: -MAX_JOURNALS + 1]:
            remove_journal(old)
        self.path = folder / f"{run}.ndjson"
        self.run = run
        # It gets its name when it is locked: until then a reader would take it for that of a run that ended.
        unlocked = folder / f".{run}.new"
        self._file = os.open(unlocked, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)
        # The kernel releases it when this process ends, however it ends: `sparkrack runs` knows by it what is in
        # progress. Without it, where a file system has no locks, the run is unknown there until it has an end.
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            os.link(unlocked, self.path)  # unlike a rename, never over another file
        finally:
            unlocked.unlink()

    def write(self, line: Line) -> None:
        """One line, at once and whole. Raises OSError, after which no line is whole."""
        # In ASCII: the output of a host may contain line separators and terminal controls.
        left = (json.dumps(line.model_dump(mode="json", by_alias=True)) + "\n").encode()
        while left:
            left = left[os.write(self._file, left) :]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
