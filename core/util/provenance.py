"""Provenance of a report: time, operator, and the revision of the rack file."""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from core.util.records import Record, Text

_SECONDS = 10


class Origin(Record):
    """Operator, time and subject of a report."""

    when: datetime = Field(description="when the proof began, UTC")
    by: str = Field(description="user@host of the operator")
    file: Text = Field(description="the rack file")
    revision: str = Field(description="its git revision, with + when its folder has changes; empty: not in git")


def origin(file: Path) -> Origin:
    """The origin of a report that is begun now, of this rack file."""
    now = datetime.now(UTC).replace(microsecond=0)
    return Origin(when=now, by=operator(), file=str(file), revision=revision(file))


def revision(file: Path) -> str:
    """Return the short git revision of a file, with `+` when its folder has uncommitted changes; empty if git does not
    track the file, does not answer, or is not installed. Nothing is written.
    """
    path = file.absolute()
    commit = _git_output(path, "rev-parse", "--verify", "--short=12", "HEAD^{commit}")
    if commit is None or _git_output(path, "ls-files", "--error-unmatch", "--", path.name) is None:
        return ""
    return commit.strip() + ("" if _git_output(path, "status", "--porcelain", "--", ".") == "" else "+")


def _git_output(file: Path, *words: str) -> str | None:
    """Return the output of git in a file's folder; None when it fails."""
    # No lock is taken, and no program is started that the repository names.
    command = ["git", "-C", str(file.parent), "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def operator() -> str:
    """Return the operator as user@host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user that has no name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
