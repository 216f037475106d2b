"""Runs a program whose clock is set while it runs: clock_standin.py FILE PROGRAM [WORD...]

FILE has the seconds by which its time since 1970 is wrong. Namespaces cannot set that clock, only the monotonic one.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

_file, *_words = sys.argv[1:]
_true = time.time


def _shifted_time() -> float:
    return _true() + float(Path(_file).read_text())


if __name__ == "__main__":
    time.time = _shifted_time
    sys.argv = _words
    sys.path[0] = str(Path(_words[0]).parent)
    runpy.run_path(_words[0], run_name="__main__")
