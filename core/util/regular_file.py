"""Reading files that a user or the rack file names: regular files only.

A FIFO would block the command until another process writes to it; a device may have no end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotRegularError(OSError):
    """The path is a FIFO, a socket or a device."""


_KINDS = {
    stat.S_IFIFO: "is a FIFO, not a regular file",
    stat.S_IFSOCK: "is a socket, not a regular file",
    stat.S_IFCHR: "is a device, not a regular file",
    stat.S_IFBLK: "is a device, not a regular file",
}


def read_bytes(path: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """Read a regular file, at most `limit` bytes of it. Never blocks.

    Raises OSError, whose `strerror` names the type of a file that is not regular; ValueError for a path that holds a
    NUL.
    """
    try:
        # Without O_NONBLOCK the opening of a FIFO itself waits for a writer; with O_NOCTTY a terminal takes no control.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        # A socket cannot be opened, which the kernel reports as a missing device.
        if error.errno == errno.ENXIO:
            raise _irregular_file_error(path, Path(path).stat().st_mode) from None
        raise
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise _irregular_file_error(path, mode)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read() if limit is None else file.read(limit)
    finally:
        os.close(handle)


def read_text(path: str | os.PathLike[str], limit: int | None = None) -> str:
    """The same as UTF-8 text. Raises UnicodeDecodeError, a ValueError, for any other content."""
    return read_bytes(path, limit).decode()


def describe_file_type(path: Path) -> str:
    """Return the type of a path that is not a regular file, for files that other programs read; empty for a missing
    path, too.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return ""  # the reader reports it
    return "" if stat.S_ISREG(mode) else _irregular_file_error(path, mode).strerror or ""


def _irregular_file_error(path: str | os.PathLike[str], mode: int) -> OSError:
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    return NotRegularError(errno.EINVAL, _KINDS.get(stat.S_IFMT(mode), "is not a regular file"), os.fspath(path))
