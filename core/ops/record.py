"""The record of what was on a node before the first change, from which `sparkrack remove` brings it back."""

from __future__ import annotations

from core.util import resources

RECORD = "/var/lib/sparkrack/before"
"""The copy of what was there; only root reads it, since /etc holds secrets."""


def keep_record() -> str:
    """Return shell text that records what is on a node, unless that was done before."""
    return resources.shell_text("core.ops", "files/record-before.sh")


def recorded(path: str) -> str:
    """Return the path of a file of /etc in the record."""
    return f"{RECORD}{path}"
