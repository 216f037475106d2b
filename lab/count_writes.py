"""Count the writes in the emulated switches' logs: `python -m lab.count_writes LOG...`"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path


def count(logs: Iterable[Path]) -> int:
    """Return the number of executed writes."""
    lines = (json.loads(line) for log in logs for line in log.read_text().splitlines())
    return sum(line["kind"] == "write" and line["result"] == "done" for line in lines)


if __name__ == "__main__":
    print(count(map(Path, sys.argv[1:])))
