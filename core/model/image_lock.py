"""The images of the lock file beside rack.yaml: the content of each image name when it was first pulled or recorded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from core.model import lock_file
from core.model.errors import ConfigError, truncate

__all__ = ["HASH", "ImageNccl", "Pin", "known_ids", "read", "record", "write"]

HASH = re.compile(r"sha256:[0-9a-f]{64}")
_KEYS = {"digest", "id"}
_NCCL_KEYS = {"version", "build", "conf"}
_NCCL_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,4}){2}")
NCCL_BUILDS = ("wheel", "system")
"""Builds of NCCL in an image: the library of the pip wheel, which torch takes first, and that of the system."""


@dataclass(frozen=True)
class ImageNccl:
    """What an image has of NCCL, as a container of it tells. `version`: None where it does not tell one. `build`: one
    of NCCL_BUILDS. `conf`: the lines of its /etc/nccl.conf that are not comments; None where no container of it starts.
    """

    version: str | None
    build: str | None
    conf: tuple[str, ...] | None


@dataclass(frozen=True)
class Pin:
    """Identity of an image. `digest`: the registry's digest for the tag, None for an image without a registry. `id`:
    the image ID in docker, which is the same on every node. `nccl`: None until a node was asked.
    """

    digest: str | None
    id: str
    nccl: ImageNccl | None = None


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
    lock_file.write_section(path, "images", {name: _render_pin(pin) for name, pin in pins.items()})


def record(path: Path, declared: Iterable[str], found: Mapping[str, Pin]) -> None:
    """Add what was found to the file; images that are no longer declared are dropped. What the file knows about NCCL of
    an image is kept while that has its ID. Raises OSError, ConfigError.
    """
    names = set(declared)
    with lock_file.exclusive(path):
        before = read(path)
        kept = {**before, **{name: _keep_nccl(pin, before.get(name)) for name, pin in found.items()}}
        write(path, {name: pin for name, pin in kept.items() if name in names})


def _keep_nccl(pin: Pin, before: Pin | None) -> Pin:
    if pin.nccl is None and before is not None and before.id == pin.id:
        return replace(pin, nccl=before.nccl)
    return pin


def _render_pin(pin: Pin) -> dict[str, Any]:
    known = {} if pin.nccl is None else {"nccl": asdict(pin.nccl)}
    return {"digest": pin.digest, "id": pin.id, **known}


def _read_pin(path: Path, name: str, entry: Any) -> Pin:
    if not isinstance(entry, dict) or set(entry) - {"nccl"} != _KEYS:
        raise lock_file.broken(path, f"images.{truncate(name)}: is not a mapping of digest and id")
    digest, identity = entry["digest"], entry["id"]
    for key, value in (("digest", digest), ("id", identity)):
        absent = key == "digest" and value is None
        if not absent and not (isinstance(value, str) and HASH.fullmatch(value)):
            raise lock_file.broken(
                path, f"images.{truncate(name)}.{key}: {truncate(value)} is not sha256: and 64 digits"
            )
    return Pin(digest, identity, _read_nccl(path, name, entry["nccl"]) if "nccl" in entry else None)


def _read_nccl(path: Path, name: str, entry: Any) -> ImageNccl:
    if isinstance(entry, dict) and set(entry) == _NCCL_KEYS:
        version, build, conf = entry["version"], entry["build"], entry["conf"]
        if (
            (version is None or (isinstance(version, str) and _NCCL_VERSION.fullmatch(version)))
            and build in (None, *NCCL_BUILDS)
            and (conf is None or (isinstance(conf, list) and all(isinstance(line, str) for line in conf)))
        ):
            return ImageNccl(version, build, None if conf is None else tuple(conf))
    raise lock_file.broken(path, f"images.{truncate(name)}.nccl: is not a mapping of version, build and conf")
