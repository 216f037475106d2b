"""Sequence of `sparkrack apply`: read the lock, plan, ask, lock, plan again, execute, report."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from core.model import Rack, load
from core.model.selection import ALWAYS, ROLES, Selection
from core.ops.run_lock import Holder, LockError, new_holder
from core.util import regular_file
from core.util.event import EventKind
from core.util.paths import state_folder
from core.util.signals import Interrupt
from sparkrack.cli.next_step import after_plan, next_step
from sparkrack.cli.output import PyinfraLogHandler, RunConsole, RunReporter, host_summary
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.render_plan import printable, show_plan
from sparkrack.engine.apply_result import ApplyResult
from sparkrack.engine.evaluated import open_run, planned, selected
from sparkrack.engine.execute import Executor, ShownPlan
from sparkrack.engine.journal import RunFinished, RunJournal, RunResult, RunStarted, log_path
from sparkrack.engine.locking import RunLock, locked, locked_if_reachable, look
from sparkrack.engine.plan import CHANGES, Plan
from sparkrack.engine.run_log import run_log
from sparkrack.engine.session import RunSession
from sparkrack.watch.scrapes import unscraped
from sparkrack.watch.silences import Silence, silenced, silences_of_nodes, silences_of_switches, silences_of_units

_ACTS = frozenset(EventKind) - {EventKind.NOTE, EventKind.BROKEN, EventKind.OUTLIER, EventKind.UNMANAGED}
"""The kinds of changes that two plans must have in common."""


SILENT_SECONDS = 3600
"""Seconds for which alerts are silent at most, of what a run changes; most runs are over in minutes."""
_QUIET_ROLES = frozenset({"images", "models"})
"""Roles that only bring files, which may take hours, and end nothing that runs."""


def silences_of_plan(rack: Rack, plan: Plan) -> list[Silence]:
    """Return what is silent while a plan is carried out: the hosts that it changes, or only their units."""
    changed = {host.name: {step.role for step, _ in host.events(*CHANGES)} - _QUIET_ROLES for host in plan.hosts}
    nodes = [name for name, roles in changed.items() if name in rack.nodes and roles - {"serving"}]
    units = [
        unit.name
        for unit in (rack.serving.units.values() if rack.serving else ())
        if any(changed.get(name) == {"serving"} for name in unit.ranks(rack.nodes))
    ]
    switches = [name for name, roles in changed.items() if name in rack.switches and roles]
    return [*silences_of_nodes(rack, nodes), *silences_of_units(units), *silences_of_switches(rack, switches)]


def approved(file: Path) -> Plan:
    """Read the plan that `sparkrack plan --out` kept. Raises ClickException for an invalid file."""
    try:
        plan = Plan.model_validate_json(regular_file.read_text(file))
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
        raise click.ClickException(
            f"the plan is about {about}, {file} is rack {name}; pass --rack; nothing was changed"
        )


def plan_differences(then: Plan, now: Plan) -> list[str]:
    """Return the differences between the changes of two plans, a line each; empty when they are the same."""
    if then.fingerprint == now.fingerprint:
        return []
    old, new = _lines(then), _lines(now)
    gone = [f"no longer: {line}" for line, _ in (old - new)]
    come = [f"now: {line}" for line, _ in (new - old)]
    return [printable(line) for line in (*gone, *come)] or ["the order of the steps"]


def _lines(plan: Plan) -> Counter[tuple[str, tuple[str, ...]]]:
    """Return each change of a run, with the lines of its diff, which are compared and not shown."""
    return Counter(
        (f"{machine.name}: {step.role}: {event.message}", event.diff)
        for machine in plan.hosts
        for step, event in machine.events(*_ACTS)
    ) + Counter((f"{machine.name}: {machine.state}", ()) for machine in plan.hosts)


def _require_reachable(plan: Plan) -> None:
    """Raises ClickException when a machine is unknown, unreachable or refused."""
    if plan.unknown_hosts:
        names = ", ".join(machine.name for machine in plan.unknown_hosts)
        raise click.ClickException(f"{names}: cannot be brought to the declared state; nothing was changed")


def _never_agreed(_: Holder) -> bool:
    return False


class ApplyRun:
    """One `sparkrack apply`. Text goes to stdout, or to stderr when stdout is JSON."""

    def __init__(self, file: Path, *, quiet: bool, as_json: bool, no_nodes: bool, no_lock: bool) -> None:
        self.file = file
        self.no_nodes = no_nodes
        self.no_lock = no_lock
        self.quiet = quiet
        self.as_json = as_json
        self.given: dict[str, Any] = {}
        """The selection of hosts and roles, for the next step."""
        self.voice = RunConsole(stderr=as_json)
        self.log = PyinfraLogHandler(self.voice)

    @property
    def silent(self) -> bool:
        """Whether no next step is printed."""
        return self.quiet or self.as_json

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
        """Run, and return the exit code. `ask`: whether to execute what is shown; `terminal`: whether the operator can
        be asked about the lock of a dead run. Raises ClickException, with nothing changed, when it cannot begin.
        """
        with run_log() as self.debug:
            return self._run(kept, limit, exclude, only, ask=ask, terminal=terminal)

    def _run(
        self,
        kept: Plan | None,
        limit: Iterable[str],
        exclude: Iterable[str],
        only: Iterable[str],
        *,
        ask: bool,
        terminal: bool,
    ) -> int:
        if kept:
            _same_rack(kept, self.file)
            limit, only = (machine.name for machine in kept.hosts), kept.roles
        limit, exclude, only = tuple(limit), tuple(exclude), tuple(only)
        self.given = {"limit": limit, "exclude": exclude, "only": only}
        rack, selection = selected(self.file, limit, exclude, only)
        if self.no_lock and (nodes := [name for name in selection.machines if name in rack.nodes]):
            raise click.UsageError(
                f"--no-lock is for a run that selects switches only, and this one selects {', '.join(nodes)} as well; "
                "add --limit switches"
            )
        shown = kept or self._shown(rack, selection, terminal)
        if shown.code == 0 and not kept:
            return self._report(ApplyResult(result="nothing to do"))
        if ask:
            click.confirm("Apply this?", abort=True, err=self.as_json)
        return self._report(self._carry(rack, selection, shown, kept, terminal))

    def _shown(self, rack: Rack, selection: Selection, terminal: bool) -> Plan:
        """Plan, and show the plan. The lock is not held during this: the review may take an hour."""
        with self._progress() as progress, open_run(rack, self.file, selection, self.log, progress) as session:
            session.no_nodes(self.no_nodes)
            progress.phase("read the lock")
            try:
                look(session, asks=terminal)
            except LockError as fault:
                raise click.ClickException(str(fault)) from None
            plan = planned(session, self.file)
        show_plan(plan, quiet=self.quiet, console=self.voice.console)
        if plan.unknown_hosts:
            after_plan(plan, ["sparkrack", "apply"], rack=self.file, silent=self.silent, **self.given)
        _require_reachable(plan)
        return plan

    def _carry(self, rack: Rack, selection: Selection, shown: Plan, kept: Plan | None, terminal: bool) -> ApplyResult:
        """Do what was shown, or nothing: the plan is made again under the lock, and is the one that is carried out."""
        own = new_holder(f"{', '.join(selection.machines)}{'' if selection.whole else ': ' + ', '.join(shown.roles)}")
        held: RunLock | None = None
        try:
            with (
                Interrupt(
                    lambda: self.voice.say("the operation in progress is finished first; repeat to interrupt it")
                ) as stop,
                self._progress() as progress,
                open_run(rack, self.file, selection, self.log, progress) as session,
                self._lock(session, own, terminal) as held,
            ):
                session.no_nodes(self.no_nodes)
                now = planned(session, self.file)
                self._compare(shown, kept, now)
                done = ApplyResult(result="nothing to do")
                if now.code:
                    with silenced(rack, own.id, "apply", silences_of_plan(rack, now), SILENT_SECONDS, self.voice.say):
                        done = self._under_lock(session, rack, now, own, stop, held)
                        if done.result == "done":
                            missing = unscraped(rack, now, stop.asked, progress)
                            done = done.model_copy(update={"notes": (*done.notes, *filter(None, [missing]))})
        except LockError as fault:
            raise click.ClickException(str(fault)) from None
        except click.ClickException as fault:
            raise click.ClickException("\n".join([fault.message, *(held.left if held else ())])) from None
        return done.model_copy(update={"faults": (*done.faults, *(held.left if held else ()))})

    def _compare(self, shown: Plan, kept: Plan | None, now: Plan) -> None:
        """Raises ClickException when what would be done is not what was shown, or cannot be done."""
        if lines := plan_differences(shown, now):
            when = f"made ({shown.made.astimezone(UTC):%Y-%m-%d %H:%M} UTC)" if kept else "shown"
            raise click.ClickException(
                f"since the plan was {when} things have moved; nothing was changed\n"
                + "\n".join(f"  {line}" for line in lines)
            )
        if now.unknown_hosts:
            with self.voice.hidden_progress():
                show_plan(now, quiet=self.quiet, console=self.voice.console)
        _require_reachable(now)

    @contextmanager
    def _progress(self) -> Iterator[ProgressDisplay]:
        """Show the progress of the block, apart from the lines of the run."""
        with show_progress(silent=self.quiet or self.as_json) as shown:
            self.voice.progress = shown
            try:
                yield shown
            finally:
                self.voice.progress = None

    def _lock(self, session: RunSession, own: Holder, terminal: bool) -> AbstractContextManager[RunLock | None]:
        """Hold the lock of the rack. The switch may be the reason that the node with the lock is unreachable: so an
        option allows a run that selects no node to continue without it.
        """
        agreed = self._agreed if terminal else _never_agreed
        if any(name in session.rack.nodes for name in session.selection.machines):
            return locked(session, own, agreed, self.voice.say)
        return locked_if_reachable(session, own, self._without_lock, agreed, self.voice.say)

    def _without_lock(self, why: str) -> None:
        if not self.no_lock:
            raise LockError(f"{why}; nothing was changed. If no other run is active: --no-lock")
        self.voice.say(f"{why}; going on without it")

    def _agreed(self, dead: Holder) -> bool:
        question = f"{dead} is dead: its process on this machine is gone. End its lock?"
        # No operation is running that Ctrl-C would have to let finish.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with self.voice.hidden_progress():
                return click.confirm(question, err=self.as_json)
        finally:
            signal.signal(signal.SIGINT, before)

    def _under_lock(
        self, session: RunSession, rack: Rack, plan: Plan, own: Holder, stop: Interrupt, held: RunLock | None
    ) -> ApplyResult:
        folder = state_folder(rack.rack) / "runs"
        try:
            journal = RunJournal(folder, own.id)
        except OSError as error:
            why = f"{folder}: no journal can be kept: {error.strerror}; nothing was changed"
            raise click.ClickException(why) from None
        self.debug.keep(log_path(journal.path))
        telling = RunReporter(self.voice, journal, quiet=self.quiet)
        telling.write(
            RunStarted(
                run=own.id,
                operator=own.who,
                scope=own.what,
                file=str(self.file),
                revision=plan.revision,
                plan=plan.fingerprint,
            )
        )
        result: RunResult = "failed"
        carrying = Executor(
            session,
            telling,
            lambda: stop.asked() or self.voice.gone or bool(telling.unwritten),
            shown=ShownPlan(plan),
            lost=lambda: held.lost if held else "",
        )
        self.log.on = True
        try:
            result = "done" if carrying.run() else "failed" if carrying.failed else "stopped"
        except KeyboardInterrupt:
            result = "interrupted"
        finally:
            self.log.on = False
            telling.write(
                RunFinished(
                    run=own.id,
                    result=result,
                    failed=tuple(carrying.failed),
                    in_progress=dict(carrying.in_progress),
                )
            )
            journal.close()
        return ApplyResult(
            result=result,
            run=own.id,
            journal=str(journal.path),
            hosts=telling.states(carrying, (machine.name for machine in plan.hosts)),
            notes=tuple(telling.notes),
            faults=(telling.unwritten,) if telling.unwritten else (),
        )

    def _report(self, done: ApplyResult) -> int:
        for line in (*done.notes, *map(host_summary, done.hosts)):
            self.voice.say(line)
        for line in done.faults:
            self.voice.say(line, "red")
        where = f"; journal: {done.journal}" if done.journal else ""
        self.voice.say(f"{done.result}{where}", "bold red" if done.code else "bold")
        if self.as_json:
            click.echo(done.model_dump_json(by_alias=True, indent=1))
        verb = "plan" if done.code else "verify"
        next_step(["sparkrack", verb], rack=self.file, silent=self.silent, **self.given)
        return done.code
