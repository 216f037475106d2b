"""Commands for units of ours: files that systemd takes, drop-ins of others out of the way, and nothing forgotten."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pyinfra.api.command import StringCommand

from roles.memory.owned import MARKS, SCRIPTS, UNITS, Owned
from sparkrack.ops import files, unitfiles
from sparkrack.ops.shell import quote, root


def mark(name: str) -> StringCommand:
    """Note that files of units are about to change: a run that dies before systemd knows them is then seen."""
    return root(f"umask 077; mkdir -p {MARKS}; : > {MARKS}/memory-{name}.pending")


def taken_up(name: str, then: str = "", enable: str = "") -> StringCommand:
    """Let systemd read the files, do what follows, and only then forget that there was something to do.

    `enable`: a unit to be enabled. systemctl would reload once more for it, which takes 0.3 to 1.5 s in the lab.
    """
    first = f"systemctl --no-reload enable --quiet {enable}; " if enable else ""
    return root(f"{first}systemctl daemon-reload; {then + '; ' if then else ''}rm -f {MARKS}/memory-{name}.pending")


def put(wanted: Iterable[Owned]) -> Generator[StringCommand, None, None]:
    """Write files of ours, each checked before it stands where it is used."""
    for file in wanted:
        folder = file.path.rpartition("/")[0]
        if folder != UNITS:
            yield root(f"install -d -m 755 {folder}")
        yield files.put(file.path, file.content, mode=file.mode, check=_check(file))


def aside(dropins: Iterable[str]) -> StringCommand:
    """Move drop-ins that somebody put over a unit of ours to the backups."""
    moves = [f"mv -fT {quote(path, _kept(path))}" for path in dropins]
    return root(f"install -d -m 700 {files.BACKUPS}; {'; '.join(moves)}")


def _kept(path: str) -> str:
    return f"{files.BACKUPS}/{path.strip('/').replace('/', '-')}"


def _check(file: Owned) -> str:
    folder, _, name = file.path.rpartition("/")
    if folder == SCRIPTS:
        return f'{"bash" if file.content.startswith(b"#!/bin/bash") else "sh"} -n "$new"'
    if folder != UNITS:
        return ""
    return unitfiles.sound(name)
