"""Output of `sparkrack apply`, during the run and at its end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from core.model.errors import printable
from core.util.event import Event, EventKind
from sparkrack.engine.apply_result import ApplyResult, ApplyState
from sparkrack.engine.plan import Plan
from sparkrack.engine.render_plan import MARKS, show_plan
from sparkrack.terminal.progress import PipeConsole, ProgressDisplay, show_progress
from sparkrack.terminal.prompts import confirm

if TYPE_CHECKING:
    from sparkrack.engine.execute import OperationResult

TRIALS = "an unconfirmed change is reverted by its machine within 90 s; run again then"
STAYS = "partial changes remain unless a line above reports that they were reverted; run again"


class RunConsole:
    """Console of the run. Its reader may exit at any time (a pipe, a closed terminal): then `gone` is true and nothing
    more is printed, but no operation is interrupted by that.
    """

    def __init__(self, *, stderr: bool) -> None:
        self.console: Console = PipeConsole(stderr=stderr, highlight=False, markup=False, soft_wrap=True)
        self.gone = False
        self.progress: ProgressDisplay | None = None
        """What shows the progress of the run now; it is hidden while a line is printed."""

    def hidden_progress(self) -> AbstractContextManager[None]:
        """Hide the progress in the block, which prints or asks."""
        return self.progress.hidden() if self.progress else nullcontext()

    def say(self, text: str | Text, style: str | None = None) -> None:
        """Print one line unless the reader has gone."""
        if self.gone:
            return
        try:
            with self.hidden_progress():
                self.console.print(text, style=style)
        except OSError:
            self.gone = True
            # Python would write the rest again when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.console.file.fileno())


class ApplyTerminal:
    """The terminal of one apply. Text goes to stdout, or to stderr when stdout is JSON. `show_next`: has what to run
    after a plan that cannot be carried out printed below the error.
    """

    def __init__(self, *, quiet: bool, as_json: bool, show_next: Callable[[Plan], None]) -> None:
        self.quiet, self.as_json = quiet, as_json
        self._show_next = show_next
        self._console = RunConsole(stderr=as_json)
        self._shown = ExecutionDisplay(self._console, quiet=quiet)
        self.log = PyinfraLogHandler(self._console)

    @property
    def gone(self) -> bool:
        """Whether the reader of the output has exited."""
        return self._console.gone

    @property
    def notes(self) -> Iterator[str]:
        """The notices of the run, a line each."""
        yield from self._shown.notes

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.say(text)

    def show_plan(self, plan: Plan) -> None:
        """Show the plan of which the operator is asked, and call `show_next` when it cannot be carried out."""
        show_plan(plan, quiet=self.quiet, console=self._console.console)
        if plan.unknown_hosts:
            self._show_next(plan)

    def show_moved_plan(self, plan: Plan) -> None:
        """Show a plan that cannot be carried out any more."""
        with self._console.hidden_progress():
            show_plan(plan, quiet=self.quiet, console=self._console.console)

    def confirm(self, question: str) -> bool:
        """Ask a question with the answers yes and no."""
        with self._console.hidden_progress():
            return confirm(question, err=self.as_json)

    @contextmanager
    def progress(self) -> Iterator[ProgressDisplay]:
        """Show the progress of the block, apart from the lines of the run."""
        with show_progress(silent=self.quiet or self.as_json) as shown:
            self._console.progress = shown
            try:
                yield shown
            finally:
                self._console.progress = None

    @contextmanager
    def execution(self) -> Iterator[ExecutionDisplay]:
        """Show the execution in the block, and what pyinfra logs of it."""
        self.log.on = True
        try:
            yield self._shown
        finally:
            self.log.on = False

    def report(self, done: ApplyResult) -> None:
        """Print the result, as JSON too if requested."""
        for line in (*done.notes, *map(host_summary, done.hosts)):
            self._console.say(line)
        for line in done.faults:
            self._console.say(line, "red")
        where = f"; journal: {done.journal}" if done.journal else ""
        self._console.say(f"{done.result}{where}", "bold red" if done.code else "bold")
        if self.as_json:
            click.echo(done.model_dump_json(by_alias=True, indent=1))


def host_summary(state: ApplyState) -> str:
    """In what state a run leaves a machine, in words."""
    parts = [f"{state.changed} operation{'' if state.changed == 1 else 's'} changed it"] if state.changed else []
    match state.fault:
        case "refused":
            parts.append(f"refused at {state.operation}; nothing of that was done")
        case "failed":
            parts.append(f"failed in the middle of {state.operation}; {STAYS}")
        case "interrupted":
            parts.append(f"ended in the middle of {state.operation}; {TRIALS}")
    return f"{state.name}: {'; '.join(parts) or 'nothing was changed'}"


class ExecutionDisplay:
    """Shows the execution of a plan."""

    def __init__(self, console: RunConsole, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self.notes: dict[str, None] = {}
        """The notices, a line each, for the end of the run."""

    def begins(self, role: str, sentence: str, number: int, total: int) -> None:
        """Show the start of an operation, on a terminal only: a line for each operation would hide those that change
        something.
        """
        if self._console.console.is_terminal and not self._quiet:
            self._console.say(f"[{number}/{total}] {role}: {sentence}", "dim")
        # A log has the lines of what changes.
        if self._console.progress and self._console.progress.on_terminal:
            self._console.progress.phase(f"[{number}/{total}] {role}: {sentence}")

    def ended(self, step: OperationResult) -> None:
        """Show the end of one operation on one host."""
        if step.result == "no change" or (self._quiet and step.result == "changed"):
            return
        style = "green" if step.result == "changed" else "red"
        where = f"[{step.number}/{step.total}] {step.machine}: {step.role}: {step.title}"
        self._console.say(Text(f"{where}: ").append(f"{step.result}, {step.seconds:.1f} s", style=style))

    def message(self, machine: str, entry: Event) -> None:
        """Show an event of an operation. An event of the plan is not shown again."""
        mark, style = MARKS[entry.kind]
        line = f"{machine}: {mark}{printable(entry.labelled)}"
        if entry.kind in (EventKind.REFUSED, EventKind.UNKNOWN):
            self._console.say(line, style)
        elif entry.kind in (EventKind.NOTE, EventKind.BROKEN, EventKind.OUTLIER):
            self.notes[line] = None

    def broke(self, machine: str, why: str) -> None:
        """Show that an operation ended abnormally."""
        self._console.say(f"{machine}: {printable(why)}", "red")


class PyinfraLogHandler(logging.Handler):
    """Handler for pyinfra's log during a run, which has the messages of roles and hosts, without its colours and its
    own steps.
    """

    def __init__(self, console: RunConsole) -> None:
        super().__init__()
        self._console = console
        self.on = False

    def emit(self, record: logging.LogRecord) -> None:
        text = click.unstyle(record.getMessage())
        # A host's line begins with its name; lines without one, and pyinfra's own verdicts, are reported by us.
        verdict = text.endswith(("Success", "No changes")) or "] Error: executed " in text
        if self.on and text.startswith("[") and not verdict:
            style = "red" if record.levelno >= logging.ERROR else "dim"
            self._console.say(f"  {printable(text)}", style)
