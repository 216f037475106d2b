"""The change of a command of the lab to root, and back to the environment of its user."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

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
