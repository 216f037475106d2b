"""A removal is refused while a unit runs, and not for the agent and the coordinator of one that is stopped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from serving import remove
from serving.running_engines import PROBE


@pytest.mark.parametrize(
    ("group", "refused"),
    [
        ("system.slice/sparkrack-serve-toy.service", True),
        ("sparkrack.slice/sparkrack-toy.slice", True),
        ("system.slice/sparkrack-serve-toy-agent.service", False),
        ("system.slice/sparkrack-serve-toy-coordinator.service", False),
    ],
)
def test_only_what_serves_is_in_the_way(group: str, refused: bool, tmp_path: Path) -> None:
    """The control groups are those of a node on which this unit, or a part of it, has processes."""
    folder = tmp_path / group
    folder.mkdir(parents=True)
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert "/sys/fs/cgroup" in PROBE
    script = remove.TRACES.refuse.replace("/sys/fs/cgroup", str(tmp_path))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("block a served unit runs here") == refused, done.stdout
