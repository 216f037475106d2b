"""The unit's time: when it started, its zone, and how it writes dates."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from lab.routeros_emulator import durations


class Clock:
    """Clock that counts from its creation. It shows the time of this machine, shifted by manual settings, in the zone
    that /system/clock names.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.zone: tzinfo = UTC
        self.shift = timedelta()
        self.synchronized = False

    def live_in(self, zone: str) -> None:
        """Take a zone by its name; ``manual`` is UTC."""
        self.zone = UTC if zone == "manual" else ZoneInfo(zone)

    def now(self) -> datetime:
        """Now, in the unit's zone."""
        return (datetime.now(UTC) + self.shift).astimezone(self.zone)

    def stamp(self) -> str:
        """Now, the way 7.10 and later print it: ``2026-11-20 18:31:00``, local time without zone."""
        return spell(self.now())

    def skip(self, seconds: float) -> None:
        """Let time pass: the unit's clock and its uptime are that much further."""
        self.shift += timedelta(seconds=seconds)
        self._start -= seconds

    def up(self) -> float:
        """Seconds since start, which no setting of the clock changes."""
        return time.monotonic() - self._start

    def uptime(self) -> str:
        """Time since start, as a RouterOS interval."""
        return durations.spell(int(self.up()))

    def ticks(self) -> int:
        """Milliseconds since start, for counters that must move."""
        return int(self.up() * 1000)


def spell(moment: datetime) -> str:
    """Print a moment."""
    return moment.strftime("%Y-%m-%d %H:%M:%S")
