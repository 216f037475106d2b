"""Control groups of the kernel for tests, with real processes in them (root)."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """Yield a control group of our own, in a mount of version 2 at this folder; it must be empty in the end."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", str(folder)], check=True)
    # The mount shows that of the whole machine, or of the container that the tests run in.
    own = folder / f"sparkrack-tests-{uuid.uuid4().hex[:12]}"
    own.mkdir()
    try:
        yield own
    finally:
        remove(own)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def remove(group: Path) -> None:
    """End what runs in a control group and remove it with those below it."""
    (group / "cgroup.kill").write_text("1")
    for path, _, _ in os.walk(group, topdown=False):
        until = time.monotonic() + 60
        while "populated 1" in Path(path, "cgroup.events").read_text() and time.monotonic() < until:
            time.sleep(0.02)
        Path(path).rmdir()


def container(root: Path, unit: str) -> Path:
    """Return the control group of a container of a unit, below a root; it is made if it is not there."""
    made = root / f"sparkrack.slice/sparkrack-{unit}.slice/docker-toy.scope"
    made.mkdir(parents=True, exist_ok=True)
    return made


def put(group: Path, pid: int) -> None:
    """Move a process into a control group."""
    (group / "cgroup.procs").write_text(str(pid))
