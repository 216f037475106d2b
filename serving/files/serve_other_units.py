"""The other units of this node, for the gate of one: one gate at a time, and what they have not taken yet.

The gate of each unit has a file beside this one's, NAME.gate.json. A gate that passes before a start leaves

    /run/sparkrack-serve/NAME/loading    {"at", "available", "bytes"}

the time by the monotonic clock, the bytes that were available then, and those that its unit takes. The agent of that
unit removes it when a completion has proven the unit, or when it is stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from serve_gate_command import GateError
from serve_slice import CGROUPS, UnitSlice
from serve_unit import ServeError, line, read_record, write_record

MARKS = "/run/sparkrack-serve"
LOCK_LIMIT = 240.0
"""Seconds that the gate of another unit may hold this node: its container, memory that is freed, and CUDA."""
LOCK_LOOK = 0.2


class OtherUnits:
    """The units beside one. `slot`: of that unit; `folder`: of the files of all gates; `place`: of a path of the
    node."""

    def __init__(self, unit: str, slot: str | None, folder: Path, place: Callable[[str], str]) -> None:
        self.unit, self.slot, self.folder, self.place = unit, slot, folder, place

    @contextlib.contextmanager
    def one_gate_at_a_time(self) -> Iterator[None]:
        """Hold the lock of the gates of this node. Raises GateError when another unit's gate does not end in time."""
        descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            until = time.monotonic() + LOCK_LIMIT
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until:
                        raise GateError(
                            f"the gate of another unit has not ended on this node within {LOCK_LIMIT:g} s; start "
                            f"{self.unit} when that unit is up, or has failed"
                        ) from None
                time.sleep(LOCK_LOOK)
            yield
        finally:
            os.close(descriptor)

    def check_slot(self) -> None:
        """No other unit of the slot runs here, or is about to."""
        for name, slot in self._read_slots().items():
            if self.slot is None or slot != self.slot:
                continue
            try:
                runs = Path(self.place(f"{MARKS}/{name}/wanted")).exists() or self._slice_of_unit(name).populated()
            except ServeError as error:
                raise GateError(
                    f"whether unit {name} of slot {self.slot} runs here is unknown: {error}; restart the node"
                ) from None
            if runs:
                raise GateError(
                    f"unit {name} of slot {self.slot} runs here, and one unit of a slot is up at a time; `sparkrack "
                    f"serve use {self.unit}` stops it first"
                )

    def processes(self) -> set[int]:
        """Return the processes of the units that may run beside this one."""
        found: set[int] = set()
        for name, slot in self._read_slots().items():
            if self.slot is None or slot != self.slot:
                found.update(self._slice_of_unit(name).processes())
        return found

    def not_taken_yet(self, available: int) -> tuple[int, list[str]]:
        """Return the bytes that units which load here have not taken yet, and their names.

        What they have taken is the decrease of the available memory: what others took counts as theirs.
        """
        loading = []
        for name in self._read_slots():
            path = self.place(f"{MARKS}/{name}/loading")
            try:
                record = read_record(path)
                if record is not None:
                    loading.append((float(record["at"]), int(record["available"]), int(record["bytes"]), name))
            except (ServeError, LookupError, TypeError, ValueError) as error:
                raise GateError(
                    f"what unit {name} takes here is unknown: {path}: {line(repr(error), 120)}; stop unit {name}"
                ) from None
        loading.sort()
        most = 0
        for number, (_, before, _, _) in enumerate(loading):
            taken = max(0, before - available)
            most = max(most, sum(one[2] for one in loading[number:]) - taken)
        return most, [one[3] for one in loading]

    def note_start(self, available: int, wanted: int) -> None:
        """Leave what this unit takes for the gates of others. Raises GateError."""
        path = Path(self.place(f"{MARKS}/{self.unit}/loading"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_record(str(path), {"at": time.monotonic(), "available": available, "bytes": wanted}, durable=False)
        except OSError as error:
            raise GateError(f"{path} cannot be written: {error.strerror}; look at `df /run`") from None

    def _slice_of_unit(self, name: str) -> UnitSlice:
        return UnitSlice(name, self.place(CGROUPS))

    def _read_slots(self) -> dict[str, Any]:
        """Return the slot of each other unit of this node by its name."""
        found: dict[str, Any] = {}
        for path in sorted(self.folder.glob("*.gate.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                name = str(content["unit"])
                found[name] = content.get("slot")
            except (OSError, ValueError, LookupError, TypeError, AttributeError):
                raise GateError(f"{path} is not the file of a gate; run `sparkrack apply --only serving`") from None
        found.pop(self.unit, None)
        return found
