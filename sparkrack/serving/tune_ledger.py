"""The ledger of `sparkrack serve tune`: a line of JSON for each step, on the disk before the next step begins."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from core.model.errors import printable_line
from core.util import regular_file
from core.util.command_error import CommandError
from core.util.paths import state_folder
from core.util.records import Record, Text
from sparkrack.serving.tune_judgement import Cause
from sparkrack.serving.tune_tries import Try

MAX_LEDGERS = 50
"""Ledgers that are kept of a unit."""
LOG_SUFFIX = ".log"
"""Of the file beside a ledger with all that the steps printed."""
Verdict = Literal["baseline", "kept", "not better", "failed", "unknown", "refused", "interrupted"]
"""`baseline`: the unit as rack.yaml declares it. `refused`: by `check`, before anything was changed. `unknown`: a node
gave no answer before the unit was asked to start, so nothing is known of the value. `interrupted`: by Ctrl-C. Both are
tried again by `--resume`."""
Value = str | bool | int | float
FINAL: tuple[Verdict, ...] = ("kept", "not better", "failed", "refused")


class _Line(Record):
    """What each line has. `at`: when, UTC."""

    at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class TriedValue(Record):
    """One value to try."""

    key: str
    value: Value


class TuneBegun(_Line):
    """The first line. `tries`: all that is to be tried, in order. `revision`: see docs/apply.md."""

    event: Literal["begun"] = "begun"
    schema_: Literal["sparkrack.serve-tune/1"] = Field(
        "sparkrack.serve-tune/1", alias="schema", serialization_alias="schema"
    )
    rack: str
    file: Text
    revision: str
    unit: str
    image: Text
    nodes: tuple[str, ...]
    tries: tuple[TriedValue, ...]


class TrialStarted(_Line):
    """A trial begins: from here to its `judged` the nodes may have its files. No key: the unit as declared."""

    event: Literal["started"] = "started"
    key: str = ""
    value: Value = ""


class TrialRun(_Line):
    """One measurement of a trial. `tokens_s`: tokens a second."""

    event: Literal["run"] = "run"
    key: str = ""
    value: Value = ""
    tokens_s: float


class TrialJudged(_Line):
    """A trial has ended. `tokens_s`: tokens a second of each run. `before`: those that it was compared with.

    `start_s`: seconds of gates and start. `memory_left`: the least GiB that were available on a node.
    """

    event: Literal["judged"] = "judged"
    key: str = ""
    value: Value = ""
    verdict: Verdict
    cause: Cause = ""
    reason: Text = ""
    tokens_s: tuple[float, ...] = ()
    before: tuple[float, ...] = ()
    start_s: float | None = None
    memory_left: float | None = None


class TuneEnded(_Line):
    """The last line; none when the run was killed. `serves`: whether the unit serves as rack.yaml declares it."""

    event: Literal["ended"] = "ended"
    serves: bool
    reason: Text = ""


Line = Annotated[TuneBegun | TrialStarted | TrialRun | TrialJudged | TuneEnded, Field(discriminator="event")]
_LINES: TypeAdapter[Line] = TypeAdapter(Line)


class TuneLedger:
    """One ledger. `lines`: what is in it."""

    def __init__(self, path: Path, lines: Iterable[Line] = ()) -> None:
        self.path = path
        self.lines = list(lines)

    def write(self, line: Line) -> None:
        """Append a line, and return when it is on the disk. Raises CommandError."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                _cut_torn_line(file.fileno())
                file.write(line.model_dump_json(by_alias=True).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CommandError(f"{self.path}: cannot be written: {error.strerror or error}") from None
        self.lines.append(line)

    @property
    def begun(self) -> TuneBegun:
        first = self.lines[0]
        assert isinstance(first, TuneBegun)  # noqa: S101 - as it was read
        return first

    @property
    def judged(self) -> list[TrialJudged]:
        return [one for one in self.lines if isinstance(one, TrialJudged)]

    @property
    def ended(self) -> TuneEnded | None:
        last = self.lines[-1]
        return last if isinstance(last, TuneEnded) else None

    @property
    def is_done(self) -> bool:
        """Whether all is judged, and the unit serves as rack.yaml declares it."""
        return self.ended is not None and self.ended.serves and not self.ended.reason and not self.open_tries

    def unjudged_runs(self, tried: Try) -> tuple[float, ...] | None:
        """Return the runs of a trial that was begun last and is not judged, None for another one."""
        runs: list[float] | None = None
        for line in self.lines:
            if isinstance(line, TrialStarted | TrialRun | TrialJudged) and not line.key:
                continue  # of the unit as declared, which a run that is resumed measures first
            if isinstance(line, TrialStarted):
                runs = [] if (line.key, str(line.value)) == (tried.key, str(tried.value)) else None
            elif isinstance(line, TrialJudged):
                runs = None
            elif isinstance(line, TrialRun) and runs is not None:
                runs.append(line.tokens_s)
        return None if runs is None else tuple(runs)

    @property
    def open_tries(self) -> tuple[Try, ...]:
        """What is not judged yet: also a trial that was killed."""
        done = {(one.key, str(one.value)) for one in self.judged if one.verdict in FINAL}
        tries = (Try(one.key, one.value) for one in self.begun.tries)
        return tuple(one for one in tries if (one.key, str(one.value)) not in done)


def _cut_torn_line(file: int) -> None:
    """Cut what a killed run has left of its last line."""
    size = os.fstat(file).st_size
    tail = os.pread(file, size, 0)
    whole = tail.rfind(b"\n") + 1
    if whole < size:
        os.ftruncate(file, whole)


def folder(rack: str, unit: str) -> Path:
    """Return the folder of the ledgers of a unit."""
    return state_folder(rack) / "tune" / unit


def new_ledger(begun: TuneBegun) -> TuneLedger:
    """Begin a ledger, and keep only the newest `MAX_LEDGERS`. Raises CommandError."""
    at = begun.at.astimezone(UTC)
    path = folder(begun.rack, begun.unit) / f"{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03d}Z.ndjson"
    ledger = TuneLedger(path)
    ledger.write(begun)
    for old in sorted(path.parent.glob("[0-9]*Z.ndjson"), reverse=True)[MAX_LEDGERS:]:
        for path in (old, old.with_suffix(LOG_SUFFIX)):
            path.unlink(missing_ok=True)
    return ledger


def last_ledger(rack: str, unit: str) -> TuneLedger | None:
    """Return the newest ledger of a unit, None where it has none. Raises CommandError for one that cannot be read."""
    paths = sorted(folder(rack, unit).glob("[0-9]*Z.ndjson"))
    return read_ledger(paths[-1]) if paths else None


def read_ledger(path: Path) -> TuneLedger:
    """Read a ledger without the torn last line of a run that was killed. Raises CommandError."""
    try:
        whole = regular_file.read_bytes(path).rpartition(b"\n")[0]
        lines = [_LINES.validate_json(line) for line in whole.split(b"\n") if line]
    except OSError as error:
        raise CommandError(f"{path}: the ledger cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        what = error.errors(include_url=False)[0]
        place = ".".join(map(str, what["loc"]))
        raise CommandError(printable_line(f"{path}: is not a ledger: {place}: {what['msg']}")) from None
    if not lines or not isinstance(lines[0], TuneBegun):
        raise CommandError(f"{path}: is not a ledger: it has no first line")
    return TuneLedger(path, lines)
