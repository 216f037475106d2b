"""The lock file beside rack.yaml: one JSON file with a section each for images, models and units of serving."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from core.model.errors import ConfigError, ConfigProblem, truncate
from core.util import regular_file

SECTIONS = ("images", "models", "units")
_RIGHT = "take the file from version control, or remove it: a run resolves each image and each model again"
_PATIENCE = 10.0
"""Seconds to wait for another process that records; it needs milliseconds."""
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP)


def lock_path(source: Path) -> Path:
    """Return the path of the lock file of a rack file: rack.lock.json beside rack.yaml."""
    return source.with_name(f"{source.stem}.lock.json")


def read_section(path: Path, section: str) -> dict[str, Any]:
    """Read one section of the lock file, unchecked below its names; empty without a file. Raises ConfigError."""
    found: dict[str, Any] = _read_document(path).get(section, {})
    return found


def write_section(path: Path, section: str, entries: Mapping[str, Any]) -> None:
    """Replace one section and keep the others. The file is written whole, with the rights that the user's umask gives.

    A section without entries is left out, unless it is that of the images. Raises OSError, ConfigError.
    """
    sections = {"images": {}, **_read_document(path), section: dict(sorted(entries.items()))}
    content = {name: sections[name] for name in SECTIONS if name == "images" or sections.get(name)}
    target = path.resolve()
    # As mkstemp makes a file, but with the rights that the umask gives: under a name that other users of the folder
    # cannot foresee, and never through an existing link.
    new = target.with_name(f".{target.name}.{token_hex(8)}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(json.dumps(content, indent=2) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Exclude other processes that record in the folder of this lock file. The folder itself is locked, so that no
    other file remains.

    Raises OSError when another process holds the lock for too long.
    """
    folder = path.resolve().parent
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _hold_lock(handle, folder)
        yield
    finally:
        os.close(handle)


def broken(path: Path, what: str, right: str = _RIGHT) -> ConfigError:
    """Return the error for a lock file that cannot be used."""
    return ConfigError([ConfigProblem(str(path), None, "", what, right)])


def _read_document(path: Path) -> dict[str, Any]:
    try:
        text = regular_file.read_text(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        right = _RIGHT if isinstance(error, regular_file.NotRegularError) else "make it readable"
        raise broken(path, f"cannot be read: {error.strerror or error}", right) from None
    except UnicodeDecodeError:
        raise broken(path, "is not UTF-8 text") from None
    try:
        data = json.loads(text, object_pairs_hook=_refuse_duplicate_keys)
    except json.JSONDecodeError as error:
        raise ConfigError([ConfigProblem(str(path), error.lineno, "", f"is not JSON: {error.msg}", _RIGHT)]) from None
    except (ValueError, RecursionError) as error:
        raise broken(path, f"cannot be understood: {truncate(str(error))}") from None
    if not (
        isinstance(data, dict)
        and data
        and set(data) <= set(SECTIONS)
        and all(isinstance(part, dict) for part in data.values())
    ):
        raise broken(path, "is not a lock file of sparkrack: it holds the mappings images, models and units")
    return data


def _hold_lock(handle: int, folder: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                what = f"another process has been writing the lock file for {_PATIENCE:g} s"
                raise OSError(errno.EAGAIN, what, str(folder)) from None
            time.sleep(0.05)
        except OSError as error:
            # NFS locks no folder. Two runs at the same time are kept apart by the lock on the first node.
            if error.errno not in _NO_LOCKS:
                raise
            return
        else:
            return


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is there twice")
        found[key] = value
    return found
