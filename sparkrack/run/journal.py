"""What a run did, line by line, while it does it: NDJSON on the operator's machine, also of a run that fails.

Each kind of line is a model, and a line is what its model prints. The schema in docs/reference/schemas is made from the
models, so it cannot say anything else.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from sparkrack.fleet.record import Text
from sparkrack.ops.account import Sort

MOST = 500
"""So many journals are kept of a rack."""

Result = Literal["changed", "no change", "failed", "cut off"]
"""What came of one operation on one machine."""
RunResult = Literal["done", "failed", "stopped", "cut off"]
"""What came of a run."""


Moment = Annotated[
    AwareDatetime,
    PlainSerializer(lambda at: at.astimezone(UTC).isoformat(timespec="milliseconds"), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""ISO 8601, UTC, milliseconds."""


class Entry(BaseModel):
    """What every line of a journal has. `run`: the ID of the run or rebuild, which is also the name of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)

    run: str
    at: Moment = Field(default_factory=lambda: datetime.now(UTC))


class Began(Entry):
    """The first line. `who`: user@machine. `what`: which machines and roles. `revision`: the git revision of the rack
    file's folder, with `+` when something there is not committed; empty outside git. `plan`: its fingerprint."""

    event: Literal["began"] = "began"
    schema_: Literal["sparkrack.journal/1"] = Field("sparkrack.journal/1", alias="schema", serialization_alias="schema")
    who: Text
    what: Text
    file: Text
    revision: str
    plan: str


class Said(Entry):
    """One thing that an operation says of a machine."""

    event: Literal["said"] = "said"
    host: str
    sort: Sort
    text: Text


class Broke(Entry):
    """An operation ended as none should: its connection was lost, or the program has a fault."""

    event: Literal["broke"] = "broke"
    host: str
    why: Text


class Stepped(Entry):
    """One operation has ended on one machine; `seconds` it took."""

    event: Literal["step"] = "step"
    host: str
    role: str
    step: str
    result: Result
    seconds: float


class Ended(Entry):
    """The last line; none when the run was killed. `failed`: machines on which an operation failed. `at_hand`: those
    that were in the middle of one, with its sentence."""

    event: Literal["ended"] = "ended"
    result: RunResult
    failed: tuple[str, ...]
    at_hand: dict[str, Text]


Line = Annotated[Began | Said | Broke | Stepped | Ended, Field(discriminator="event")]
"""Any line, told apart by its `event`."""
KINDS: tuple[type[Entry], ...] = (Began, Said, Broke, Stepped, Ended)
EVENTS = tuple(str(kind.model_fields["event"].default) for kind in KINDS)
"""What a line may be about; docs/apply.md says which fields each has."""


class Journal:
    """The journal of one run. Each line is there as soon as what it tells has happened."""

    def __init__(self, folder: Path, run: str) -> None:
        """`folder`: where the journals of the rack are. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.ndjson"))[: -MOST + 1]:
            old.unlink(missing_ok=True)
        self.path = folder / f"{run}.ndjson"
        self.run = run
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o600)

    def write(self, line: Line) -> None:
        """One line, at once and whole. Raises OSError, after which no line is whole."""
        # In ASCII: what a machine said may hold line separators and terminal controls.
        left = (json.dumps(line.model_dump(mode="json", by_alias=True)) + "\n").encode()
        while left:
            left = left[os.write(self._file, left) :]

    def close(self) -> None:
        """Nothing more is written."""
        os.close(self._file)
