"""Print the lines of a log as `journalctl --output=json` prints entries. A line has the time of the first call that saw
it, which is kept beside the log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(log: Path) -> None:
    """Print the entries."""
    kept = log.with_name(f"{log.name}.times")
    times: list[int] = json.loads(kept.read_text()) if kept.exists() else []
    lines = log.read_text(errors="replace").splitlines()
    times += [time.time_ns() // 1000] * (len(lines) - len(times))
    # Another call may read it now, and one that takes too long is killed while it writes.
    new = kept.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(times))
    new.replace(kept)
    for number, (at, text) in enumerate(zip(times, lines, strict=False)):
        entry = {"__CURSOR": str(number), "__REALTIME_TIMESTAMP": str(at), "MESSAGE": text}
        print(json.dumps({**entry, "SYSLOG_IDENTIFIER": "serve-run.sh"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
