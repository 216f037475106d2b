"""The unit's time: when it started, and how it writes dates."""

from __future__ import annotations

import time
from datetime import datetime

from . import durations


class Clock:
    """Counts from the moment it is made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def stamp(self) -> str:
        """Now, the way 7.10 and later print it: ``2026-11-20 18:31:00``, local time without zone."""
        return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")

    def uptime(self) -> str:
        """Time since start, as a RouterOS interval."""
        return durations.spell(int(time.monotonic() - self._start))

    def ticks(self) -> int:
        """Milliseconds since start, for counters that must move."""
        return int((time.monotonic() - self._start) * 1000)
