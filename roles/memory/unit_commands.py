"""Commands for units of ours: files that systemd takes, drop-ins of others out of the way, and nothing forgotten."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pyinfra.api.command import StringCommand

from core.ops import remote_files
from core.ops.shell import quote, sudo_script
from core.util.managed_file import ManagedFile
from roles.memory.unit_paths import MARKS, UNITS


def mark(name: str) -> StringCommand:
    """Note that files of units are about to change: a run that dies before systemd knows them is then seen."""
    return sudo_script(f"umask 077; mkdir -p {MARKS}; : > {MARKS}/memory-{name}.pending")


def taken_up(name: str, then: str = "", enable: str = "") -> StringCommand:
    """Let systemd read the files, do what follows, and only then forget that there was something to do.

    `enable`: a unit to be enabled. systemctl would reload once more for it, which takes 0.3 to 1.5 s in the lab.
    """
    first = f"systemctl --no-reload enable --quiet {enable}; " if enable else ""
    return sudo_script(
        f"{first}systemctl daemon-reload; {then + '; ' if then else ''}rm -f {MARKS}/memory-{name}.pending"
    )


def put(wanted: Iterable[ManagedFile]) -> Generator[StringCommand, None, None]:
    """Write files of ours, each checked before it is put in place."""
    for file in wanted:
        folder = file.path.rpartition("/")[0]
        if folder != UNITS:
            yield sudo_script(f"install -d -m 755 {folder}")
        yield remote_files.put_managed(file)


def aside(dropins: Iterable[str]) -> StringCommand:
    """Return the command that moves drop-ins over a unit of ours to the backups."""
    moves = [f"mv -fT {quote(path, _kept(path))}" for path in dropins]
    return sudo_script(f"install -d -m 700 {remote_files.BACKUPS}; {'; '.join(moves)}")


def _kept(path: str) -> str:
    return f"{remote_files.BACKUPS}/{path.strip('/').replace('/', '-')}"
