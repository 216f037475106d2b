"""A command on a terminal of its own: what it shows there, and what is typed."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

LIMIT_SECONDS = 120
"""Seconds without a character after which a test fails."""


class Terminal:
    """A command and its terminal, which is its controlling one unless `stdin` is another stream.

    `pty.fork` would copy a process with threads.

    Args:
        command: words of the command. environment: its variables. folder: where it runs.
        streams: those of its streams that are not the terminal, as for `subprocess.Popen`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        **streams: int,
    ) -> None:
        self.shown = ""
        """All that the terminal got."""
        self._answered = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._end, terminal = pty.openpty()
        words = command if "stdin" in streams else ["setsid", "--ctty", *command]
        used: dict[str, Any] = {"stdin": terminal, "stdout": terminal, "stderr": terminal, **streams}
        self.process = subprocess.Popen(words, env=environment, cwd=folder, text=True, **used)
        os.close(terminal)

    def until(self, pattern: str) -> None:
        """Read until this is on the terminal."""
        while not re.search(pattern, self.shown):
            assert self.read_more(), f"the command ended without {pattern!r}: {self.shown!r}"

    def answer(self, question: str, text: str) -> None:
        """Wait for a question that was not answered yet, and answer it."""
        while question not in self.shown[self._answered :]:
            assert self.read_more(), f"{question!r} was not asked: {self.shown[self._answered :]!r}"
        self._answered = self.shown.index(question, self._answered) + len(question)
        self.type_keys(f"{text}\n".encode())

    def type_keys(self, keys: bytes) -> None:
        """Type keys."""
        os.write(self._end, keys)

    def finish(self) -> int:
        """Return the exit code of the command, after all its output."""
        while self.read_more():
            pass
        return self.process.wait(LIMIT_SECONDS)

    def read_more(self) -> bool:
        """Read what the terminal gets next. False when the last process has left it."""
        assert not self.is_silent_for(LIMIT_SECONDS), f"the terminal is silent: {self.shown!r}"
        try:
            part = os.read(self._end, 65536)
        except OSError:  # Linux answers so when the last process has closed the terminal
            return False
        self.shown += self._decoder.decode(part)
        return bool(part)

    def is_silent_for(self, seconds: float) -> bool:
        """Whether the terminal gets nothing more for so long, and the command has not left it."""
        return not select.select([self._end], [], [], seconds)[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the command, if it has not ended."""
        self.process.kill()
        self.process.wait()
        os.close(self._end)
