"""Waiting for what a settle time or a lost connection brings about, without judging how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0


def until(true: Callable[[], bool]) -> None:
    """Ask again and again until it holds; AssertionError after 60 s."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.01)
