"""Files of the operator's own machine: written whole or not at all, and where they are kept."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def keep(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file whole: a reader sees the old one or the new one. Raises OSError."""
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=path.absolute().parent, prefix=f".{path.name}.", delete=False) as new:
        try:
            new.write(text)
            new.flush()
            os.fchmod(new.fileno(), mode)
            os.fsync(new.fileno())
            Path(new.name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(new.name).unlink()
            raise


def state_folder(rack: str) -> Path:
    """Where the runs of a rack are kept: in the operator's state folder (XDG base directories)."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "sparkrack" / rack
