"""Mounts that only one command of a test sees: root makes them, a user where namespaces of users are allowed."""

from __future__ import annotations

import os
import subprocess
from functools import cache

UNSHARE = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)))


@cache
def refused() -> str:
    """Why this machine gives none; empty where it does."""
    done = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    return f"this machine gives no mounts of its own: {done.stderr.strip()}" if done.returncode else ""
