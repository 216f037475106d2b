"""How `sparkrack apply` goes: plan, agree, lock, carry out, tell."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import click
from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from sparkrack.cli.session import evaluated, selected
from sparkrack.cli.show import MARKS, printable, show_plan
from sparkrack.fleet import Rack
from sparkrack.fleet.selection import Selection
from sparkrack.ops.account import Entry, Sort
from sparkrack.ops.lock import Holder
from sparkrack.run.carry import Carrying, Step
from sparkrack.run.files import state_folder
from sparkrack.run.guard import LockError, locked, me
from sparkrack.run.interrupt import Interrupt
from sparkrack.run.journal import SCHEMA, Journal
from sparkrack.run.plan import Plan
from sparkrack.run.session import Session

TRIALS = "a change on trial is taken back by its machine within 90 s; run again then"


def approved(file: Path) -> Plan:
    """The plan that `sparkrack plan --out` kept. Raises ClickException when the file is none."""
    try:
        return Plan.model_validate_json(file.read_text())
    except (OSError, ValueError, ValidationError):
        raise click.ClickException(f"{file}: is no plan that `sparkrack plan --out` has kept") from None


def moved(then: Plan, now: Plan) -> list[str]:
    """How two plans differ in what they would do, a line each; empty when they would do the same."""
    if then.fingerprint == now.fingerprint:
        return []
    old, new = _lines(then), _lines(now)
    gone = [f"no longer: {line}" for line in old if line not in new]
    come = [f"now: {line}" for line in new if line not in old]
    return [*gone, *come] or ["the content of a file, or the order of the steps"]


def _lines(plan: Plan) -> list[str]:
    return [
        f"{machine.name}: {step.role}: {said.text}"
        for machine in plan.machines
        for step, said in machine.said(*(sort for sort in Sort if sort not in (Sort.NOTE, Sort.UNMANAGED)))
    ] + [f"{machine.name}: {machine.standing}" for machine in plan.machines]


class Applying:
    """One `sparkrack apply`. What a person reads goes to stdout, or to stderr when stdout is JSON."""

    def __init__(self, file: Path, *, quiet: bool, as_json: bool) -> None:
        self.file = file
        self.quiet = quiet
        self.as_json = as_json
        self.console = Console(stderr=as_json, highlight=False, markup=False, soft_wrap=True)
        self.log = _Log(self.console)

    def run(
        self,
        kept: Plan | None,
        limit: tuple[str, ...],
        exclude: tuple[str, ...],
        only: tuple[str, ...],
        *,
        ask: bool,
    ) -> int:
        """The exit code."""
        if kept:
            limit, only = tuple(machine.name for machine in kept.machines), kept.roles
        rack, selection = selected(self.file, limit, exclude, only)
        with evaluated(rack, self.file, selection, self.log) as run:
            now = run.plan
            if kept and (lines := moved(kept, now)):
                raise click.ClickException(
                    f"since the plan was made ({kept.made:%Y-%m-%d %H:%M} UTC) things have moved; nothing was changed\n"
                    + "\n".join(f"  {line}" for line in lines)
                )
            if not kept or now.untold:
                show_plan(now, quiet=self.quiet, console=self.console)
            if now.untold:
                names = ", ".join(machine.name for machine in now.untold)
                raise click.ClickException(f"{names}: cannot be brought to the declared state; nothing was changed")
            if now.code == 0:
                self._tell_end(None, "nothing to do", [])
                return 0
            if ask:
                click.confirm("Apply this?", abort=True, err=self.as_json)
            return self._carry(run.session, rack, selection, now)

    def _carry(self, session: Session, rack: Rack, selection: Selection, plan: Plan) -> int:
        what = f"{', '.join(selection.machines)}{'' if selection.whole else ': ' + ', '.join(plan.roles)}"
        holder = me(what)
        try:
            with locked(session, holder) as left:
                code = self._under_lock(session, rack, plan, holder)
        except LockError as fault:
            raise click.ClickException(str(fault)) from None
        for line in left:
            self.console.print(line, style="red")
        return code or (1 if left else 0)

    def _under_lock(self, session: Session, rack: Rack, plan: Plan, holder: Holder) -> int:
        journal = Journal(state_folder(rack.rack) / "runs", holder.id)
        told = _Told(self.console, journal, quiet=self.quiet)
        journal.write(
            "began",
            schema=SCHEMA,
            who=holder.who,
            what=holder.what,
            file=str(self.file),
            revision=plan.revision,
            plan=plan.fingerprint,
        )
        result = "failed"
        with Interrupt(lambda: self.console.print("the operation at hand is ended first; again to cut it off")) as stop:
            carrying = Carrying(session, told, stop.asked)
            self.log.on = True
            try:
                result = "done" if carrying.run() else "failed" if carrying.failed else "stopped"
            except KeyboardInterrupt:
                result = "cut off"
            finally:
                self.log.on = False
                journal.write("ended", result=result, failed=carrying.failed, at_hand=carrying.at_hand)
                journal.close()
        self._tell_end(journal, result, told.state(carrying, plan))
        return 0 if result == "done" else 1

    def _tell_end(self, journal: Journal | None, result: str, lines: list[str]) -> None:
        for line in lines:
            self.console.print(line)
        where = f"; journal: {journal.path}" if journal else ""
        self.console.print(f"{result}{where}", style="bold" if result in ("done", "nothing to do") else "bold red")
        if self.as_json:
            report = {
                "schema": "sparkrack.apply/1",
                "result": result,
                "run": journal.run if journal else None,
                "journal": str(journal.path) if journal else None,
                "state": lines,
            }
            click.echo(json.dumps(report, indent=1))


class _Told:
    """Tells a person and the journal how a run goes on."""

    def __init__(self, console: Console, journal: Journal, *, quiet: bool) -> None:
        self.console = console
        self.journal = journal
        self.quiet = quiet
        self.changed: dict[str, int] = {}
        self.notes: dict[str, None] = {}

    def begins(self, role: str, sentence: str, number: int, total: int) -> None:
        """Only where somebody watches: a line for each operation would bury those that change something."""
        if self.console.is_terminal and not self.quiet:
            self.console.print(Text(f"[{number}/{total}] {role}: {sentence}", style="dim"))

    def ended(self, step: Step) -> None:
        self.journal.write(
            "step",
            host=step.machine,
            role=step.role,
            step=step.title,
            result=step.result,
            seconds=step.seconds,
        )
        if step.result == "changed":
            self.changed[step.machine] = self.changed.get(step.machine, 0) + 1
        if step.result == "no change" or (self.quiet and step.result == "changed"):
            return
        style = "green" if step.result == "changed" else "red"
        where = f"[{step.number}/{step.total}] {step.machine}: {step.role}: {step.title}"
        self.console.print(Text(f"{where}: ").append(f"{step.result}, {step.seconds:.1f} s", style=style))

    def said(self, machine: str, entry: Entry) -> None:
        text = printable(entry.text)
        self.journal.write("said", host=machine, sort=entry.sort, text=entry.text)
        if entry.sort in (Sort.REFUSED, Sort.UNKNOWN):
            mark, style = MARKS[entry.sort]
            self.console.print(Text(f"{machine}: {mark}{text}", style=style))
        elif entry.sort in (Sort.NOTE, Sort.FAULT, Sort.FLEET):
            self.notes[f"{machine}: {MARKS[entry.sort][0]}{text}"] = None

    def state(self, carrying: Carrying, plan: Plan) -> list[str]:
        """What state everything is in, a line each."""
        lines = list(self.notes)
        for machine in plan.machines:
            name = machine.name
            if name in carrying.at_hand:
                lines.append(f"{name}: ended in the middle of {carrying.at_hand[name]}; {TRIALS}")
            else:
                done = self.changed.get(name, 0)
                lines.append(f"{name}: {_count(done)} changed it" if done else f"{name}: nothing was changed")
        return lines


def _count(operations: int) -> str:
    return f"{operations} operation{'' if operations == 1 else 's'}"


class _Log(logging.Handler):
    """What roles and machines say while a run goes on: pyinfra's log, without its colours and its own steps."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console
        self.on = False

    def emit(self, record: logging.LogRecord) -> None:
        text = click.unstyle(record.getMessage())
        # A host's line begins with its name; what is without one, and pyinfra's own verdicts, are ours to tell.
        if self.on and text.startswith("[") and not text.endswith(("Success", "No changes")):
            style = "red" if record.levelno >= logging.ERROR else "dim"
            self.console.print(Text(f"  {printable(text)}", style=style))
