"""A command whose stderr is a terminal; stdout is a pipe, and stdin is empty."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.unit.cli.cli_fixtures import SPARKRACK

ERASED = "\x1b[2K"
"""What erases a line of a terminal."""
LIMIT_SECONDS = 60
"""Seconds for what `Screen.until` waits for; a picture with the elapsed time never is silent."""


class Screen:
    """The command and what it shows. `seen`: all that the terminal got; `out`: stdout, after `read_all`."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        self.seen = self.out = ""
        self._screen, its = pty.openpty()
        self.process = subprocess.Popen(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=its, text=True
        )
        os.close(its)

    def until(self, pattern: str) -> None:
        """Read the terminal until this is on it."""
        end = time.monotonic() + LIMIT_SECONDS
        while not re.search(pattern, self.seen):
            assert time.monotonic() < end, f"the terminal does not show {pattern}: {self.seen!r}"
            assert self._read_more(), f"the command ended without {pattern}: {self.seen!r}"

    def until_later(self, title: str) -> None:
        """Read the terminal until it shows other elapsed seconds of a phase than those that it has shown."""
        before = "|".join(set(re.findall(rf"{title}, (\d+) s", self.seen)))
        self.until(rf"{title}, (?!(?:{before}) s)\d+ s")

    def read_all(self) -> None:
        """Read both until the command has closed them."""
        reading = threading.Thread(target=self._read_out)
        reading.start()
        while self._read_more():
            pass
        reading.join()

    def close(self) -> None:
        """End the command, if it has not ended."""
        self.process.kill()
        self.process.wait()
        os.close(self._screen)

    def _read_out(self) -> None:
        assert self.process.stdout
        self.out += self.process.stdout.read()

    def _read_more(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], LIMIT_SECONDS)
        assert ready, f"the terminal is silent: {self.seen!r}"
        try:
            part = os.read(self._screen, 4096)
        except OSError:  # Linux says so when the last process has closed the terminal
            return False
        self.seen += part.decode()
        return bool(part)


@contextmanager
def on_terminal(words: Sequence[str], env: Mapping[str, str], program: str = SPARKRACK) -> Iterator[Screen]:
    """Run a command and end it."""
    made = Screen([program, *words], env)
    try:
        yield made
    finally:
        made.close()
