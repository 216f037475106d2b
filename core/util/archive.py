"""Archives that are given away: small, and readable by their owner only."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path


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
