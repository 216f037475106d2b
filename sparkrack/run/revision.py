"""Which revision of the rack's description a run is about."""

from __future__ import annotations

import subprocess
from pathlib import Path


def revision(file: Path) -> str:
    """The short git revision of the folder that holds `file`, with `+` when something there is not committed; empty
    outside git or where git is not installed."""
    folder = str(file.absolute().parent)
    try:
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        return f"{head}{'+' if _git(folder, 'status', '--porcelain', '--', '.') else ''}" if head else ""
    except OSError:
        return ""


def _git(folder: str, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
