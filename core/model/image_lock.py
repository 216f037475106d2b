"""The images of the lock file beside rack.yaml: the content of each image name when it was first pulled or recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.model import lock_file
from core.model.errors import ConfigError, truncate

__all__ = ["HASH", "Pin", "known_ids", "read", "record", "write"]

HASH = re.compile(r"sha256:[0-9a-f]{64}")
_KEYS = {"digest", "id"}


@dataclass(frozen=True)
class Pin:
    """Identity of an image. `digest`: the registry's digest for the tag, None for an image without a registry. `id`:
    the image ID in docker, which is the same on every node.
    """

    digest: str | None
    id: str


def read(path: Path) -> dict[str, Pin]:
    """Read the pins of the lock file; empty without a file. Raises ConfigError."""
    return {name: _read_pin(path, name, entry) for name, entry in lock_file.read_section(path, "images").items()}


def known_ids(path: Path) -> dict[str, str]:
    """Return the image IDs of the lock file by name; none of a file that cannot be read: who pins images reports it."""
    try:
        return {name: pin.id for name, pin in read(path).items()}
    except ConfigError:
        return {}


def write(path: Path, pins: Mapping[str, Pin]) -> None:
    """Replace the pins of the lock file. Raises OSError, ConfigError."""
    lock_file.write_section(path, "images", {name: {"digest": pin.digest, "id": pin.id} for name, pin in pins.items()})


def record(path: Path, declared: Iterable[str], found: Mapping[str, Pin]) -> None:
    """Add what was found to the file; images that are no longer declared are dropped. Raises OSError, ConfigError."""
    names = set(declared)
    with lock_file.exclusive(path):
        kept = {**read(path), **found}
        write(path, {name: pin for name, pin in kept.items() if name in names})


def _read_pin(path: Path, name: str, entry: Any) -> Pin:
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise lock_file.broken(path, f"images.{truncate(name)}: is not a mapping of digest and id")
    digest, identity = entry["digest"], entry["id"]
    for key, value in (("digest", digest), ("id", identity)):
        absent = key == "digest" and value is None
        if not absent and not (isinstance(value, str) and HASH.fullmatch(value)):
            raise lock_file.broken(
                path, f"images.{truncate(name)}.{key}: {truncate(value)} is not sha256: and 64 digits"
            )
    return Pin(digest, identity)
