"""A command behind a pseudo-terminal of its own."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def start(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start it with the terminal as its controlling one; return it and the other end. `pty.fork` would copy a process
    with threads.
    """
    end, terminal = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=terminal, stdout=terminal, stderr=terminal, env=environment, cwd=folder
    )
    os.close(terminal)
    return process, end
