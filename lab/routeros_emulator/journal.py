"""The emulator's own record of every command, one JSON object a line; no password is ever in it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path


class CommandJournal:
    """Appends to a file and counts.

    Each line has ``time`` (UTC), ``session``, ``user``, ``peer``, ``kind`` (``read``, ``write``,
    ``session``), ``service``, ``command``, ``words`` (masked) and ``result`` (``done``, or what was answered instead).
    Writes are the lines with kind ``write`` and result ``done``.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def record(self, kind: str, menu: str, result: str, **facts: object) -> None:
        """Write one line and count the command for its menu; refused ones are counted apart."""
        if kind == "read":
            self.reads[menu] += 1
        elif kind == "write":
            (self.writes if result == "done" else self.refused)[menu] += 1
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._file.write(json.dumps({"time": time, "kind": kind, **facts, "result": result}) + "\n")

    def stats(self) -> dict[str, dict[str, int]]:
        """Commands per menu since the start."""
        return {"reads": dict(self.reads), "writes": dict(self.writes), "refused": dict(self.refused)}

    def forget(self) -> None:
        """Count from nothing again; the file keeps its lines."""
        for counts in (self.reads, self.writes, self.refused):
            counts.clear()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
