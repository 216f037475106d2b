"""Results of a run of `sparkrack accept`, in a file beside its output: a run that was ended goes on there."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Literal, Self

from pydantic import Field, ValidationError

from core.claims.claims import CLAIMS
from core.model import Rack
from core.util import regular_file
from core.util.records import Record
from sparkrack.accept.model import ClaimResult

FILE = "accept.unfinished.ndjson"
"""Name of the file. It is removed when the run has ended."""
_LARGEST = 64 << 20


class StateHead(Record):
    """The first line: what the run is about. Results of another rack, other claims or hosts count for nothing."""

    schema_: Literal["sparkrack.accept-state/1"] = Field(
        "sparkrack.accept-state/1", alias="schema", serialization_alias="schema"
    )
    subject: str = Field(description="SHA-256 of the rack file, the claims, the hosts and what is to be changed")


class BegunPart(Record):
    """A part of the level `load` that a run has begun: one that is killed leaves it to the next."""

    begun: str
    data: str


class AcceptState:
    """Results by claim; each is on the disk when `keep` returns. `found`: those of earlier runs; `begun`: the parts of
    the level `load` that they and this one began.
    """

    def __init__(self, path: Path, found: dict[str, ClaimResult], begun: dict[str, str], file: IO[bytes]) -> None:
        self.found, self.begun = found, begun
        self._path, self._file = path, file

    @classmethod
    def open(cls, folder: Path, rack: Rack, hosts: Sequence[str], spare: str) -> Self:
        """Continue the file of a folder, or begin one. Raises OSError."""
        path = folder / FILE
        parts = (regular_file.read_bytes(rack.source, _LARGEST), CLAIMS.read_bytes(), repr((hosts, spare)).encode())
        subject = hashlib.sha256(b"\0".join(parts)).hexdigest()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        file = os.fdopen(handle, "wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            file.close()
            raise OSError(fault.errno, "another run writes into this folder", str(path)) from None
        found, begun, good = _read(path, subject)
        # A line that was cut off, or what belongs to another run, is no part of it.
        file.truncate(good)
        file.seek(good)
        state = cls(path, found, begun, file)
        if not good:
            state._write(StateHead(subject=subject).model_dump_json(by_alias=True))
        return state

    def keep(self, result: ClaimResult) -> None:
        """Write a result to the disk; one without an answer is read again by the next run. Raises OSError."""
        if not result.unknown:
            self._write(result.model_dump_json())

    def begin(self, part: str, data: str) -> None:
        """Write to the disk that a part begins. Raises OSError."""
        self.begun[part] = data
        self._write(BegunPart(begun=part, data=data).model_dump_json())

    def close(self, *, ended: bool) -> None:
        """Close the file; remove it when the run has ended."""
        self._file.close()
        if ended:
            self._path.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _read(path: Path, subject: str) -> tuple[dict[str, ClaimResult], dict[str, str], int]:
    """The results in a file, the parts that were begun, and the bytes of its whole lines; nothing of a file about
    something else.
    """
    try:
        lines = regular_file.read_bytes(path, _LARGEST).splitlines(keepends=True)
    except FileNotFoundError:
        return {}, {}, 0
    found: dict[str, ClaimResult] = {}
    begun: dict[str, str] = {}
    good = 0
    for number, line in enumerate(lines):
        if not line.endswith(b"\n"):
            break
        try:
            if number == 0:
                if StateHead.model_validate_json(line).subject != subject:
                    return {}, {}, 0
            elif line.startswith(b'{"begun"'):
                part = BegunPart.model_validate_json(line)
                begun[part.begun] = part.data
            else:
                result = ClaimResult.model_validate_json(line)
                found[result.id] = result
        except ValidationError:
            break
        good += len(line)
    return found, begun, good
