"""Memory that the stand-in takes from its node.

It takes pages for real, as an engine does that needs more than it was given. Where STANDIN_MEMINFO names a file, which
stands for /proc/meminfo of a node that is only simulated, it writes that one instead.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

LEFT_GIB = 2
"""GiB that are left available at the least: less than a memory guard leaves by default (3 GiB)."""
ALL_GIB = 100
"""GiB that a node that is only simulated has available before and after."""
STEP = 64 << 20
_SIMULATED = os.environ.get("STANDIN_MEMINFO", "")
_taken: list[bytes] = []


def take_memory() -> None:
    """Take memory until only LEFT_GIB are available, or until something ends this process."""
    if _SIMULATED:
        _write_available(LEFT_GIB)
        return
    while _available_kib() > LEFT_GIB * 1024**2:
        _taken.append(b"\1" * STEP)  # each page is written


def give_back() -> None:
    """Give the memory back, as the end of a process does."""
    _taken.clear()
    if _SIMULATED:
        _write_available(ALL_GIB)


def _available_kib() -> int:
    found = re.search(r"^MemAvailable: *(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _write_available(gib: int) -> None:
    Path(_SIMULATED).write_text(f"MemAvailable: {gib * 1024**2} kB\n")
