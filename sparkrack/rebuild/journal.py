"""Journal of a rebuild, line by line: NDJSON on the operator's machine, from which an interrupted rebuild is resumed.

Each line is on the disk before the next step begins. Each kind of line is a model, and the schema in
docs/reference/schemas is generated from the models.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from core.util import regular_file
from core.util.records import Text
from sparkrack.engine.journal import JournalRecord, remove_journal
from sparkrack.rebuild.model import Phase, Request

MAX_JOURNALS = 200
"""Number of journals that are kept of a rack."""
_NAME = re.compile(r"[0-9A-Za-z-]{1,64}\.ndjson")

PhaseResult = Literal["done", "failed", "interrupted"]


class RebuildStarted(JournalRecord):
    """The first line. `who`: user@machine."""

    event: Literal["began"] = "began"
    schema_: Literal["sparkrack.rebuild-journal/2"] = Field(
        "sparkrack.rebuild-journal/2", alias="schema", serialization_alias="schema"
    )
    who: Text
    request: Request


class RebuildResumed(JournalRecord):
    """Another process resumes the rebuild at this phase."""

    event: Literal["resumed"] = "resumed"
    who: Text
    phase: Phase


class PhaseStarted(JournalRecord):
    """A phase begins, perhaps again."""

    event: Literal["phase"] = "phase"
    phase: Phase


class CommandStarted(JournalRecord):
    """A command is called with these words; none of them is a secret."""

    event: Literal["call"] = "call"
    words: tuple[Text, ...]


class CommandFinished(JournalRecord):
    """That command has ended. `exit`: negative for a signal. `machine`: the node that it restarted, if any."""

    event: Literal["returned"] = "returned"
    exit: int
    seconds: float
    machine: str | None = None


class PhaseFinished(JournalRecord):
    """A phase has ended."""

    event: Literal["left"] = "left"
    phase: Phase
    result: PhaseResult
    seconds: float
    reason: Text = ""


class RebuildFinished(JournalRecord):
    """The process has ended by itself; missing when it was killed. Only after `done` there is nothing to resume."""

    event: Literal["ended"] = "ended"
    result: PhaseResult


Line = Annotated[
    RebuildStarted | RebuildResumed | PhaseStarted | CommandStarted | CommandFinished | PhaseFinished | RebuildFinished,
    Field(discriminator="event"),
]
"""Any line, distinguished by its `event`."""
KINDS: tuple[type[JournalRecord], ...] = (
    RebuildStarted,
    RebuildResumed,
    PhaseStarted,
    CommandStarted,
    CommandFinished,
    PhaseFinished,
    RebuildFinished,
)
EVENTS = tuple(str(kind.model_fields["event"].default) for kind in KINDS)
_ANY: TypeAdapter[Line] = TypeAdapter(Line)


@dataclass(frozen=True)
class Past:
    """State of a rebuild, from its journal."""

    path: Path
    lines: tuple[Line, ...]

    @property
    def began(self) -> RebuildStarted:
        """Its first line."""
        first = self.lines[0]
        assert isinstance(first, RebuildStarted)  # noqa: S101 - `past` gives no other
        return first

    @property
    def finished(self) -> bool:
        """Whether there is nothing to resume."""
        return any(isinstance(line, RebuildFinished) and line.result == "done" for line in self.lines)

    @property
    def done(self) -> frozenset[Phase]:
        """The phases that ended successfully."""
        return frozenset(line.phase for line in self.lines if isinstance(line, PhaseFinished) and line.result == "done")

    @property
    def restarted(self) -> tuple[str, ...]:
        """The nodes that were restarted, each verified afterwards."""
        return tuple(
            line.machine for line in self.lines if isinstance(line, CommandFinished) and line.machine and line.exit == 0
        )

    def called(self, *words: str) -> bool:
        """Return whether a command was called whose words begin like these."""
        return any(isinstance(line, CommandStarted) and line.words[: len(words)] == words for line in self.lines)

    def tries(self, phase: Phase) -> int:
        """Return how often a phase was begun."""
        return sum(isinstance(line, PhaseStarted) and line.phase is phase for line in self.lines)

    def seconds(self, phase: Phase) -> float:
        """Return the duration of its completed tries."""
        return sum(line.seconds for line in self.lines if isinstance(line, PhaseFinished) and line.phase is phase)


def past(path: Path) -> Past | None:
    """Read a journal; None when it is not valid, or has no complete line. Raises OSError.

    An incomplete last line, as after a power loss, is ignored. Any other unreadable line invalidates the rest of the
    file, since its content is unknown.
    """
    whole, _, _ = regular_file.read_bytes(path).rpartition(b"\n")
    lines: list[Line] = []
    try:
        for text in whole.split(b"\n"):
            lines.append(_ANY.validate_json(text))
    except ValidationError:
        return None
    if not lines or not isinstance(lines[0], RebuildStarted) or any(line.run != path.stem for line in lines):
        return None
    return Past(path, tuple(lines))


def journals(folder: Path) -> list[Path]:
    """The journals of a rack in the order in which they were begun. Raises OSError."""
    # A name has the second. Of two begun in the same second the later one was written later: only one is active.
    return sorted(
        (path for path in folder.glob("*.ndjson") if _NAME.fullmatch(path.name)),
        key=lambda path: (path.stem.partition("-")[0], path.stat().st_mtime_ns),
    )


def newest(folder: Path) -> tuple[Path, Past | None] | None:
    """Return the newest journal, and its content; None when there is none. Raises OSError."""
    found = journals(folder)
    return (found[-1], past(found[-1])) if found else None


class RebuildJournal:
    """The journal of one rebuild, new or resumed."""

    def __init__(self, folder: Path, run: str) -> None:
        """`folder`: where the journals of the rack are. Raises OSError."""
        old = [path for path in journals(folder) if path.stem != run]
        for path in old[: len(old) - MAX_JOURNALS + 1]:
            remove_journal(path)
        self.path = folder / f"{run}.ndjson"
        self.run = run
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        _sync_folder(folder)
        # An incomplete last line has no effect; without this the next line would be invalid.
        size = os.fstat(self._file).st_size
        whole = os.pread(self._file, size, 0).rpartition(b"\n")
        os.ftruncate(self._file, len(whole[0]) + len(whole[1]))

    def write(self, line: Line) -> None:
        """One line, whole, and on the disk. Raises OSError."""
        left = (json.dumps(line.model_dump(mode="json", by_alias=True)) + "\n").encode()
        while left:
            left = left[os.write(self._file, left) :]
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
