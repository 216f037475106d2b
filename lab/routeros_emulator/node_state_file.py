"""Tells a node's stand-in commands what its fabric ports see, through the node's state file."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_link(path: Path, port: int, link: dict[str, object]) -> None:
    """Set ``links[port]`` in a node's state file and keep everything else in it as it is.

    The file is replaced atomically under ``<file>.lock``, which the lab takes for its own changes. A missing
    file is begun. Raises OSError or ValueError (the file holds no JSON object).
    """
    with path.with_name(path.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        data = _read_state(path)
        links = data.setdefault("links", {})
        if links.get(str(port)) == link:
            return
        links[str(port)] = link
        replace(path, json.dumps(data, indent=2) + "\n")


def _read_state(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    if not isinstance(data, dict) or not isinstance(data.get("links", {}), dict):
        raise ValueError(f"{path} holds no JSON object of node state")  # noqa: TRY004 - not a caller's mistake
    return data


def replace(path: Path, text: str, mode: int | None = None) -> None:
    """Replace a file's contents atomically; without ``mode`` it keeps the one it had (0644 when new)."""
    if mode is None:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
