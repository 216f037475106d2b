"""Output of `sparkrack apply`, during the run and at its end: to the terminal and to the journal."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import click
from rich.console import Console
from rich.text import Text

from core.util.event import Event, EventKind
from sparkrack.cli.progress import PipeConsole, ProgressDisplay
from sparkrack.cli.render_plan import MARKS, printable
from sparkrack.engine.apply_result import ApplyState, Fault
from sparkrack.engine.execute import Executor, OperationResult
from sparkrack.engine.journal import HostError, HostMessage, Line, OperationFinished, RunJournal

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


class RunReporter:
    """Reports the progress of a run to the console and the journal."""

    def __init__(self, voice: RunConsole, journal: RunJournal, *, quiet: bool) -> None:
        self.voice = voice
        self.journal = journal
        self.quiet = quiet
        self.notes: dict[str, None] = {}
        self.unwritten = ""
        """Why the journal is incomplete."""
        self._changed: dict[str, int] = {}
        self._refused: set[str] = set()

    def write(self, line: Line) -> None:
        """Write one line to the journal."""
        if self.unwritten:
            return
        try:
            self.journal.write(line)
        except OSError as error:
            self.unwritten = f"the journal is not whole: {error.strerror}"

    def begins(self, role: str, sentence: str, number: int, total: int) -> None:
        """Report the start of an operation, on a terminal only: a line for each operation would hide those that change
        something.
        """
        if self.voice.console.is_terminal and not self.quiet:
            self.voice.say(f"[{number}/{total}] {role}: {sentence}", "dim")
        # A log has the lines of what changes.
        if self.voice.progress and self.voice.progress.on_terminal:
            self.voice.progress.phase(f"[{number}/{total}] {role}: {sentence}")

    def ended(self, step: OperationResult) -> None:
        """Report the end of one operation on one host."""
        self.write(
            OperationFinished(
                run=self.journal.run,
                host=step.machine,
                role=step.role,
                operation=step.title,
                result=step.result,
                seconds=step.seconds,
            )
        )
        if step.result == "changed":
            self._changed[step.machine] = self._changed.get(step.machine, 0) + 1
        if step.result == "no change" or (self.quiet and step.result == "changed"):
            return
        style = "green" if step.result == "changed" else "red"
        where = f"[{step.number}/{step.total}] {step.machine}: {step.role}: {step.title}"
        self.voice.say(Text(f"{where}: ").append(f"{step.result}, {step.seconds:.1f} s", style=style))

    def message(self, machine: str, entry: Event) -> None:
        """Report an event of an operation. An event of the plan is not shown again."""
        self.write(HostMessage.of(self.journal.run, machine, entry))
        mark, style = MARKS[entry.kind]
        line = f"{machine}: {mark}{printable(entry.labelled)}"
        if entry.kind in (EventKind.REFUSED, EventKind.UNKNOWN):
            self._refused.add(machine)
            self.voice.say(line, style)
        elif entry.kind in (EventKind.NOTE, EventKind.BROKEN, EventKind.OUTLIER):
            self.notes[line] = None

    def broke(self, machine: str, why: str) -> None:
        """An operation ended as none should."""
        self.write(HostError(run=self.journal.run, host=machine, reason=why))
        self.voice.say(f"{machine}: {printable(why)}", "red")

    def states(self, carrying: Executor, machines: Iterable[str]) -> tuple[ApplyState, ...]:
        """Return the state of every host."""
        return tuple(self._state(carrying, name) for name in machines)

    def _state(self, carrying: Executor, name: str) -> ApplyState:
        changed = self._changed.get(name, 0)
        if name in carrying.in_progress:
            return ApplyState(name=name, changed=changed, fault="interrupted", operation=carrying.in_progress[name])
        if name in carrying.failed:
            fault: Fault = "refused" if name in self._refused else "failed"
            return ApplyState(name=name, changed=changed, fault=fault, operation=carrying.failed[name])
        return ApplyState(name=name, changed=changed)


class PyinfraLogHandler(logging.Handler):
    """Handler for pyinfra's log during a run, which has the messages of roles and hosts, without its colours and its
    own steps.
    """

    def __init__(self, voice: RunConsole) -> None:
        super().__init__()
        self.voice = voice
        self.on = False

    def emit(self, record: logging.LogRecord) -> None:
        text = click.unstyle(record.getMessage())
        # A host's line begins with its name; lines without one, and pyinfra's own verdicts, are reported by us.
        verdict = text.endswith(("Success", "No changes")) or "] Error: executed " in text
        if self.on and text.startswith("[") and not verdict:
            style = "red" if record.levelno >= logging.ERROR else "dim"
            self.voice.say(f"  {printable(text)}", style)
