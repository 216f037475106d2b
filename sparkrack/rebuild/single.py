"""One rebuild of a rack at a time on this machine: a lock that lives as long as the rebuild and the verb it called."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparkrack.fleet.errors import one_line
from sparkrack.ops.lock import Holder, born

LOCK = "lock"
PAUSE = 0.2
_SIZE = 4096


class BusyError(Exception):
    """Another rebuild of the rack goes on here. The text says who, since when and what."""


@contextmanager
def alone(folder: Path, mine: Holder, patience: float, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the lock, and give its descriptor: a child that has it too holds the lock until it ends.

    A rebuild that was killed leaves such a child, which ends what it has in hand; `patience`: how many seconds to wait
    for that. Raises BusyError for a rebuild that goes on, OSError when there can be no lock.
    """
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _take(handle, patience, say)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "born": born(os.getpid()), "is": str(mine)}).encode(), 0)
        yield handle
    finally:
        os.close(handle)


def _take(handle: int, patience: float, say: Callable[[str], None]) -> None:
    until = time.monotonic() + patience
    told = False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        who, pid, gone = _holder(handle)
        if not gone:
            raise BusyError(f"{who} (process {pid}) rebuilds this rack; nothing was begun")
        if not told:
            say(f"{who} was killed, and what it called still ends its step; waiting for that")
            told = True
        if time.monotonic() > until:
            raise BusyError(f"what {who} called has not ended within {patience:g} s; nothing was begun")
        time.sleep(PAUSE)


def _holder(handle: int) -> tuple[str, int, bool]:
    """Who holds the lock by what is written in it, the process, and whether that is gone."""
    try:
        said = json.loads(os.pread(handle, _SIZE, 0))
        who, pid, since = one_line(str(said["is"]))[:_SIZE], int(said["pid"]), said["born"]
    except (ValueError, KeyError, TypeError):
        return "somebody", 0, False  # perhaps it is being written
    return who, pid, since != born(pid)
