"""Folders for the files of a rack on the operator's machine."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder(rack: str) -> Path:
    """Runs, drift and backups of a rack: in the operator's state folder (XDG base directories)."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "sparkrack" / rack
