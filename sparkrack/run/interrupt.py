"""Ctrl-C: the first asks for an end, the second takes it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

import gevent
from gevent import get_hub

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""SIGHUP: the terminal is gone, as when the operator's own ssh session ends. It may come twice, from the shell and from
the kernel, and so never counts as the second."""


class Interrupt:
    """While this is entered, the first of SIGNALS only notes that somebody wants the run to end, and calls `told`; the
    next raises KeyboardInterrupt in the program's main line. One that is ignored, as under nohup, stays so."""

    def __init__(self, told: Callable[[], object]) -> None:
        self._told = told
        self._asked = False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def asked(self) -> bool:
        """Whether somebody wants the run to end."""
        return self._asked

    def __enter__(self) -> Interrupt:
        self._main, self._loop = gevent.getcurrent(), get_hub().loop
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _signal(self, number: int, _frame: FrameType | None) -> None:
        # Python calls this wherever it is at that moment, which may be in any host's part of the run.
        self._loop.run_callback_threadsafe(self._act, number)

    def _act(self, number: int) -> None:
        if not self._asked:
            self._asked = True
            self._told()
        elif self._before and number != signal.SIGHUP:
            self._main.throw(KeyboardInterrupt)
