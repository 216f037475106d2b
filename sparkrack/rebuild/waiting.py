"""Wait until machines take connections: that they are there is all that is asked."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

PAUSE = 1.0
"""Seconds between two looks."""
CONNECT = 5.0
Door = tuple[str, int]
"""An address and a TCP port."""


def answers(door: Door) -> bool:
    """Whether somebody takes a connection there. Nothing is sent."""
    try:
        with socket.create_connection(door, CONNECT):
            return True
    except OSError:
        return False


def wait(
    doors: Mapping[str, Sequence[Door]], patience: float, say: Callable[[str], None], check: Callable[[], None]
) -> list[str]:
    """Look until one door of each machine answers, or `patience` seconds have gone; the machines that are missing.

    `check` is called between looks and may raise.
    """
    begin = time.monotonic()
    missing = list(doors)
    told: list[str] = []
    with ThreadPoolExecutor(max_workers=16) as pool:
        while True:
            check()
            flat = [(name, door) for name in missing for door in doors[name]]
            there = {
                name for (name, _), yes in zip(flat, pool.map(answers, (door for _, door in flat)), strict=True) if yes
            }
            for name in sorted(there, key=missing.index):
                say(f"{name}: answers after {time.monotonic() - begin:.0f} s")
            missing = [name for name in missing if name not in there]
            if not missing or time.monotonic() - begin > patience:
                return missing
            if missing != told:
                say(f"waiting for {', '.join(missing)}")
                told = missing
            time.sleep(PAUSE)
