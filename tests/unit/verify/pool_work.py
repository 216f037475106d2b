"""Work for the tests of parallel processes: a new process must find it by its name."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from pathlib import Path

from core.util.process_pool import map_processes


def doubled(number: int) -> int:
    """Twice the number; the process dies of a negative one."""
    if number < 0:
        os._exit(9)
    return 2 * number


def deaf() -> bool:
    """Return whether this process ignores Ctrl-C."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def shared(module: str) -> tuple[bool, bool]:
    """Return whether a module was loaded before this process was forked, and whether a collection of garbage leaves
    what was loaded then alone.
    """
    return module in sys.modules, gc.get_freeze_count() > 10_000


def slow(folder: Path, name: str) -> None:
    """Say which process this is, and take a minute."""
    (folder / f"{name}.part").write_text(str(os.getpid()))
    (folder / f"{name}.part").replace(folder / name)
    time.sleep(60)


if __name__ == "__main__":
    try:
        map_processes(slow, [(Path(sys.argv[1]), name) for name in "ab"], 2)
    except KeyboardInterrupt:
        sys.exit(3)
