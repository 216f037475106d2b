"""What `sparkrack apply` tells, while it goes on and at its end: a person, and the journal."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

import click
from rich.console import Console
from rich.text import Text

from sparkrack.cli.applied import Fault, State
from sparkrack.cli.show import MARKS, printable
from sparkrack.ops.account import Entry, Sort
from sparkrack.run.carry import Carrying, Step
from sparkrack.run.journal import Broke, Journal, Line, Said, Stepped

TRIALS = "a change on trial is taken back by its machine within 90 s; run again then"
STAYS = "what of that was done stays, unless a line above says that it is back; run again"


class _Console(Console):
    """Lets a broken pipe be an error, in whose handling rich calls it; rich itself would end the program in the middle
    of an operation."""

    def on_broken_pipe(self) -> None:
        raise


class Voice:
    """What a person reads. Whoever reads may go in the middle (a pipe, a terminal that is closed): then `gone` is true
    and nothing more is said, but no operation is ended by that."""

    def __init__(self, *, stderr: bool) -> None:
        self.console: Console = _Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True)
        self.gone = False

    def say(self, text: str | Text, style: str | None = None) -> None:
        """One line."""
        if self.gone:
            return
        try:
            self.console.print(text, style=style)
        except OSError:
            self.gone = True
            # Python would write what is left once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.console.file.fileno())


def told(state: State) -> str:
    """In what state a run leaves a machine, in words."""
    parts = [f"{state.changed} operation{'' if state.changed == 1 else 's'} changed it"] if state.changed else []
    match state.fault:
        case "refused":
            parts.append(f"refused at {state.step}; nothing of that was done")
        case "failed":
            parts.append(f"failed in the middle of {state.step}; {STAYS}")
        case "cut off":
            parts.append(f"ended in the middle of {state.step}; {TRIALS}")
    return f"{state.name}: {'; '.join(parts) or 'nothing was changed'}"


class Telling:
    """Tells a person and the journal how a run goes on."""

    def __init__(self, voice: Voice, journal: Journal, *, quiet: bool) -> None:
        self.voice = voice
        self.journal = journal
        self.quiet = quiet
        self.notes: dict[str, None] = {}
        self.unwritten = ""
        """Why the journal is not whole."""
        self._changed: dict[str, int] = {}
        self._refused: set[str] = set()

    def write(self, line: Line) -> None:
        """One line of the journal."""
        if self.unwritten:
            return
        try:
            self.journal.write(line)
        except OSError as error:
            self.unwritten = f"the journal is not whole: {error.strerror}"

    def begins(self, role: str, sentence: str, number: int, total: int) -> None:
        """Only where somebody watches: a line for each operation would bury those that change something."""
        if self.voice.console.is_terminal and not self.quiet:
            self.voice.say(f"[{number}/{total}] {role}: {sentence}", "dim")

    def ended(self, step: Step) -> None:
        """One operation on one machine."""
        self.write(
            Stepped(
                run=self.journal.run,
                host=step.machine,
                role=step.role,
                step=step.title,
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

    def said(self, machine: str, entry: Entry) -> None:
        """What an operation says. What stands in the plan already is not shown again."""
        self.write(Said(run=self.journal.run, host=machine, sort=entry.sort, text=entry.text))
        mark, style = MARKS[entry.sort]
        line = f"{machine}: {mark}{printable(entry.text)}"
        if entry.sort in (Sort.REFUSED, Sort.UNKNOWN):
            self._refused.add(machine)
            self.voice.say(line, style)
        elif entry.sort in (Sort.NOTE, Sort.FAULT, Sort.FLEET):
            self.notes[line] = None

    def broke(self, machine: str, why: str) -> None:
        """An operation ended as none should."""
        self.write(Broke(run=self.journal.run, host=machine, why=why))
        self.voice.say(f"{machine}: {printable(why)}", "red")

    def states(self, carrying: Carrying, machines: Iterable[str]) -> tuple[State, ...]:
        """In what state everything is."""
        return tuple(self._state(carrying, name) for name in machines)

    def _state(self, carrying: Carrying, name: str) -> State:
        changed = self._changed.get(name, 0)
        if name in carrying.at_hand:
            return State(name=name, changed=changed, fault="cut off", step=carrying.at_hand[name])
        if name in carrying.failed:
            fault: Fault = "refused" if name in self._refused else "failed"
            return State(name=name, changed=changed, fault=fault, step=carrying.failed[name])
        return State(name=name, changed=changed)


class Log(logging.Handler):
    """What roles and machines say while a run goes on: pyinfra's log, without its colours and its own steps."""

    def __init__(self, voice: Voice) -> None:
        super().__init__()
        self.voice = voice
        self.on = False

    def emit(self, record: logging.LogRecord) -> None:
        text = click.unstyle(record.getMessage())
        # A host's line begins with its name; what is without one, and pyinfra's own verdicts, are ours to tell.
        verdict = text.endswith(("Success", "No changes")) or "] Error: executed " in text
        if self.on and text.startswith("[") and not verdict:
            style = "red" if record.levelno >= logging.ERROR else "dim"
            self.voice.say(f"  {printable(text)}", style)
