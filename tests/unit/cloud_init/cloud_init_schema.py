"""cloud-init's own schema tool, unpacked by `scripts/setup tests`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.generated import REPOSITORY

TOOL = REPOSITORY / ".venv/cloud-init/usr/lib/python3/dist-packages"


def judged(user_data: Path) -> subprocess.CompletedProcess[str]:
    """Return the result of `cloud-init schema` for a file."""
    assert TOOL.is_dir(), "scripts/setup tests unpacks it"
    return subprocess.run(
        [sys.executable, "-m", "cloudinit.cmd.main", "schema", "--config-file", str(user_data)],
        env={**os.environ, "PYTHONPATH": str(TOOL)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def read(path: Path) -> dict[str, Any]:
    """A file as YAML 1.1 reads it, which is what cloud-init does."""
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found
