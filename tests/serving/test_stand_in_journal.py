"""The stand-in of journalctl for a service: what one call leaves, another can read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("journal_entries.py")
UNLIMITED = "unlimited"


def entries(log: Path, most_bytes: str = UNLIMITED) -> list[dict[str, str]]:
    """What a call prints. `most_bytes`: of a file that it writes; it is ended there, as by a kill."""
    words = ["prlimit", f"--fsize={most_bytes}", sys.executable, str(PROGRAM), str(log)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode == 0) == (most_bytes == UNLIMITED), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_call_that_was_ended_while_it_wrote_leaves_the_times_of_the_calls_before(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\n")
    (first,) = entries(log)
    log.write_text("one\ntwo\n")
    entries(log, most_bytes="5")
    again = entries(log)
    assert [one["MESSAGE"] for one in again] == ["one", "two"]
    assert again[0]["__REALTIME_TIMESTAMP"] == first["__REALTIME_TIMESTAMP"]
