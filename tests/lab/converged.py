"""A converged rack in seconds: made once for the recipe and the code that converges it, restored from a snapshot."""

from __future__ import annotations

import fcntl
import hashlib
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import snapshots
from lab.image import build
from lab.paths import cache
from tests.lab.virtual import REPOSITORY, VirtualRack

CODE = (
    "core",
    "serving",
    "sparkrack",
    "roles",
    "switch",
    "lab",
    "group_data",
    "deploy.py",
    "inventory.py",
    "config.py",
)
"""Files that determine a converged rack, besides the recipe of the image and the locked packages."""
KEPT = 3
"""Number of snapshots of tests that are kept: those of other checkouts may be in use."""


def key(nodes: tuple[str, ...]) -> str:
    """Names a converged rack of these nodes: changes when a role does, or anything else that made it."""
    digest = hashlib.sha256(f"{build.recipe_hash()} {nodes} {platform.python_version()}".encode())
    for part in (*CODE, *(str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("requirements/*.lock"))):
        path = REPOSITORY / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts and file.name != "rack.yaml":
                digest.update(f"\0{file.relative_to(REPOSITORY)}\0".encode())
                digest.update(file.read_bytes())
    return f"tests-{digest.hexdigest()[:16]}"


def is_made(nodes: tuple[str, ...]) -> bool:
    """Return whether there is a snapshot of these nodes, converged."""
    return key(nodes) in snapshots.names()


@contextmanager
def making() -> Iterator[None]:
    """Others wait meanwhile, since two workers that begin at once make a snapshot once."""
    lock = cache() / "lab/tests.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def keep(rack: VirtualRack) -> None:
    """Make the snapshot of a rack on which a whole run has been made; its nodes are shut down and booted for it."""
    rack.lab("snapshot", key(rack.nodes))
    for old in [old for old in snapshots.names() if old.startswith("tests-")][:-KEPT]:
        rack.lab("snapshot", "--delete", old)


def converged(folder: Path, nodes: tuple[str, ...]) -> VirtualRack:
    """A rack in this folder on which a whole run has been made: restored, or made now and kept."""
    rack = VirtualRack(folder, nodes)
    with making():
        if not is_made(nodes):
            rack.lab("down")
            rack.lab("up", "--nodes", str(len(nodes)))
            rack.deploy("-y")
            keep(rack)
            return rack
    rack.lab("restore", key(nodes))
    return rack
