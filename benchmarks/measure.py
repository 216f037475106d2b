"""Run one command and measure it: process 1 of a separate process namespace, so that no process escapes.

`python -m benchmarks.measure RESULT LOG SECONDS COMMAND...` writes {"exit", "wall", "cpu", "peak", "idle"} to RESULT:
seconds from start to end of the command, seconds of user and system time of all its processes (including those that it
leaves behind, which are ended), the largest proportional set size observed of all of them together, in bytes, and the
seconds that the cores of the machine were idle meanwhile. The output of the command goes to LOG; SECONDS is its time
limit.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

SHARE = 0.01
"""The part of one core that looking at memory may take; what it finds is then a lower bound for short peaks."""
OFTEN = 0.05
"""Interval between two readings in seconds, at least."""


def main(result: Path, log: Path, seconds: float, command: list[str]) -> None:
    """Measure one command, which may take so many seconds."""
    peak = [0]
    done = threading.Event()
    watcher = threading.Thread(target=_watch_memory, args=(peak, done))
    with log.open("wb") as out:
        begin, idle = time.perf_counter(), idle_seconds()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        watcher.start()
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        wall, idle = time.perf_counter() - begin, idle_seconds() - idle
    done.set()
    watcher.join()
    _end_the_rest()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"exit": code, "wall": wall, "cpu": used.ru_utime + used.ru_stime, "peak": peak[0], "idle": idle}
    result.write_text(json.dumps(found))


def _watch_memory(peak: list[int], done: threading.Event) -> None:
    pause = OFTEN
    while not done.wait(pause):
        begin = time.thread_time()
        peak[0] = max(peak[0], memory())
        pause = max(OFTEN, (time.thread_time() - begin) / SHARE)


def idle_seconds() -> float:
    """Return the seconds that all cores of the machine together were idle or waited for a disk, since it started."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(words[4]) + int(words[5])) / os.sysconf("SC_CLK_TCK")


def memory() -> int:
    """The proportional set size of every process but this one, in bytes. A page that several share counts once."""
    found = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            try:
                text = (folder / "smaps_rollup").read_bytes()
            except OSError:
                continue  # it has ended
            found += next((int(line.split()[1]) for line in text.splitlines() if line.startswith(b"Pss:")), 0) * 1024
    return found


def _end_the_rest() -> None:
    """End what the command left behind, connections kept open for the next run above all, and take note of it."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    if os.getpid() != 1:
        sys.exit("benchmarks.measure ends every process around it: it must be process 1 of a namespace")
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
