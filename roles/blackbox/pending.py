"""Write files, and mark what a program has to read of them: a run that dies before it has read them is then seen."""

from __future__ import annotations

from collections.abc import Iterable
from posixpath import dirname

from pyinfra.api.command import StringCommand

from core.ops import remote_files
from core.ops.shell import quote, sudo_script
from core.util.managed_file import ManagedFile
from roles.blackbox import desired


def write_files(stale: Iterable[ManagedFile]) -> list[StringCommand]:
    """Return the commands that write these files, and their folders."""
    stale = list(stale)
    folders = sorted({dirname(file.path) for file in stale})
    commands = [sudo_script(f"umask 022; mkdir -p {quote(*folders)}")] if folders else []
    return commands + [remote_files.put_managed(file) for file in stale]


def mark(name: str) -> StringCommand:
    """Return the command that notes that a program must read files that are about to change."""
    return sudo_script(f"umask 077; mkdir -p {desired.MARKS}; : > {_path(name)}")


def unmark(name: str) -> str:
    """Return shell text that removes the mark."""
    return f"rm -f {_path(name)}"


def _path(name: str) -> str:
    return f"{desired.MARKS}/blackbox-{name}.pending"
