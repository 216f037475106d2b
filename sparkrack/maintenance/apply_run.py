"""Sequence of `sparkrack apply`: read the lock, plan, ask, lock, plan again, execute."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from core.model import Rack, load
from core.model.errors import printable
from core.model.selection import ALWAYS, ROLES, Selection
from core.ops import host_facts
from core.ops.run_lock import Holder, LockError, new_holder
from core.util import regular_file
from core.util.command_error import CommandError, DeclinedError
from core.util.debug_log import RunLog
from core.util.event import Event, EventKind
from core.util.paths import state_folder
from core.util.signals import Interrupt
from roles.watch.options import WatchOptions, server
from serving.options import served_units
from sparkrack.engine.apply_result import ApplyResult, ApplyState, Fault
from sparkrack.engine.evaluated import open_run, planned
from sparkrack.engine.execute import Executor, OperationResult, RunObserver, ShownPlan
from sparkrack.engine.journal import (
    HostError,
    HostMessage,
    Line,
    OperationFinished,
    RunFinished,
    RunJournal,
    RunResult,
    RunStarted,
    log_path,
)
from sparkrack.engine.locking import locked, locked_if_reachable, look
from sparkrack.engine.plan import CHANGES, Plan
from sparkrack.engine.rack_lock import RackLock
from sparkrack.engine.run_log import run_log
from sparkrack.engine.session import RunSession
from sparkrack.engine.silences import Silence, silenced, silences_of_nodes, silences_of_switches, silences_of_units
from sparkrack.watch.scrapes import unscraped

if TYPE_CHECKING:
    from sparkrack.terminal.apply_screen import ApplyTerminal

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
        for unit in served_units(rack).values()
        if any(changed.get(name) == {"serving"} for name in unit.ranks(rack.nodes))
    ]
    switches = [name for name, roles in changed.items() if name in rack.switches and roles]
    return [*silences_of_nodes(rack, nodes), *silences_of_units(units), *silences_of_switches(rack, switches)]


def approved(file: Path, rack_file: Path) -> Plan:
    """Read the plan that `sparkrack plan --out` kept. Raises CommandError for an invalid file, and for a plan about
    another rack than the one in `rack_file`.
    """
    try:
        plan = Plan.model_validate_json(regular_file.read_text(file))
    except (OSError, ValueError, ValidationError):
        plan = None
    if plan is None or not (ALWAYS <= set(plan.roles) <= set(ROLES)):
        raise CommandError(f"{file}: is not a plan that `sparkrack plan --out` has kept")
    _require_same_rack(plan, rack_file)
    return plan


def _require_same_rack(kept: Plan, file: Path) -> None:
    """Raises CommandError when a plan is about another rack than the one in `file`."""
    name = load(file).rack
    if kept.rack != name:
        about = printable(f"rack {kept.rack} ({kept.file})")
        raise CommandError(f"the plan is about {about}, {file} is rack {name}; pass --rack; nothing was changed")


def plan_differences(then: Plan, now: Plan) -> list[str]:
    """Return the differences between the changes of two plans, a line each; empty when they are the same."""
    if then.fingerprint == now.fingerprint:
        return []
    old, new = _change_lines(then), _change_lines(now)
    gone = [f"no longer: {line}" for line, _ in (old - new)]
    come = [f"now: {line}" for line, _ in (new - old)]
    return [printable(line) for line in (*gone, *come)] or ["the order of the steps"]


def _change_lines(plan: Plan) -> Counter[tuple[str, tuple[str, ...]]]:
    """Return each change of a run, with the lines of its diff, which are compared and not shown."""
    return Counter(
        (f"{machine.name}: {step.role}: {event.message}", event.diff)
        for machine in plan.hosts
        for step, event in machine.events(*_ACTS)
    ) + Counter((f"{machine.name}: {machine.state}", ()) for machine in plan.hosts)


def _require_reachable(plan: Plan) -> None:
    """Raises CommandError when a machine is unknown, unreachable or refused."""
    if plan.unknown_hosts:
        names = ", ".join(machine.name for machine in plan.unknown_hosts)
        raise CommandError(f"{names}: cannot be brought to the declared state; nothing was changed")


def _never_agreed(_: Holder) -> bool:
    return False


class ExecutionRecorder:
    """Writes an execution to the journal, counts its changes, and passes it on to `shown`."""

    def __init__(self, journal: RunJournal, shown: RunObserver) -> None:
        self.journal = journal
        self.unwritten = ""
        """Why the journal is incomplete."""
        self._plan_and_show = shown
        self._changed: Counter[str] = Counter()
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
        """Pass on the start of an operation."""
        self._plan_and_show.begins(role, sentence, number, total)

    def ended(self, step: OperationResult) -> None:
        """Record the end of one operation on one host."""
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
            self._changed[step.machine] += 1
        self._plan_and_show.ended(step)

    def message(self, machine: str, entry: Event) -> None:
        """Record an event of an operation."""
        self.write(HostMessage.of(self.journal.run, machine, entry))
        if entry.kind in (EventKind.REFUSED, EventKind.UNKNOWN):
            self._refused.add(machine)
        self._plan_and_show.message(machine, entry)

    def broke(self, machine: str, why: str) -> None:
        """Record that an operation ended abnormally."""
        self.write(HostError(run=self.journal.run, host=machine, reason=why))
        self._plan_and_show.broke(machine, why)

    def states(self, carrying: Executor, machines: Iterable[str]) -> tuple[ApplyState, ...]:
        """Return the state of every host."""
        return tuple(self._machine_state(carrying, name) for name in machines)

    def _machine_state(self, carrying: Executor, name: str) -> ApplyState:
        changed = self._changed[name]
        if name in carrying.in_progress:
            return ApplyState(name=name, changed=changed, fault="interrupted", operation=carrying.in_progress[name])
        if name in carrying.failed:
            fault: Fault = "refused" if name in self._refused else "failed"
            return ApplyState(name=name, changed=changed, fault=fault, operation=carrying.failed[name])
        return ApplyState(name=name, changed=changed)


class ApplyRun:
    """One `sparkrack apply`, or `sparkrack remove`, of a selection.

    `file`: the rack file. `no_nodes`: see `RunSession`. `no_lock`: go on if the node that has the lock cannot be
    reached. `terminal`: whether the operator can be asked about the lock of a dead run.
    """

    def __init__(
        self,
        rack: Rack,
        file: Path,
        selection: Selection,
        screen: ApplyTerminal,
        *,
        no_nodes: bool,
        no_lock: bool,
        terminal: bool,
    ) -> None:
        self.rack, self.file, self.selection = rack, file, selection
        self.screen = screen
        self.no_nodes, self.no_lock, self.terminal = no_nodes, no_lock, terminal

    def run(self, kept: Plan | None, *, ask: bool) -> ApplyResult:
        """Run, and return the result. `kept`: the plan that was approved earlier. `ask`: whether to ask before what is
        shown is executed. Raises CommandError, with nothing changed, when it cannot begin.
        """
        with run_log() as log:
            shown = kept or self._plan_and_show()
            if shown.code == 0 and not kept:
                return ApplyResult(result="nothing to do")
            question = "Take this off?" if self.selection.removes else "Apply this?"
            if ask and not self.screen.confirm(question):
                raise DeclinedError
            return self._execute_shown(shown, kept, log)

    def _plan_and_show(self) -> Plan:
        """Plan, and show the plan. The lock is not held during this: the review may take an hour."""
        with (
            self.screen.progress() as progress,
            open_run(self.rack, self.file, self.selection, self.screen.log, progress) as session,
        ):
            session.no_nodes(self.no_nodes)
            progress.phase("read the lock")
            look(session, asks=self.terminal)
            plan = planned(session, self.file)
        self.screen.show_plan(plan)
        _require_reachable(plan)
        return plan

    def _execute_shown(self, shown: Plan, kept: Plan | None, log: RunLog) -> ApplyResult:
        """Do what was shown, or nothing: the plan is made again under the lock, and is the one that is carried out."""
        roles = "" if self.selection.whole else f": {', '.join(shown.roles)}"
        own = new_holder(f"{', '.join(self.selection.machines)}{roles}")
        held: RackLock | None = None
        try:
            with (
                Interrupt(
                    lambda: self.screen.say("the operation in progress is finished first; repeat to interrupt it")
                ) as stop,
                self.screen.progress() as progress,
                open_run(self.rack, self.file, self.selection, self.screen.log, progress) as session,
                self._hold_lock(session, own) as held,
            ):
                session.no_nodes(self.no_nodes)
                now = planned(session, self.file)
                self._require_shown_plan(shown, kept, now)
                if held:
                    for host in session.active:
                        host_facts.carry_facts(host)
                done = ApplyResult(result="nothing to do")
                if now.code:
                    # No alert is silenced where a run takes off what would silence it.
                    silences = [] if self._removes_watch() else silences_of_plan(self.rack, now)
                    with silenced(self.rack, own.id, "apply", silences, SILENT_SECONDS, self.screen.say):
                        done = self._execute_plan(session, now, own, stop, held, log)
                        if done.result == "done" and not self.selection.removes:
                            missing = unscraped(self.rack, now, stop.asked, progress)
                            done = done.model_copy(update={"notes": (*done.notes, *filter(None, [missing]))})
        except LockError:
            raise
        except CommandError as fault:
            raise CommandError("\n".join([str(fault), *(held.left if held else ())])) from None
        return done.model_copy(update={"faults": (*done.faults, *(held.left if held else ()))})

    def _removes_watch(self) -> bool:
        if not self.selection.removes or self.rack.declared(WatchOptions) is None:
            return False
        watcher = server(self.rack)
        return watcher is not None and watcher.name in self.selection.machines

    def _require_shown_plan(self, shown: Plan, kept: Plan | None, now: Plan) -> None:
        """Raises CommandError when what would be done is not what was shown, or cannot be done."""
        if lines := plan_differences(shown, now):
            when = f"made ({shown.made.astimezone(UTC):%Y-%m-%d %H:%M} UTC)" if kept else "shown"
            raise CommandError(
                f"since the plan was {when} things have moved; nothing was changed\n"
                + "\n".join(f"  {line}" for line in lines)
            )
        if now.unknown_hosts:
            self.screen.show_moved_plan(now)
        _require_reachable(now)

    def _hold_lock(self, session: RunSession, own: Holder) -> AbstractContextManager[RackLock | None]:
        """Hold the lock of the rack. The switch may be the reason that the node with the lock is unreachable: so an
        option allows a run that selects no node to continue without it.
        """
        agreed: Callable[[Holder], bool] = self._end_dead_lock if self.terminal else _never_agreed
        if any(name in session.rack.nodes for name in session.selection.machines):
            return locked(session, own, agreed, self.screen.say)
        return locked_if_reachable(session, own, self._without_lock, agreed, self.screen.say)

    def _without_lock(self, why: str) -> None:
        if not self.no_lock:
            raise LockError(f"{why}; nothing was changed. If no other run is active: --no-lock")
        self.screen.say(f"{why}; going on without it")

    def _end_dead_lock(self, dead: Holder) -> bool:
        question = f"{dead} is dead: its process on this machine is gone. End its lock?"
        # No operation is running that Ctrl-C would have to let finish.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return self.screen.confirm(question)
        finally:
            signal.signal(signal.SIGINT, before)

    def _execute_plan(
        self, session: RunSession, plan: Plan, own: Holder, stop: Interrupt, held: RackLock | None, log: RunLog
    ) -> ApplyResult:
        """Execute the plan, with a journal."""
        folder = state_folder(self.rack.rack) / "runs"
        try:
            journal = RunJournal(folder, own.id)
        except OSError as error:
            why = f"{folder}: no journal can be kept: {error.strerror}; nothing was changed"
            raise CommandError(why) from None
        log.keep(log_path(journal.path))
        with self.screen.execution() as shown:
            recorder = ExecutionRecorder(journal, shown)
            recorder.write(
                RunStarted(
                    run=own.id,
                    operator=own.who,
                    scope=own.what,
                    file=str(self.file),
                    revision=plan.revision,
                    plan=plan.fingerprint,
                )
            )
            carrying = Executor(
                session,
                recorder,
                lambda: stop.asked() or self.screen.gone or bool(recorder.unwritten),
                shown=ShownPlan(plan),
                lost=held.lost if held else lambda: "",
                records=not self.selection.removes,
            )
            result: RunResult = "failed"
            try:
                result = "done" if carrying.run() else "failed" if carrying.failed else "stopped"
            except KeyboardInterrupt:
                result = "interrupted"
            finally:
                recorder.write(
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
            hosts=recorder.states(carrying, (machine.name for machine in plan.hosts)),
            notes=tuple(self.screen.notes),
            faults=(recorder.unwritten,) if recorder.unwritten else (),
        )
