"""Ctrl-C: the first asks for an end, the second takes it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

import gevent
from gevent import get_hub


class Interrupt:
    """While this is entered, the first SIGINT or SIGTERM only notes that somebody wants the run to end, and calls
    `told`; the next raises KeyboardInterrupt in the program's main line."""

    def __init__(self, told: Callable[[], object]) -> None:
        self._told = told
        self._asked = False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def asked(self) -> bool:
        """Whether somebody wants the run to end."""
        return self._asked

    def __enter__(self) -> Interrupt:
        self._main = gevent.getcurrent()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _signal(self, _number: int, _frame: FrameType | None) -> None:
        # Python calls this wherever it is at that moment, which may be in any host's part of the run.
        get_hub().loop.run_callback_threadsafe(self._act)

    def _act(self) -> None:
        if self._asked:
            self._main.throw(KeyboardInterrupt)
        else:
            self._asked = True
            self._told()
