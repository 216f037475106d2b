"""Whether one of the nodes is the machine of this process: asked over its shell, not concluded from its name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.ssh.root_shell import RootShell, UnreachableError

_FILES = ("/proc/sys/kernel/random/boot_id", "/etc/machine-id")
"""Clones have one machine ID until bootstrap, and containers share the boot ID of their host: only both are unique."""
_QUESTION = "; ".join(f"cat {file}" for file in _FILES)


def own_node(shells: Mapping[str, RootShell]) -> str | None:
    """Return the node that is this machine; None when none of them is, or where this machine has no such IDs. A node
    that gives no answer is not this machine: a command that runs on it reaches it.
    """
    try:
        here = [Path(file).read_text().strip() for file in _FILES]
    except OSError:
        return None  # not Linux
    return next((name for name, shell in shells.items() if _read_machine_ids(shell) == here), None)


def _read_machine_ids(shell: RootShell) -> list[str]:
    try:
        done = shell.run(_QUESTION)
    except (OSError, UnreachableError):
        return []
    return str(done.stdout).split() if done.rc == 0 else []
