"""A line on a terminal as long as the program itself loads, which a slow disk makes last for seconds."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from core.util.progress import WITHOUT_PROGRESS

FIRST_SECONDS = 1.0
"""Seconds after the start of the program before the first line."""
EACH_SECONDS = 0.5
"""Seconds between two lines, each of which is written over the one before."""
QUIET_OPTIONS = frozenset({"--json", "--quiet", "--markdown"})
"""Options of commands that show no progress."""

_began = time.monotonic()


@contextmanager
def loading() -> Iterator[None]:
    """Show on a terminal that the block, which only imports modules, takes its time; the line is removed after it.

    An alarm signal and no thread: an import does not give way to the thread of a program that uses gevent.
    """
    silent = os.environ.get(WITHOUT_PROGRESS) or QUIET_OPTIONS & set(sys.argv)
    if silent or threading.current_thread() is not threading.main_thread() or not (sys.stderr and sys.stderr.isatty()):
        yield
        return
    width = 0

    def show(_number: int, _frame: FrameType | None) -> None:
        nonlocal width
        text = f"{time.monotonic() - _began:.0f} s: load the program"
        width = max(width, len(text))
        _write_to_terminal(f"\r{text}")

    before = signal.signal(signal.SIGALRM, show)
    signal.setitimer(signal.ITIMER_REAL, max(FIRST_SECONDS - (time.monotonic() - _began), 0.001), EACH_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if width:
            _write_to_terminal(f"\r{' ' * width}\r")


def _write_to_terminal(text: str) -> None:
    # Past the buffer of sys.stderr: the signal may interrupt a write to it.
    with suppress(OSError):
        os.write(2, text.encode())
