"""Opens the lab of a folder as root, and runs commands in its network with the environment of the user."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from lab.errors import NoLabHereError
from lab.paths import LabPaths

if TYPE_CHECKING:
    from lab.lab import Lab

_NO_BYTECODE = ("PYTHONDONTWRITEBYTECODE", "sparkrack-lab")
"""Variable of what sudo starts: Python as root leaves no files of root among a user's. A command of the user's does
without it."""


def run_again_as_root(module: str) -> NoReturn:
    """Replace this process by the same command as root. PATH and HOME stay, since sudo may replace them.

    Args:
        module: the module that is the program.
    """
    kept = [f"{name}={os.environ[name]}" for name in ("PATH", "HOME") if name in os.environ]
    if _NO_BYTECODE[0] not in os.environ:
        kept.append("=".join(_NO_BYTECODE))
    command = ["sudo", "--preserve-env", "env", *kept, sys.executable, "-P", "-m", module, *sys.argv[1:]]
    os.execvp("sudo", command)  # noqa: S606 - replaces this process


def users_environment() -> dict[str, str]:
    """Return the variables of this process as its user has set them."""
    found = dict(os.environ)
    if found.get("SUDO_UID") and found.get(_NO_BYTECODE[0]) == _NO_BYTECODE[1]:
        del found[_NO_BYTECODE[0]]
    return found


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
