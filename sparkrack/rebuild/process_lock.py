"""One rebuild of a rack at a time on this machine: a lock that lives as long as the rebuild and the verb it called."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from core.model.errors import printable_line
from core.ops.run_lock import Holder, born

LOCK = "lock"
POLL_SECONDS = 0.2
_SIZE = 4096


class BusyError(Exception):
    """Another rebuild of the rack is active on this machine. The text names operator, start time and scope."""


@contextmanager
def exclusive(folder: Path, own: Holder, timeout: float, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock, and yield its descriptor: a child that inherits it holds the lock until it ends.

    A killed rebuild leaves such a child, which completes its current step; `timeout`: how many seconds to wait for
    that. Raises BusyError for an active rebuild, OSError when there can be no lock.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _take_lock(handle, timeout, say)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "born": born(os.getpid()), "is": str(own)}).encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _take_lock(handle: int, timeout: float, say: Callable[[str], None]) -> None:
    until = time.monotonic() + timeout
    reported = False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        holder, pid, gone = _read_holder(handle)
        if not gone:
            raise BusyError(f"{holder} (process {pid}) rebuilds this rack; nothing was started")
        if not reported:
            say(f"{holder} was killed, and its command is still completing a step; waiting for it")
            reported = True
        if time.monotonic() > until:
            raise BusyError(f"the command of {holder} has not ended within {timeout:g} s; nothing was started")
        time.sleep(POLL_SECONDS)


def _read_holder(handle: int) -> tuple[str, int, bool]:
    """Return the holder of the lock from its content, the process, and whether that has ended."""
    try:
        record = json.loads(os.pread(handle, _SIZE, 0))
        holder, pid, since = printable_line(str(record["is"]))[:_SIZE], int(record["pid"]), record["born"]
    except (ValueError, KeyError, TypeError):
        return "an unknown run", 0, False  # perhaps it is being written
    return holder, pid, since != born(pid)
