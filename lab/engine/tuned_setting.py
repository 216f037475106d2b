"""What a setting of a unit does to the stand-in, which `serve tune` tries: the variable STANDIN_TUNED.

It is the seconds that each request takes, or `garbage` (each answer is one), and after some requests `hangs` (no
further answer), `ends` (the engine ends) or `eats`: it takes pages of memory, as an engine does that needs more than it
was given. Where STANDIN_MEMINFO names a file, which stands for /proc/meminfo of a simulated node, `eats` writes that
file and takes no memory.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

SETTING = os.environ.get("STANDIN_TUNED", "")
REQUESTS = 8
"""Requests after which `hangs`, `ends` and `eats` are so: a start is proven by fewer."""
GARBAGE = "!" * 40
LEFT_GIB = 2
"""GiB that `eats` leaves available: less than a memory guard leaves by default (3 GiB)."""
SIMULATED_GIB = 100
"""GiB that a simulated node has available before and after."""
_BLOCK = 64 << 20
_MEMINFO = os.environ.get("STANDIN_MEMINFO", "")
_taken: list[bytes] = []
_counting = threading.Lock()
_asked = 0


def take_setting(end: Callable[[int], None]) -> None:
    """Be as slow, or as bad, as the setting makes a request. `end`: ends the engine with an exit code."""
    global _asked
    with _counting:
        _asked += 1
        asked = _asked
    if SETTING.replace(".", "").isdigit():
        time.sleep(float(SETTING))
    if asked <= REQUESTS:
        return
    if SETTING == "ends":
        end(1)
    if SETTING == "eats":
        _take_memory()
    while SETTING == "hangs":
        time.sleep(0.05)


def answered_text(right: str) -> str:
    """Return the text of an answer, given the right one."""
    return GARBAGE if SETTING == "garbage" else right


def end_setting() -> None:
    """Give back what the setting has taken."""
    _taken.clear()
    if SETTING == "eats" and _MEMINFO:
        _write_available(SIMULATED_GIB)


def _take_memory() -> None:
    """Take memory until only LEFT_GIB are available, or until something ends this process."""
    if _MEMINFO:
        _write_available(LEFT_GIB)
        return
    while _available_kib() > LEFT_GIB * 1024**2:
        _taken.append(b"\1" * _BLOCK)  # each page is written


def _available_kib() -> int:
    found = re.search(r"^MemAvailable: *(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _write_available(gib: int) -> None:
    Path(_MEMINFO).write_text(f"MemAvailable: {gib * 1024**2} kB\n")
