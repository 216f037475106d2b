"""What a setting of a unit does to the stand-in, which `serve tune` tries: the variable STANDIN_TUNED.

It is the seconds that each request takes, or `garbage` (each answer is one), and after some requests `hangs` (no
further answer), `ends` (the engine ends) or `eats` (it takes the memory of its node, see eaten_memory.py).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from lab.engine import eaten_memory

SETTING = os.environ.get("STANDIN_TUNED", "")
REQUESTS = 8
"""Requests after which `hangs`, `ends` and `eats` are so: a start is proven by fewer."""
GARBAGE = "!" * 40
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
        eaten_memory.take_memory()
    while SETTING == "hangs":
        time.sleep(0.05)


def answered_text(right: str) -> str:
    """Return the text of an answer, given the right one."""
    return GARBAGE if SETTING == "garbage" else right


def end_setting() -> None:
    """Give back what the setting has taken."""
    if SETTING == "eats":
        eaten_memory.give_back()
