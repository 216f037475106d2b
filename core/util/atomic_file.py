"""Files of the operator's own machine: written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
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
    _replace_file(path, text.encode(), mode, None)


def rewrite_atomic(path: Path, content: bytes) -> None:
    """Replace the content of a file of the operator: its mode and owner stay, and a symbolic link to it stays one. A
    new file has mode 0644. Raises OSError.
    """
    path = path.resolve()
    was = path.stat() if path.exists() else None
    _replace_file(path, content, stat.S_IMODE(was.st_mode) if was else 0o644, was)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _replace_file(path: Path, content: bytes, mode: int, owner: os.stat_result | None) -> None:
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
        try:
            new.write(content)
            new.flush()
            if owner:
                with suppress(PermissionError):  # only root gives files away
                    os.fchown(new.fileno(), owner.st_uid, owner.st_gid)
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
