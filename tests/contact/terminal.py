"""An operator at a terminal: `sparkrack` behind a pseudo-terminal, answered line by line."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests import own_terminal


class Terminal:
    """One command and its output."""

    def __init__(self, line: list[str], environment: Mapping[str, str], folder: Path) -> None:
        self.shown = ""
        self._read = 0
        self._process: subprocess.Popen[bytes] | None
        self._process, self._end = own_terminal.start(line, environment, folder)

    def answer(self, question: str, text: str) -> None:
        """Wait for a question that was not answered yet, and answer it."""
        until = time.monotonic() + 60
        while question not in self.shown[self._read :]:
            assert time.monotonic() < until, f"{question!r} is not asked: {self.shown[self._read :]}"
            assert self._read_more(), f"{question!r} was not asked: {self.shown[self._read :]}"
        self._read = self.shown.index(question, self._read) + len(question)
        os.write(self._end, f"{text}\n".encode())

    def finish(self) -> int:
        """Return its exit code, after all its output."""
        until = time.monotonic() + 120
        while self._read_more():
            assert time.monotonic() < until, self.shown
        assert self._process
        code = self._process.wait()
        os.close(self._end)
        self._process = None
        return code

    def close(self) -> None:
        """End it, if it has not ended."""
        if self._process:
            self._process.kill()
            self._process.wait()
            os.close(self._end)

    def _read_more(self) -> bool:
        ready, _, _ = select.select([self._end], [], [], 1)
        if not ready:
            return True
        try:
            part = os.read(self._end, 1 << 14)
        except OSError:  # the other end is closed
            return False
        self.shown += part.decode(errors="replace")
        return bool(part)
