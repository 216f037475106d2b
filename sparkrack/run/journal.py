"""What a run did, line by line, while it does it: NDJSON on the operator's machine, also of a run that fails."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = "sparkrack.journal/1"
EVENTS = ("began", "said", "broke", "step", "ended")
"""What a line may be about; docs/apply.md says which fields each has."""
MOST = 500
"""So many journals are kept of a rack."""


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

    def write(self, event: str, **fields: Any) -> None:
        """One line, at once and whole. `event`: one of EVENTS. Raises OSError, after which no line is whole."""
        line = {"run": self.run, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
        # In ASCII: what a machine said may hold line separators, terminal controls, or be no text at all.
        left = (json.dumps(line) + "\n").encode()
        while left:
            left = left[os.write(self._file, left) :]

    def close(self) -> None:
        """Nothing more is written."""
        os.close(self._file)
