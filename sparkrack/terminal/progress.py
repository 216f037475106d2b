"""Progress of a command that reads, plans or verifies: live on a terminal, a few lines in a log, always on stderr."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
from pydantic import SecretStr
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from core.model.errors import printable_line
from core.util.debug_log import LOG
from core.util.progress import WITHOUT_PROGRESS
from sparkrack.engine.subcommands import WITHIN
from sparkrack.terminal import prompts

TERMINAL_SECONDS = 0.5
"""Seconds between two pictures on a terminal, which has the elapsed time and so always moves."""
LOG_SECONDS = 5.0
"""Seconds before the first line in a log, and at least between two: what takes less leaves no line."""


class PipeConsole(Console):
    """Lets a broken pipe be an error, in whose handling rich calls it; rich itself would end the program in the middle
    of an operation."""

    def on_broken_pipe(self) -> None:
        raise


@dataclass(frozen=True)
class _HostStep:
    activity: str
    number: int = 0
    total: int = 0
    finished: bool = False

    @property
    def text(self) -> str:
        return f"{self.activity} ({self.number} of {self.total})" if self.total else self.activity


_WAITS = _HostStep("waits")


class ProgressDisplay:
    """Shows the progress of one command on stderr. A terminal gets a picture that is removed at the end; a dumb one a
    single line that is written over; a log at most one line each LOG_SECONDS, none twice. What cannot be written is
    dropped: progress is not a result.
    """

    def __init__(self, *, silent: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`silent`: show nothing, as --json and --quiet demand. `clock`: returns seconds."""
        self._console = PipeConsole(stderr=True, highlight=False, markup=False)
        terminal = sys.stderr.isatty()  # not `is_terminal`, which FORCE_COLOR sets for a log, too
        self.on_terminal = terminal and not silent
        self._live: Live | None = None
        self._line = terminal and self._console.is_dumb_terminal
        self._log = not terminal
        self._pictures = terminal and not self._line
        self._clock = clock
        self._began = self._drawn = clock()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._title = ""
        self._hosts: dict[str, _HostStep] = {}
        self._printed: set[str] = set()
        self._width = 0
        self._hidden, self._gone = False, silent

    # --- observer ----------------------------------------------------------------------------------------------------

    def phase(self, title: str, hosts: Iterable[str] = ()) -> None:
        """Show a phase and its hosts."""
        with self._lock:
            self._title = title
            self._hosts = dict.fromkeys(hosts, _WAITS)
            self._draw_picture(force=not self._log)

    def step(self, host: str, activity: str, number: int = 0, total: int = 0) -> None:
        """Show the activity of a host."""
        with self._lock:
            self._hosts[host] = _HostStep(activity, number, total)
            self._draw_picture()

    def finish(self, host: str, result: str = "done") -> None:
        """Show the end of a host."""
        with self._lock:
            self._hosts[host] = _HostStep(result, finished=True)
            self._draw_picture()

    # --- display -----------------------------------------------------------------------------------------------------

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the progress during the block; the terminal is clean after it, however it ends."""
        ticking = threading.Thread(target=self._draw_regularly, daemon=True)
        with self._lock:
            self._resume_picture()
        if not self._gone:
            ticking.start()
        try:
            yield
        finally:
            self._over.set()
            with self._lock:
                self._hide_picture()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Remove the picture during the block, in which a line is printed."""
        with self._lock:
            before = self._hidden
            self._hide_picture()
            try:
                yield
            finally:
                if not before:
                    self._resume_picture()

    def warn(self, text: str) -> None:
        """Print one line to stderr, apart from the picture."""
        self.say(text, err=True)

    def say(self, text: str, *, err: bool = False) -> None:
        """Print one line of the command's own output, apart from the picture."""
        LOG.debug("printed: %s", text)
        with self.hidden():
            click.echo(text, err=err)

    # --- questions ---------------------------------------------------------------------------------------------------

    @property
    def interactive(self) -> bool:
        """Whether a question can be answered."""
        return prompts.has_terminal()

    def confirm(self, question: str, *, default: bool = False) -> bool:
        """Ask a question with the answers yes and no."""
        with self.hidden():
            return prompts.confirm(question, default=default)

    def require_consent(self, question: str) -> None:
        """Ask a question. Raises DeclinedError unless the answer is yes."""
        with self.hidden():
            prompts.require_consent(question)

    def ask(self, question: str, default: str) -> str:
        """Ask for a text."""
        with self.hidden():
            return prompts.ask(question, default)

    def hidden_prompt(self, question: str, *, skippable: bool = False) -> SecretStr:
        """Ask for a password without showing it; `skippable`: Enter gives an empty one. Raises SecretError for one in
        another encoding than UTF-8.
        """
        with self.hidden():
            return prompts.hidden_prompt(question, skippable=skippable)

    def _draw_regularly(self) -> None:
        while not self._over.wait(TERMINAL_SECONDS):
            with self._lock:
                self._draw_picture()

    def _resume_picture(self) -> None:
        self._hidden = self._over.is_set()
        if not self._hidden:
            self._draw_picture(force=not self._log)

    def _hide_picture(self) -> None:
        self._hidden = True
        with self._dropping_errors():
            if self._live:
                self._live.stop()
                self._live = None
            elif self._line and self._width:
                self._write_stderr(f"\r{' ' * self._width}\r")
                self._width = 0

    def _draw_picture(self, *, force: bool = False) -> None:
        """Draw if it is time for it, or by `force` at once."""
        now = self._clock()
        pause = LOG_SECONDS if self._log else TERMINAL_SECONDS / 2
        if self._hidden or self._gone or not self._title or not (force or now - self._drawn >= pause):
            return
        with self._dropping_errors():
            if self._pictures:
                self._drawn = now
                if not self._live:
                    self._live = self._start_live()
                self._live.update(self._render_picture(now), refresh=True)
            elif self._line:
                self._drawn = now
                text = f"{now - self._began:.0f} s: {self._describe_progress()}"[: self._console.width - 1]
                self._write_stderr(f"\r{text.ljust(self._width)}")
                self._width = len(text)
            elif (text := self._describe_progress()) not in self._printed:
                self._drawn = now
                self._printed.add(text)
                self._write_stderr(f"{now - self._began:.0f} s: {text}\n")

    def _start_live(self) -> Live:
        """Start a new picture: one that was stopped remembers its height, and would erase as many lines that were
        printed since."""
        live = Live(
            console=self._console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        live.start()
        # A command that is killed must not leave a terminal without a cursor.
        self._console.show_cursor(True)
        return live

    def _render_picture(self, now: float) -> Text:
        finished = sum(step.finished for step in self._hosts.values())
        count = f": {finished} of {len(self._hosts)} hosts done" if self._hosts else ""
        # A long title is cut before the seconds: they are the part that moves.
        moving = f", {now - self._began:.0f} s{count}"
        title = Text(self._title)
        title.truncate(max(self._console.width - cell_len(moving), 1), overflow="ellipsis")
        picture = Text(f"{title.plain}{moving}", style="bold", no_wrap=True)
        width = max(map(len, self._hosts), default=0)
        for name, step in self._hosts.items():
            picture.append(f"\n  {name.ljust(width)}  {printable_line(step.text)}", style="not bold dim")
        picture.overflow = "ellipsis"
        return picture

    def _describe_progress(self) -> str:
        states = ", ".join(f"{name} {printable_line(step.text)}" for name, step in self._hosts.items())
        return f"{self._title}: {states}" if states else self._title

    def _write_stderr(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    @contextmanager
    def _dropping_errors(self) -> Iterator[None]:
        """Go on without progress when stderr can no longer be written."""
        try:
            yield
        except (OSError, ValueError):
            self._gone = True


def warn(text: str) -> None:
    """Print one line to stderr, where no progress is shown."""
    click.echo(text, err=True)


def quiet_is_silent() -> bool:
    """Whether --quiet leaves progress out, too: a command that another command of sparkrack runs shows it, since a
    person waits there for more than one line.
    """
    return not os.environ.get(WITHIN)


@contextmanager
def show_progress(*, silent: bool) -> Iterator[ProgressDisplay]:
    """Show the progress of the block on stderr. `silent`: show nothing, as --json and --quiet demand."""
    display = ProgressDisplay(silent=silent or bool(os.environ.get(WITHOUT_PROGRESS)))
    with display.shown():
        yield display
