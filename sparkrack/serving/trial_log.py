"""What `sparkrack serve tune` shows of a trial: a line a step. All that `serve recreate` prints is in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from core.model.errors import printable_line
from core.util.command_error import CommandError
from core.util.screen import Screen
from sparkrack.serving.coordinator import SERVING, CoordinatorTransition
from sparkrack.serving.tune_ledger import LOG_SUFFIX

LAST_LINES = 3
"""Lines of what a failed program has printed that are the reason of a verdict."""


class TrialLog:
    """A file beside a ledger, and the screen. `file`: for the output of other programs."""

    def __init__(self, path: Path, file: BinaryIO, screen: Screen) -> None:
        self.path, self.file, self._screen = path, file, screen

    def write(self, text: str) -> None:
        """Write a line to the file. Raises CommandError."""
        try:
            self.file.write(f"{datetime.now(UTC):%H:%M:%SZ} {printable_line(text)}\n".encode())
        except OSError as error:
            raise _write_error(self.path, error) from None

    def begin(self, title: str) -> None:
        """Show what is tried now."""
        self.write(title)
        self._screen.say(title)

    def step(self, text: str) -> None:
        """Show a step that is done."""
        self.write(text)
        self._show(text)

    def show_change(self, before: CoordinatorTransition, now: CoordinatorTransition) -> None:
        """Show a change of the unit's state that ends a step, and that is in the file already. A failure is shown when
        the trial is judged.
        """
        took = max(0.0, now.at - before.at)
        if (before.state, now.state) == ("gating", "starting"):
            self._show(f"gates passed in {took:.0f} s")
        elif before.state == "starting" and now.state in SERVING:
            self._show(f"ready after {took:.0f} s: {now.reason}")

    def show_written(self, begun: int) -> str:
        """Show what other programs have written to the file since it had `begun` bytes; return the last lines of it."""
        try:
            with self.path.open("rb") as file:
                file.seek(begun)
                lines = file.read().decode(errors="replace").splitlines()
        except OSError as error:
            lines = [f"{self.path}: cannot be read: {error.strerror or error}"]
        for line in lines:
            self._show(line)
        return "; ".join([printable_line(line.strip()) for line in lines if line.strip()][-LAST_LINES:])

    def _show(self, text: str) -> None:
        self._screen.say(f"  {printable_line(text)}")


@contextmanager
def open_trial_log(ledger: Path, screen: Screen) -> Iterator[TrialLog]:
    """Append to the log beside a ledger during the block. Raises CommandError."""
    path = ledger.with_suffix(LOG_SUFFIX)
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise _write_error(path, error) from None
    with file:
        yield TrialLog(path, file, screen)


def _write_error(path: Path, error: OSError) -> CommandError:
    return CommandError(f"{path}: cannot be written: {error.strerror or error}")
