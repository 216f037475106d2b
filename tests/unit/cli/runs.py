"""Run the project's commands as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.emulator.fork_server import ForkedProgram

REPOSITORY = Path(__file__).parents[3]
BIN = Path(sys.executable).parent

GUARD = """\
import os, socket, sys
def _refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        os.write(2, b"A CONNECTION WAS TRIED\\n")
        os._exit(99)
sys.addaudithook(_refuse)
"""
"""Ends the interpreter as soon as anything connects; Python runs a file called sitecustomize at its start."""


@dataclass(frozen=True)
class Ended:
    """Exit status and output of a command."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr


def command(*words: str | Path, cwd: Path = REPOSITORY, python_path: Path | None = None, **environment: str) -> Ended:
    """Run a command of the virtual environment, without a terminal."""
    settings = _make_environment(environment)
    if python_path:
        settings["PYTHONPATH"] = os.pathsep.join([str(python_path), *filter(None, [settings.get("PYTHONPATH")])])
    program, *rest = map(str, words)
    done = subprocess.run(
        [BIN / program, *rest],
        cwd=cwd,
        env=settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def forked(*words: str | Path, cwd: Path = REPOSITORY, **environment: str) -> Ended:
    """As `command`, by fork from a process that has imported the program: for all that does not depend on its start."""
    program, *rest = map(str, words)
    process = ForkedProgram(program, rest, cwd=cwd, env=_make_environment(environment), apart=True)
    stdout, stderr = process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, stdout, stderr)


def _make_environment(environment: dict[str, str]) -> dict[str, str]:
    settings = {**os.environ, "PYINFRA_PROGRESS": "off", "NO_COLOR": "1", "COLUMNS": "200", **environment}
    if "RACK" not in environment:
        settings.pop("RACK", None)
    return settings


def guarded(folder: Path) -> Path:
    """A folder for PYTHONPATH in which any connection ends the program."""
    (folder / "sitecustomize.py").write_text(GUARD)
    return folder
