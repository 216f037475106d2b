"""Run pytest, and the tests that failed once more, alone: `python -m tests.run_twice [arguments of pytest]`.

Thousands of tests share two cores with virtual racks, so a test can fail because another one took the processor. Such a
test passes alone; a fault of the product fails again. The failed tests of at most `MOST` files are run again, and each
is named as unstable (docs/decisions/0024-a-failed-test-runs-twice.md). The slowest files of the first run are printed
again after the second.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.end_of_run import CACHE, time_line

MOST = 3
"""Failures in more files are not by chance. One failure in a file can bring others: its tests may share a rack."""
VALUES = ".pytest_cache/v"
"""Where pytest's cache has its values."""
LAST_FAILED = f"{VALUES}/cache/lastfailed"
LAST_LINES = f"{VALUES}/{CACHE}"
TESTS_FAILED = 1
"""The exit status of pytest when all tests ran and some failed; any other one is an error of the run itself."""


def recorded(folder: Path, name: str) -> list[str]:
    """Return what the last run of pytest in this folder recorded under this name; nothing when there is none."""
    try:
        return list(json.loads((folder / name).read_text()))
    except FileNotFoundError:
        return []


def main(arguments: list[str], folder: Path) -> int:
    """Return the exit status of the first run, or 0 when its failed tests passed alone."""
    pytest = [sys.executable, "-m", "pytest"]
    started = time.monotonic()
    # Failures of an earlier run would be taken for failures of this one.
    first = subprocess.run([*pytest, "--cache-clear", *arguments], cwd=folder).returncode
    failed, lines = recorded(folder, LAST_FAILED), recorded(folder, LAST_LINES)
    if first != TESTS_FAILED or not 1 <= len({test.partition("::")[0] for test in failed}) <= MOST:
        return first
    print(f"\n{len(failed)} failed; running them once more, alone", flush=True)
    second = subprocess.run([*pytest, *failed], cwd=folder).returncode
    for line in (f"{time_line(time.monotonic() - started)} for both runs", *lines):
        print(line)
    if second != 0:
        return first
    for test in failed:
        print(f"unstable: {test} failed beside other tests and passed alone")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], Path.cwd()))
