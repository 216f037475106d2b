"""Files of the operator's own machine: written whole or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from core.util.command_error import CommandError


def write_atomic(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file whole: a reader sees the old one or the new one. Raises OSError."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "is not a file, and would be replaced by one", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
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


def make_room(file: Path) -> None:
    """Create the folder of a file that is written later. Raises CommandError when the file could not be written."""
    try:
        file.resolve().parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise CommandError(f"{file}: no folder for it: {fault.strerror}") from None
    if file.exists() and not file.is_file():
        raise CommandError(f"{file}: is not a file, and would be replaced by one")
