"""Scripts that run: what they wait for, and how often each was started since the unit did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from lab.routeros_emulator.errors import TrapError
from lab.routeros_emulator.links import LinkTimer
from lab.routeros_emulator.script.lexer import ScriptError

if TYPE_CHECKING:
    from lab.routeros_emulator.clock import Clock
    from lab.routeros_emulator.script.interpreter import Course

Ended = Callable[[ScriptError | TrapError | None], None]


class Jobs:
    """Keeps running scripts going. ``later`` lends a timer."""

    def __init__(self, clock: Clock, later: Callable[[float, Callable[[], None]], LinkTimer]) -> None:
        self._clock, self._later = clock, later
        self._waiting: dict[Course, LinkTimer] = {}
        self.runs: Counter[tuple[str, int]] = Counter()
        self.last: dict[tuple[str, int], str] = {}

    def started(self, path: str, number: int) -> None:
        """Count a run of a row of /system/script or /system/scheduler."""
        self.runs[path, number] += 1
        self.last[path, number] = self._clock.stamp()

    def start(self, course: Course, ended: Ended) -> None:
        """Run a script to its end, over all its waits; ``ended`` then hears how it ended."""
        self._waiting.pop(course, None)
        try:
            wait = next(course)
        except StopIteration:
            ended(None)
        except (ScriptError, TrapError) as error:
            ended(error)
        else:
            self._waiting[course] = self._later(wait, lambda: self.start(course, ended))

    def stop(self) -> None:
        """End every script that waits, as a reboot does."""
        for course, timer in self._waiting.items():
            timer.cancel()
            course.close()
        self._waiting.clear()

    def forget(self) -> None:
        """End all and restart the numbers, as when the unit starts."""
        self.stop()
        self.runs.clear()
        self.last.clear()
