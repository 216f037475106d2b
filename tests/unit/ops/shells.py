"""Run the project's shell texts for real, with a folder in place of a node's root and stand-ins for its tools."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pyinfra.api.command import StringCommand

TOP = re.compile(r"(?<![\w}.$/-])/(?=(?:boot|etc|run|var|proc|sys|usr/lib|usr/local/lib)(?:[/\s'\";)]|$))")
"""Where an absolute path of a node begins; not inside one, as in TREE + /etc."""


def rooted(script: str, root: Path) -> str:
    """The same script about the node whose root is `root`."""
    return TOP.sub(f"{root}/", script)


def write(root: Path, path: str, text: str = "") -> Path:
    """Put a file there that the node has at `path`."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def stand_in(root: Path, tool: str, script: str = "exit 0") -> None:
    """Put a program before those of this machine. It notes how it was called in `calls`."""
    (root / "bin").mkdir(parents=True, exist_ok=True)
    program = root / "bin" / tool
    program.write_text(f'#!/bin/sh\necho "{tool} $*" >> {root}/calls\n{script}\n')
    program.chmod(0o755)


def calls(root: Path) -> list[str]:
    """How the stand-ins were called, in order."""
    noted = root / "calls"
    return noted.read_text().splitlines() if noted.exists() else []


def run(
    script: str | StringCommand, root: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script, or a command with its standard input, by /bin/sh."""
    stdin = ""
    if isinstance(script, StringCommand):
        stdin = str(script.connector_arguments.get("_stdin", ""))
        script = script.get_raw_value()
    path = f"{root}/bin:{os.environ['PATH']}"
    return subprocess.run(
        ["/bin/sh", "-c", rooted(script, root)],
        input=stdin,
        capture_output=True,
        text=True,
        env={"PATH": path, "LC_ALL": "C", **(environment or {})},
        cwd="/",
        timeout=120,
    )
