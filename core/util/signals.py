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


def interrupt_main_greenlet() -> None:
    """Let Ctrl-C raise KeyboardInterrupt in the greenlet that calls this, the main one.

    Python raises it in the greenlet that runs at that moment. In one that stands in for a thread, such as the display
    of the progress, it would end that greenlet only, and the command would continue. An ignored SIGINT, as under nohup,
    stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    main, loop = gevent.getcurrent(), get_hub().loop

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        if gevent.getcurrent() is main:  # also in a prompt, in which gevent's loop does not run
            raise KeyboardInterrupt
        loop.run_callback_threadsafe(main.throw, KeyboardInterrupt)

    signal.signal(signal.SIGINT, interrupted)


class Interrupt:
    """While this is entered, the first of SIGNALS only records that the run is to end, and calls `on_signal`; the next
    raises KeyboardInterrupt in the program's main line. An ignored signal, as under nohup, stays ignored.
    """

    def __init__(self, on_signal: Callable[[], object]) -> None:
        self._on_signal = on_signal
        self._asked = False
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def asked(self) -> bool:
        """Return whether the run is to end."""
        return self._asked

    def __enter__(self) -> Interrupt:
        self._main, self._loop = gevent.getcurrent(), get_hub().loop
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_number)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _on_number(self, number: int, _frame: FrameType | None) -> None:
        # Python calls this wherever it is at that moment, which may be in any host's part of the run.
        self._loop.run_callback_threadsafe(self._act_on_signal, number)

    def _act_on_signal(self, number: int) -> None:
        if not self._asked:
            self._asked = True
            self._on_signal()
        elif self._before and number != signal.SIGHUP:
            self._main.throw(KeyboardInterrupt)
