"""A command on a terminal for both of its streams: what it printed, and what is on the screen when it has ended."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte

from tests.own_terminal import Terminal

COLUMNS, ROWS = 200, 50
"""No printed line is wrapped."""
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RECORDING = """\
import io, sys
import click, click.exceptions
record = open(sys.argv.pop(1), "w")


class Recorded(io.TextIOWrapper):
    def write(self, text):
        record.write(text)
        record.flush()
        return super().write(text)


def echo(message=None, file=None, nl=True, err=False, color=None):
    if message is not None and (err or file is not None):
        record.write(f"{message}\\n" if nl else str(message))
        record.flush()
    print_unrecorded(message, file, nl, err, color)


sys.stdout = Recorded(sys.stdout.buffer, encoding="utf-8", line_buffering=True)
print_unrecorded, click.echo, click.exceptions.echo = click.echo, echo, echo
"""
"""Writes what is printed to standard output, and by click to standard error, to the file of the first argument. The
picture of the progress is written by rich to standard error, and is not recorded."""
SPARKRACK = f"{RECORDING}\nfrom sparkrack.cli.main import main\nsys.argv[0] = 'sparkrack'\nmain()\n"


@dataclass(frozen=True)
class Replay:
    """What a command printed, line by line, and the lines of the screen after its end, those scrolled away included."""

    code: int
    printed: list[str]
    screen: list[str]

    @property
    def lost(self) -> list[str]:
        """Return the printed lines that are not on the screen, below the line that was printed before."""
        lost, rest = [], self.screen
        rows = (
            line[start : start + COLUMNS].rstrip() for line in self.printed for start in range(0, len(line), COLUMNS)
        )
        for line in filter(None, rows):
            if line in rest:
                rest = rest[rest.index(line) + 1 :]
            else:
                lost.append(line)
        return lost


def lines_of_screen(seen: str, columns: int = COLUMNS) -> list[str]:
    """Return the lines that a terminal shows after these characters, from the first to the last, without empty ones."""
    screen = pyte.HistoryScreen(columns, ROWS, history=100_000)
    pyte.Stream(screen).feed(seen)
    gone = ["".join(line[column].data for column in range(columns)) for line in screen.history.top]
    return [line.rstrip() for line in (*gone, *screen.display) if line.strip()]


def replay(folder: Path, words: Sequence[str], env: Mapping[str, str], program: str = SPARKRACK) -> Replay:
    """Run a program of Python on a terminal of COLUMNS columns, with an empty input."""
    record = folder / "printed"
    command = [sys.executable, "-c", program, str(record), *words]
    environment = {**env, "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    with Terminal(command, environment, folder, stdin=subprocess.DEVNULL) as terminal:
        code = terminal.finish()
    text = CONTROLS.sub("", record.read_text())
    printed = [line.expandtabs().rstrip() for line in text.splitlines() if line.strip()]
    return Replay(code, printed, lines_of_screen(terminal.shown))
