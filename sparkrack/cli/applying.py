"""How `sparkrack apply` goes: look at the lock, plan, agree, lock, plan again, carry out, tell."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path

import click
from pydantic import ValidationError

from sparkrack.cli.applied import Applied
from sparkrack.cli.session import opened, planned, selected
from sparkrack.cli.show import printable, show_plan
from sparkrack.cli.telling import Log, Telling, Voice, told
from sparkrack.fleet import Rack, load, regular
from sparkrack.fleet.places import state_folder
from sparkrack.fleet.selection import ALWAYS, ROLES, Selection
from sparkrack.ops.account import Sort
from sparkrack.ops.lock import Holder, LockError, me
from sparkrack.run.carry import Carrying, Shown
from sparkrack.run.guard import Lock, locked, look
from sparkrack.run.interrupt import Interrupt
from sparkrack.run.journal import Began, Ended, Journal, RunResult
from sparkrack.run.plan import Plan
from sparkrack.run.session import Session

_ACTS = frozenset(Sort) - {Sort.NOTE, Sort.FAULT, Sort.FLEET, Sort.UNMANAGED}
"""What two plans must have in common."""


def approved(file: Path) -> Plan:
    """The plan that `sparkrack plan --out` kept. Raises ClickException when the file is none."""
    try:
        plan = Plan.model_validate_json(regular.read_text(file))
    except (OSError, ValueError, ValidationError):
        plan = None
    if plan is None or not (ALWAYS <= set(plan.roles) <= set(ROLES)):
        raise click.ClickException(f"{file}: is no plan that `sparkrack plan --out` has kept")
    return plan


def _same_rack(kept: Plan, file: Path) -> None:
    """Raises ClickException when a plan is about another rack than the one in `file`."""
    name = load(file).rack
    if kept.rack != name:
        about = printable(f"rack {kept.rack} ({kept.file})")
        raise click.ClickException(f"the plan is about {about}, {file} is rack {name}; say --rack; nothing was changed")


def moved(then: Plan, now: Plan) -> list[str]:
    """How two plans differ in what they would do, a line each; empty when they would do the same."""
    if then.fingerprint == now.fingerprint:
        return []
    old, new = _lines(then), _lines(now)
    gone = [f"no longer: {line}" for line, _ in (old - new)]
    come = [f"now: {line}" for line, _ in (new - old)]
    return [printable(line) for line in (*gone, *come)] or ["the order of the steps"]


def _lines(plan: Plan) -> Counter[tuple[str, tuple[str, ...]]]:
    """Each thing that a run would do, with the lines of its diff, which are compared and not shown."""
    return Counter(
        (f"{machine.name}: {step.role}: {said.text}", said.diff)
        for machine in plan.machines
        for step, said in machine.said(*_ACTS)
    ) + Counter((f"{machine.name}: {machine.standing}", ()) for machine in plan.machines)


def _all_told(plan: Plan) -> None:
    """Raises ClickException when a machine is unknown, unreachable or refused."""
    if plan.untold:
        names = ", ".join(machine.name for machine in plan.untold)
        raise click.ClickException(f"{names}: cannot be brought to the declared state; nothing was changed")


def _nobody(_: Holder) -> bool:
    return False


class Applying:
    """One `sparkrack apply`. What a person reads goes to stdout, or to stderr when stdout is JSON."""

    def __init__(self, file: Path, *, quiet: bool, as_json: bool) -> None:
        self.file = file
        self.quiet = quiet
        self.as_json = as_json
        self.voice = Voice(stderr=as_json)
        self.log = Log(self.voice)

    def run(
        self,
        kept: Plan | None,
        limit: Iterable[str],
        exclude: Iterable[str],
        only: Iterable[str],
        *,
        ask: bool,
        terminal: bool = False,
    ) -> int:
        """The exit code. `ask`: whether to carry out what is shown; `terminal`: somebody is there to be asked about the
        lock of a dead run. Raises ClickException, with nothing changed, when it cannot begin."""
        if kept:
            _same_rack(kept, self.file)
            limit, only = (machine.name for machine in kept.machines), kept.roles
        rack, selection = selected(self.file, tuple(limit), tuple(exclude), tuple(only))
        shown = kept or self._shown(rack, selection, terminal)
        if shown.code == 0 and not kept:
            return self._tell(Applied(result="nothing to do"))
        if ask:
            click.confirm("Apply this?", abort=True, err=self.as_json)
        return self._tell(self._carry(rack, selection, shown, kept, terminal))

    def _shown(self, rack: Rack, selection: Selection, terminal: bool) -> Plan:
        """What a run would do, shown. The lock is not held meanwhile: whoever reads may take an hour."""
        with opened(rack, self.file, selection, self.log) as session:
            try:
                look(session, asks=terminal)
            except LockError as fault:
                raise click.ClickException(str(fault)) from None
            plan = planned(session, self.file)
        show_plan(plan, quiet=self.quiet, console=self.voice.console)
        _all_told(plan)
        return plan

    def _carry(self, rack: Rack, selection: Selection, shown: Plan, kept: Plan | None, terminal: bool) -> Applied:
        """Do what was shown, or nothing: the plan is made again under the lock, and is the one that is carried out."""
        mine = me(f"{', '.join(selection.machines)}{'' if selection.whole else ': ' + ', '.join(shown.roles)}")
        held: Lock | None = None
        try:
            with (
                Interrupt(lambda: self.voice.say("the operation at hand is ended first; again to cut it off")) as stop,
                opened(rack, self.file, selection, self.log) as session,
                locked(session, mine, self._agreed if terminal else _nobody, self.voice.say) as held,
            ):
                now = planned(session, self.file)
                self._compare(shown, kept, now)
                done = Applied(result="nothing to do")
                if now.code:
                    done = self._under_lock(session, rack, now, mine, stop, held)
        except LockError as fault:
            raise click.ClickException(str(fault)) from None
        except click.ClickException as fault:
            raise click.ClickException("\n".join([fault.message, *(held.left if held else ())])) from None
        return done.model_copy(update={"faults": (*done.faults, *held.left)})

    def _compare(self, shown: Plan, kept: Plan | None, now: Plan) -> None:
        """Raises ClickException when what would be done is not what was shown, or cannot be done."""
        if lines := moved(shown, now):
            when = f"made ({shown.made.astimezone(UTC):%Y-%m-%d %H:%M} UTC)" if kept else "shown"
            raise click.ClickException(
                f"since the plan was {when} things have moved; nothing was changed\n"
                + "\n".join(f"  {line}" for line in lines)
            )
        if now.untold:
            show_plan(now, quiet=self.quiet, console=self.voice.console)
        _all_told(now)

    def _agreed(self, dead: Holder) -> bool:
        question = f"{dead} is dead: its process on this machine is gone. End its lock?"
        # No operation is at hand that Ctrl-C would have to let end.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return click.confirm(question, err=self.as_json)
        finally:
            signal.signal(signal.SIGINT, before)

    def _under_lock(
        self, session: Session, rack: Rack, plan: Plan, mine: Holder, stop: Interrupt, held: Lock
    ) -> Applied:
        folder = state_folder(rack.rack) / "runs"
        try:
            journal = Journal(folder, mine.id)
        except OSError as error:
            why = f"{folder}: no journal can be kept: {error.strerror}; nothing was changed"
            raise click.ClickException(why) from None
        telling = Telling(self.voice, journal, quiet=self.quiet)
        telling.write(
            Began(
                run=mine.id,
                who=mine.who,
                what=mine.what,
                file=str(self.file),
                revision=plan.revision,
                plan=plan.fingerprint,
            )
        )
        result: RunResult = "failed"
        carrying = Carrying(
            session,
            telling,
            lambda: stop.asked() or self.voice.gone or bool(telling.unwritten),
            shown=Shown(plan),
            lost=lambda: held.lost,
        )
        self.log.on = True
        try:
            result = "done" if carrying.run() else "failed" if carrying.failed else "stopped"
        except KeyboardInterrupt:
            result = "cut off"
        finally:
            self.log.on = False
            telling.write(
                Ended(run=mine.id, result=result, failed=tuple(carrying.failed), at_hand=dict(carrying.at_hand))
            )
            journal.close()
        return Applied(
            result=result,
            run=mine.id,
            journal=str(journal.path),
            machines=telling.states(carrying, (machine.name for machine in plan.machines)),
            notes=tuple(telling.notes),
            faults=(telling.unwritten,) if telling.unwritten else (),
        )

    def _tell(self, done: Applied) -> int:
        for line in (*done.notes, *map(told, done.machines)):
            self.voice.say(line)
        for line in done.faults:
            self.voice.say(line, "red")
        where = f"; journal: {done.journal}" if done.journal else ""
        self.voice.say(f"{done.result}{where}", "bold red" if done.code else "bold")
        if self.as_json:
            click.echo(done.model_dump_json(by_alias=True, indent=1))
        return done.code
