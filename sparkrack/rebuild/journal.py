"""What a rebuild did, line by line: NDJSON on the operator's machine, from which a rebuild that was cut off goes on.

Each line is on the disk before what follows it is begun. Each kind of line is a model, and the schema in
docs/reference/schemas is made from the models.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from sparkrack.fleet import regular
from sparkrack.fleet.record import Text
from sparkrack.rebuild.model import Phase, Request
from sparkrack.run.journal import Entry

MOST = 200
"""So many journals are kept of a rack."""
_NAME = re.compile(r"[0-9A-Za-z-]{1,64}\.ndjson")

PhaseResult = Literal["done", "failed", "cut off"]


class Began(Entry):
    """The first line. `who`: user@machine."""

    event: Literal["began"] = "began"
    schema_: Literal["sparkrack.rebuild-journal/1"] = Field(
        "sparkrack.rebuild-journal/1", alias="schema", serialization_alias="schema"
    )
    who: Text
    request: Request


class Resumed(Entry):
    """Another process goes on, at this phase."""

    event: Literal["resumed"] = "resumed"
    who: Text
    phase: Phase


class Entered(Entry):
    """A phase is begun, perhaps again."""

    event: Literal["phase"] = "phase"
    phase: Phase


class Called(Entry):
    """A verb is called with these words; none of them is a secret."""

    event: Literal["call"] = "call"
    words: tuple[Text, ...]


class Returned(Entry):
    """That verb has ended. `exit`: negative for a signal. `machine`: the node that was restarted by it, if it was."""

    event: Literal["returned"] = "returned"
    exit: int
    seconds: float
    machine: str | None = None


class Left(Entry):
    """A phase has ended."""

    event: Literal["left"] = "left"
    phase: Phase
    result: PhaseResult
    seconds: float
    why: Text = ""


class Ended(Entry):
    """The process has ended by itself; none when it was killed. Only after `done` there is nothing to go on with."""

    event: Literal["ended"] = "ended"
    result: PhaseResult


Line = Annotated[Began | Resumed | Entered | Called | Returned | Left | Ended, Field(discriminator="event")]
"""Any line, told apart by its `event`."""
KINDS: tuple[type[Entry], ...] = (Began, Resumed, Entered, Called, Returned, Left, Ended)
EVENTS = tuple(str(kind.model_fields["event"].default) for kind in KINDS)
_ANY: TypeAdapter[Line] = TypeAdapter(Line)


@dataclass(frozen=True)
class Past:
    """What a journal tells of the rebuild that wrote it."""

    path: Path
    lines: tuple[Line, ...]

    @property
    def began(self) -> Began:
        """Its first line."""
        first = self.lines[0]
        assert isinstance(first, Began)  # noqa: S101 - `past` gives no other
        return first

    @property
    def finished(self) -> bool:
        """Whether there is nothing to go on with."""
        return any(isinstance(line, Ended) and line.result == "done" for line in self.lines)

    @property
    def done(self) -> frozenset[Phase]:
        """The phases that ended well."""
        return frozenset(line.phase for line in self.lines if isinstance(line, Left) and line.result == "done")

    @property
    def restarted(self) -> tuple[str, ...]:
        """The nodes that were restarted, each proven afterwards."""
        return tuple(
            line.machine for line in self.lines if isinstance(line, Returned) and line.machine and line.exit == 0
        )

    def called(self, *words: str) -> bool:
        """Whether a verb was ever called with words that begin so."""
        return any(isinstance(line, Called) and line.words[: len(words)] == words for line in self.lines)

    def tries(self, phase: Phase) -> int:
        """How often a phase was begun."""
        return sum(isinstance(line, Entered) and line.phase is phase for line in self.lines)

    def seconds(self, phase: Phase) -> float:
        """How long its tries took, of which anybody saw the end."""
        return sum(line.seconds for line in self.lines if isinstance(line, Left) and line.phase is phase)


def past(path: Path) -> Past | None:
    """What a journal tells; None when it is none of ours, or does not hold one whole line. Raises OSError.

    A last line that is torn, as by a loss of power, is left out. Anything else that cannot be read makes the rest of
    the file worthless, since nobody knows what it told.
    """
    whole, _, _ = regular.read_bytes(path).rpartition(b"\n")
    lines: list[Line] = []
    try:
        for text in whole.split(b"\n"):
            lines.append(_ANY.validate_json(text))
    except ValidationError:
        return None
    if not lines or not isinstance(lines[0], Began) or any(line.run != path.stem for line in lines):
        return None
    return Past(path, tuple(lines))


def journals(folder: Path) -> list[Path]:
    """The journals of a rack in the order in which they were begun. Raises OSError."""
    # A name tells the second. Of two begun within one the later was written later: only one goes on at a time.
    return sorted(
        (path for path in folder.glob("*.ndjson") if _NAME.fullmatch(path.name)),
        key=lambda path: (path.stem.partition("-")[0], path.stat().st_mtime_ns),
    )


def newest(folder: Path) -> tuple[Path, Past | None] | None:
    """The journal that was begun last, and what it tells; None when there is none. Raises OSError."""
    found = journals(folder)
    return (found[-1], past(found[-1])) if found else None


class Journal:
    """The journal of one rebuild, new or gone on with."""

    def __init__(self, folder: Path, run: str) -> None:
        """`folder`: where the journals of the rack are. Raises OSError."""
        old = [path for path in journals(folder) if path.stem != run]
        for path in old[: len(old) - MOST + 1]:
            path.unlink(missing_ok=True)
        self.path = folder / f"{run}.ndjson"
        self.run = run
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        _sync_folder(folder)
        # A torn last line told nobody anything; with it the next one would not be whole.
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
        """Nothing more is written."""
        os.close(self._file)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
