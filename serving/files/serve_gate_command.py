"""Questions of the gate to programs of the node, each with a limit, and the reason for which a rank may not start."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time

from serve_unit import line

LIMIT = 20.0
"""Seconds that a command may take to answer."""
OUTPUT_LIMIT = 65536
ENVIRONMENT = {**os.environ, "LC_ALL": "C"}


class GateError(Exception):
    """The reason for which the rank may not start."""


class GateCommand:
    """A command that was started, with a limit. Its output goes to files: what it leaves behind keeps nothing open."""

    def __init__(self, *words: str, limit: float | None = None) -> None:
        self.words, self.limit = words, LIMIT if limit is None else limit
        self._until = time.monotonic() + self.limit
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - read later
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._errors, env=ENVIRONMENT
            )
        except OSError as error:
            remedy = "install perftest" if words[0] == "ib_write_bw" else "run `sparkrack apply`"
            raise GateError(f"{words[0]} cannot be run: {error.strerror}; {remedy}") from None

    def answer(self) -> tuple[int, str, str]:
        """Return exit code, output and errors. Raises GateError when it does not end in time."""
        try:
            code = self._process.wait(max(0.1, self._until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise GateError(
                f"`{' '.join(self.words[:2])}` has not answered within {self.limit:g} s; {remedy(self.words[0])}"
            ) from None
        finally:
            self.end()
        texts = []
        for file in (self._output, self._errors):
            file.seek(0)
            texts.append(file.read(OUTPUT_LIMIT).decode(errors="replace").strip())
        return code, texts[0], texts[1]

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Kill it. It is not waited for: a process that the driver holds does not end."""
        if self._process.poll() is None:
            self._process.kill()


def run(*words: str, limit: float | None = None) -> tuple[int, str, str]:
    """Return exit code, output and errors of a command. Raises GateError when it does not answer."""
    return GateCommand(*words, limit=limit).answer()


def remedy(program: str) -> str:
    """Return what to do about a program of the node that fails."""
    if program == "docker":
        return "look at `systemctl status docker`"
    if program == "ib_write_bw":
        return "`sparkrack verify --only rdma --bandwidth` names the cause"
    return "restart the node" if program.endswith(("nvidia-smi", "serve_cuda.py")) else "look at `journalctl -b -p err`"


def answer(*words: str) -> str:
    """Return the output of a command. Raises GateError when it does not answer, or fails."""
    code, output, errors = run(*words)
    if code:
        shown = line(errors or output or "no message", 160)
        raise GateError(f"`{' '.join(words[:2])}` ends with {code}: {shown}; {remedy(words[0])}")
    return output
