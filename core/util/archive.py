"""Archives that are given away: small, readable by their owner only, and refused when they are damaged."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import IO, cast


class _LimitedStream:
    """A stream that raises ValueError once more than `most` bytes were read from it, headers included."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes."""
        part = self._stream.read(size)
        self._left -= len(part)
        if self._left < 0:
            raise ValueError(f"it has more than {self._most} bytes")
        return part


def write_archive(path: Path, files: Mapping[str, bytes], made: datetime) -> None:
    """Write a new tar.gz with these files below a folder of its own name. Raises OSError; FileExistsError when the file
    exists.
    """
    top = path.name.removesuffix(".tar.gz")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with (
            os.fdopen(handle, "wb") as file,
            gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, content in files.items():
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size, entry.mode, entry.mtime = len(content), 0o600, int(made.timestamp())
                archive.addfile(entry, io.BytesIO(content))
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def read_archive(path: Path, most: int) -> dict[str, bytes]:
    """Return the files of an archive by their names below its folder. Nothing is unpacked to the disk.

    most: maximum bytes of the unpacked archive. Raises OSError; ValueError for anything but such an archive.
    """
    found: dict[str, bytes] = {}
    left = most
    try:
        # A stream: what a header claims is never allocated, only what was read.
        with ExitStack() as stack:
            stream = _LimitedStream(stack.enter_context(gzip.GzipFile(path)), most)
            # typeshed wants the whole of IO; tarfile calls `read`.
            archive = stack.enter_context(tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|"))
            for entry in archive:
                name = entry.name.partition("/")[2]
                if not entry.isfile() or not name or name in found:
                    raise ValueError(f"{entry.name[:80]!r} is not one file below one folder")
                file = archive.extractfile(entry)
                # A sparse file has more bytes than the stream.
                content = file.read(left + 1) if file else b""
                left -= len(content)
                if left < 0:
                    raise ValueError(f"it has more than {most} bytes")
                found[name] = content
            # The checksum of the whole stands at its end.
            while stream.read(1 << 16):
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as fault:
        raise ValueError(f"it is not a whole tar.gz ({fault})") from None
    return found
