"""Archives that are given away: small, and readable by their owner only."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

MAX_FILES = 10_000
MAX_BYTES = 1 << 30
"""Bytes of all files of an archive together."""
_NAME = re.compile(r"(?:(?!\.)[A-Za-z0-9_.@+-]+/)*(?!\.)[A-Za-z0-9_.@+-]+")


def write_archive(path: Path, files: Mapping[str, bytes], made: datetime) -> None:
    """Write a new tar.gz with these files below a folder of its own name.

    Raises OSError; FileExistsError when the file exists; ValueError for what another machine could not unpack safely.
    """
    for name in files:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name for a file of an archive")
    if len(files) > MAX_FILES:
        raise ValueError(f"{len(files)} files are more than the {MAX_FILES} of an archive")
    if (whole := sum(map(len, files.values()))) > MAX_BYTES:
        raise ValueError(f"{whole} bytes are more than the {MAX_BYTES} of an archive")
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
