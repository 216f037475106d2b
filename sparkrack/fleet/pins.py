"""The lock file beside rack.yaml: which bytes each image's name meant when it was first brought to the rack."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from sparkrack.fleet import regular
from sparkrack.fleet.errors import Fault, RackError, shown

HASH = re.compile(r"sha256:[0-9a-f]{64}")
_RIGHT = "take the file from version control, or remove it: a run resolves each image anew"
_KEYS = {"digest", "id"}
_PATIENCE = 10.0
"""Seconds to wait for another process that records; it needs milliseconds."""
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class Pin:
    """What an image is. `digest`: what its registry said for the tag, None for an image that no registry gave.
    `id`: the image ID as docker shows it, which is the same on every node."""

    digest: str | None
    id: str


def lock_path(source: Path) -> Path:
    """The lock file of a rack file: rack.lock.json beside rack.yaml."""
    return source.with_name(f"{source.stem}.lock.json")


def read(path: Path) -> dict[str, Pin]:
    """What the lock file says of each image; nothing when there is no such file. Raises RackError."""
    try:
        text = regular.read_text(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        right = _RIGHT if isinstance(error, regular.NotRegularError) else "make it readable"
        raise _broken(path, f"cannot be read: {error.strerror or error}", right) from None
    except UnicodeDecodeError:
        raise _broken(path, "is not UTF-8 text") from None
    try:
        data = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise RackError([Fault(str(path), error.lineno, "", f"is not JSON: {error.msg}", _RIGHT)]) from None
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"cannot be understood: {shown(str(error))}") from None
    if not isinstance(data, dict) or set(data) != {"images"} or not isinstance(data["images"], dict):
        raise _broken(path, "is no lock file of sparkrack: it holds one mapping, images")
    return {name: _pin(path, name, entry) for name, entry in data["images"].items()}


def write(path: Path, pins: Mapping[str, Pin]) -> None:
    """Put the file there whole, with the rights that the user's umask gives. Raises OSError."""
    entries = {name: {"digest": pin.digest, "id": pin.id} for name, pin in sorted(pins.items())}
    target = path.resolve()
    # As mkstemp makes a file, but with the rights that the umask gives: under a name that other users of the folder
    # cannot foresee, and never through a link that stands there already.
    new = target.with_name(f".{target.name}.{token_hex(8)}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(json.dumps({"images": entries}, indent=2) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def record(path: Path, declared: Iterable[str], found: Mapping[str, Pin]) -> None:
    """Add what was found to the file; images that are no longer declared are dropped. Raises OSError, RackError."""
    names = set(declared)
    with _alone(path.resolve().parent):
        kept = {**read(path), **found}
        write(path, {name: pin for name, pin in kept.items() if name in names})


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process records in this folder meanwhile. The folder itself is locked, so that no file is left behind.

    Raises OSError when another process holds the lock for too long.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
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


def _pin(path: Path, name: str, entry: Any) -> Pin:
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise _broken(path, f"images.{shown(name)}: is not a mapping of digest and id")
    digest, identity = entry["digest"], entry["id"]
    for key, value in (("digest", digest), ("id", identity)):
        absent = key == "digest" and value is None
        if not absent and not (isinstance(value, str) and HASH.fullmatch(value)):
            raise _broken(path, f"images.{shown(name)}.{key}: {shown(value)} is not sha256: and 64 digits")
    return Pin(digest, identity)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is there twice")
        found[key] = value
    return found


def _broken(path: Path, what: str, right: str = _RIGHT) -> RackError:
    return RackError([Fault(str(path), None, "", what, right)])
