"""A journal with lines of the kernel, which the real journalctl reads. systemd-journal-remote writes it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

WRITER = Path("/usr/lib/systemd/systemd-journal-remote")
JOURNALCTL = shutil.which("journalctl")
BOOT = "0123456789abcdef0123456789abcdef"
GUARD = "sparkrack-memory-guard"
needs_journal = pytest.mark.skipif(not (WRITER.exists() and JOURNALCTL), reason="not installed: systemd-journal-remote")


class KernelJournal:
    """The journal of a node.

    As in the journal of a real node, what a program writes to /dev/kmsg as `NAME: TEXT` has NAME as its identifier, and
    only TEXT as its message; lines of the kernel have the identifier `kernel`.
    """

    def __init__(self, folder: Path) -> None:
        self.file, self._lines = folder / "system.journal", 0

    @property
    def reader(self) -> str:
        """Shell text that runs journalctl over it, with the arguments of the script."""
        return f'exec {JOURNALCTL} --file={self.file} "$@"'

    def log(self, message: str, clock: int, identifier: str = "kernel", boot: str = BOOT) -> None:
        """Write a line. `clock`: what the node takes for the time, seconds since 1970."""
        self._lines += 1
        entry = f"__REALTIME_TIMESTAMP={clock}000000\n__MONOTONIC_TIMESTAMP={self._lines}000000\n_BOOT_ID={boot}\n"
        entry += f"_TRANSPORT=kernel\nSYSLOG_IDENTIFIER={identifier}\nMESSAGE={message}\n\n"
        subprocess.run([WRITER, "-o", self.file, "-"], input=entry.encode(), capture_output=True, check=True)
