"""A command whose stderr is a terminal; stdout is a pipe, and stdin is empty."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Mapping, Sequence

from tests.own_terminal import Terminal
from tests.unit.cli.cli_fixtures import SPARKRACK

ERASED = "\x1b[2K"
"""What erases a line of a terminal."""


class Screen(Terminal):
    """The command and what it shows. `out`: its stdout, after `finish`."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        super().__init__(words, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.out = ""

    def until_later(self, title: str) -> None:
        """Read the terminal until it shows other elapsed seconds of a phase than those that it has shown."""
        before = "|".join(set(re.findall(rf"{title}, (\d+) s", self.shown)))
        self.until(rf"{title}, (?!(?:{before}) s)\d+ s")

    def finish(self) -> int:
        """Return the exit code, after all of both."""
        reading = threading.Thread(target=self._read_out)
        reading.start()
        code = super().finish()
        reading.join()
        return code

    def _read_out(self) -> None:
        assert self.process.stdout
        self.out += self.process.stdout.read()


def on_terminal(words: Sequence[str], env: Mapping[str, str], program: str = SPARKRACK) -> Screen:
    """Start a command, which ends with the block."""
    return Screen([program, *words], env)
