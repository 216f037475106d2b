"""Key pairs of ssh."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.errors import LabError


def make_key(path: Path, comment: str, kind: str = "ed25519") -> None:
    """Make a key pair unless there is one. Raises LabError."""
    if path.exists():
        return
    command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", comment, "-f", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"ssh-keygen: {done.stderr.strip()}")
