"""Work for the tests of processes side by side: what is started anew must find it by its name."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from sparkrack.proof.workers import side_by_side


def doubled(number: int) -> int:
    """Twice the number; the process dies of a negative one."""
    if number < 0:
        os._exit(9)
    return 2 * number


def deaf() -> bool:
    """Whether Ctrl-C does nothing to this process."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def slow(folder: Path, name: str) -> None:
    """Say which process this is, and take a minute."""
    (folder / f"{name}.part").write_text(str(os.getpid()))
    (folder / f"{name}.part").replace(folder / name)
    time.sleep(60)


if __name__ == "__main__":
    try:
        side_by_side(slow, [(Path(sys.argv[1]), name) for name in "ab"], 2)
    except KeyboardInterrupt:
        sys.exit(3)
