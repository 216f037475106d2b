"""Files that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path


def make(path: Path, text: str) -> None:
    """Write one, unless it is there; at no moment can others read it. Raises OSError."""
    if path.exists():
        return
    side = path.with_name(f".{path.name}.new")
    side.unlink(missing_ok=True)
    with os.fdopen(os.open(side, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    side.replace(path)
