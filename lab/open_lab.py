"""The lab of a folder, as root, for a command of its user; and a command of the user inside the lab's network."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from lab.errors import NoLabHereError
from lab.paths import LabPaths
from lab.privileges import run_again_as_root, users_environment

if TYPE_CHECKING:
    from lab.lab import Lab


def open_lab(say: Callable[[str], None]) -> Lab:
    """Return the lab of this folder; a process that is not root is replaced by the same command as root.

    `say`: prints a line. Raises NoLabHereError on another system than Linux.
    """
    if sys.platform != "linux":
        raise NoLabHereError(f"the virtual rack runs on Linux only, and this is {sys.platform}")
    if os.geteuid() != 0:
        run_again_as_root("sparkrack_start")
    # Only here: most of it runs on Linux only.
    from lab.lab import Lab

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup it stays ignored
            signal.signal(number, _end_by_signal)
    return Lab(LabPaths.here(), say=say)


def _end_by_signal(number: int, _frame: FrameType | None) -> None:
    """End as after an error, so that what is half built is removed."""
    sys.exit(128 + number)


def run_in_lab(lab: Lab, command: Sequence[str]) -> NoReturn:
    """Replace this process by a command of the user in the lab's network."""
    words = [*lab.entering(), *command]
    environment = {**lab.variables(), **users_environment()}
    os.execvpe(words[0], words, environment)  # noqa: S606 - the command takes this process's place, and gets its signals
