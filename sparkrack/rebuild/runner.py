"""Sequence of a rebuild: phase after phase, each recorded before it begins and after it has ended."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import assert_never

from core.model import Rack
from core.model.errors import printable_line
from core.util.progress import NO_PROGRESS, ProgressObserver
from roles.driver.options import DriverOptions
from serving.running_engines import nodes_of_unit
from sparkrack.engine.subcommands import CommandResult, CommandRunner, InterruptedCommandError
from sparkrack.rebuild import phase_commands, reboot_reasons
from sparkrack.rebuild.journal import (
    CommandFinished,
    CommandStarted,
    Past,
    PhaseFinished,
    PhaseResult,
    PhaseStarted,
    RebuildJournal,
    RebuildResumed,
)
from sparkrack.rebuild.journal import RebuildFinished as EndLine
from sparkrack.rebuild.model import Outcome, Phase, PhaseReport, Request, phases
from sparkrack.rebuild.wait_for_ports import HostPort, wait
from sparkrack.rebuild.workloads import (
    NodeReachability,
    NodeWorkload,
    counted_workloads,
    running_units,
    unit_blockers,
    unknown_units,
    workload_blockers,
)

POLL_SECONDS = 5.0
"""Seconds between two questions to a node that restarts."""


class RebuildStoppedError(Exception):
    """A phase failed. The text has the reason."""


@dataclass(frozen=True)
class Environment:
    """External functions of a rebuild. `load`: the rack from the current file. `look`: the current workloads of nodes;
    the second ones are asked once, even if they are booting. `works`: whether a switch already accepts our login over
    its pinned certificate, at its declared address. `ports`: the endpoints of each host. `timeout`: seconds to wait for
    them. `own`: the one of these nodes that is this machine. `say`: prints a line. `progress`: observer of what the
    rebuild itself does. `hidden`: nothing of that is shown in the block, in which a command shows its own.
    """

    load: Callable[[], Rack]
    look: Callable[[Sequence[str], Sequence[str]], dict[str, NodeWorkload]]
    works: Callable[[str], bool]
    ports: Callable[[], dict[str, tuple[HostPort, ...]]]
    timeout: float
    say: Callable[[str], None]
    progress: ProgressObserver = NO_PROGRESS
    own: Callable[[Sequence[str]], str | None] = lambda _names: None
    hidden: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass
class Rebuild:
    """One rebuild. `containers`: nodes whose containers may end. `stop_units`: units that run may be stopped. `past`:
    what an earlier process noted of it.
    """

    request: Request
    forwarded: phase_commands.ForwardedOptions
    containers: frozenset[str]
    around: Environment
    caller: CommandRunner
    journal: RebuildJournal
    past: Past | None
    stop_units: bool = False
    restarted: list[str] = field(init=False)
    reports: dict[Phase, PhaseReport] = field(init=False)

    def __post_init__(self) -> None:
        past = self.past
        self.restarted = list(past.restarted) if past else []
        self.reports = {phase: _earlier_report(past, phase) for phase in phases(self.request)}

    @property
    def next(self) -> Phase | None:
        """The phase to begin, or to resume; None when all are done."""
        return next((phase for phase, report in self.reports.items() if report.result != "done"), None)

    def run(self, who: str) -> PhaseResult:
        """Go through the phases that are left; how it ended. Raises OSError when the journal cannot be written."""
        if self.past is not None and self.next is not None:
            self.journal.write(RebuildResumed(run=self.journal.run, who=who, phase=self.next))
        result: PhaseResult = "done"
        while result == "done" and (phase := self.next) is not None:
            result = self._run_phase(phase)
        self.journal.write(EndLine(run=self.journal.run, result=result))
        return result

    def _work_of_phase(self, phase: Phase) -> Callable[[], None]:
        """Return what carries out a phase."""
        match phase:
            case Phase.WAIT:
                return self._wait_for_machines
            case Phase.BOOTSTRAP:
                return self._bootstrap_machines
            case Phase.APPLY:
                return self._run_apply
            case Phase.REBOOT:
                return self._run_reboots
            case Phase.START:
                return self._start_units
            case Phase.VERIFY:
                return self._run_verify
            case _:
                assert_never(phase)

    def _run_phase(self, phase: Phase) -> PhaseResult:
        place = f"[{list(self.reports).index(phase) + 1}/{len(self.reports)}] {phase}"
        self.around.say(f"{place}: {self.request.title}")
        self.journal.write(PhaseStarted(run=self.journal.run, phase=phase))
        begin = time.monotonic()
        result: PhaseResult = "done"
        reason = ""
        try:
            self.caller.check()
            self._work_of_phase(phase)()
        except RebuildStoppedError as stopped:
            result, reason = "failed", str(stopped)
        except InterruptedCommandError:
            result, reason = "interrupted", "stopped by a signal"
        seconds = time.monotonic() - begin
        self.journal.write(
            PhaseFinished(run=self.journal.run, phase=phase, result=result, seconds=round(seconds, 1), reason=reason)
        )
        before = self.reports[phase]
        self.reports[phase] = PhaseReport(
            phase=phase,
            result=result,
            seconds=round(before.seconds + seconds, 1),
            tries=before.tries + 1,
            reason=reason,
        )
        self.around.say(f"{place}: {result}, {seconds:.1f} s{': ' + reason if reason else ''}")
        return result

    def _wait_for_machines(self) -> None:
        self.around.progress.phase("wait for an answer", self.request.machines)
        missing = wait(self.around.ports(), self.around.timeout, self.around.say, self.caller.check)
        if missing:
            names = ", ".join(missing)
            raise RebuildStoppedError(
                f"{names}: no answer within {self.around.timeout:g} s; look at power, cable and address"
            )

    def _bootstrap_machines(self) -> None:
        self._stop_running_units()
        if self.request.nodes:
            self._call_command(phase_commands.bootstrap_nodes(self.request, self.forwarded))
        for name in self.request.switches:
            if folder := self.forwarded.packages:
                self._call_command(phase_commands.upgrade_switch(self.request, self.forwarded, name, folder))
            # A node that this rebuild began is bootstrapped again: a login does not prove that it was completed.
            self.around.progress.phase("try our login", [name])
            if not self._switch_has_begun(name) and self.around.works(name):
                self.around.say(f"{name}: takes our login over the pinned certificate; no first contact is needed")
                continue
            self._call_command(phase_commands.bootstrap_switch(self.request, self.forwarded, name))

    def _run_apply(self) -> None:
        self._stop_running_units(ready=True)
        for words in phase_commands.apply(self.request, self.around.load()):
            self._call_command(words)

    def _run_reboots(self) -> None:
        wanted = self._asking_for_a_restart()
        if wanted and self.request.units:
            # Those that the phase before has started; the others were stopped before, or the rebuild was refused.
            self._stop_units(running_units(self.around.look(tuple(wanted), ())))
        own = self.around.own(tuple(wanted)) if wanted else None
        for name, reason in sorted(wanted.items(), key=lambda one: one[0] == own):
            if name in self.restarted:
                self.around.say(
                    f"{name}: was restarted already and still asks for it: {printable_line(reason)}; left to verify"
                )
                continue
            self.around.say(f"{name}: is to be restarted: {printable_line(reason)}")
            if name == own:
                self.around.say(f"{name} is this machine: this command ends here; call it again after the boot")
            self._call_command(phase_commands.reboot(self.request, name, name in self.containers), machine=name)
            self.restarted.append(name)
        if not wanted:
            self.around.say("no node asks for a restart")

    def _asking_for_a_restart(self) -> dict[str, str]:
        """The nodes that ask for it, and why. One that an earlier process has sent down may be on its way up."""
        rack = self.around.load()
        driver = rack.declared(DriverOptions) is not None and rack.keeps("driver")
        timeout = self.around.timeout if self.past is not None and self.past.tries(Phase.REBOOT) else 0
        until = time.monotonic() + timeout
        while True:
            answers = [
                self._call_command(words, keep=True).output for words in reboot_reasons.questions(self.request, driver)
            ]
            try:
                return reboot_reasons.reasons(self.request.nodes, answers[0], answers[1] if driver else None)
            except reboot_reasons.ReasonUnknownError as unknown:
                if time.monotonic() > until:
                    raise RebuildStoppedError(str(unknown)) from None
            self.around.say("a node may still be on its way up; asking again")
            self.around.progress.phase("wait until the nodes answer", self.request.nodes)
            time.sleep(POLL_SECONDS)

    def _start_units(self) -> None:
        rack = self.around.load()
        for name in self.request.units:
            if absent := [node for node in nodes_of_unit(rack, name) if node in self.request.apart]:
                self.around.say(f"unit {name}: {', '.join(absent)} of it is excluded, so it is not started")
                continue
            self._call_command(phase_commands.start_unit(self.request, name))

    def _run_verify(self) -> None:
        for words in phase_commands.verify(self.request, self.around.load()):
            self._call_command(words)

    def _switch_has_begun(self, switch: str) -> bool:
        return self.past is not None and self.past.called("bootstrap", "switch", switch)

    def _stop_running_units(self, *, ready: bool = False) -> None:
        """Stop the units that run on the affected nodes, if that is confirmed. Raises RebuildStoppedError when a node
        runs what must not end, or when a unit cannot be stopped.
        """
        rack = self.around.load()
        nodes = phase_commands.affected_nodes(rack, self.request)
        self.around.progress.phase("count the containers", nodes)
        found = self.around.look(nodes, phase_commands.asked_besides(rack, self.request))
        units, reason = judge_workloads(rack, self.request, found, self.containers, self.stop_units, ready=ready)
        if reason:
            raise RebuildStoppedError("\n".join(reason))
        self._stop_units(units)

    def _stop_units(self, units: Iterable[str]) -> None:
        for name in units:
            self._call_command(phase_commands.stop_unit(self.request, name))

    def _call_command(
        self, words: Sequence[str], *, keep: bool = False, machine: str | None = None, fine: Collection[int] = ()
    ) -> CommandResult:
        """Call a command. Raises RebuildStoppedError unless it succeeds; kept output is evaluated by its content
        instead. `fine`: further exit codes that are a success.
        """
        self.journal.write(CommandStarted(run=self.journal.run, words=tuple(words)))
        if not keep:
            self.around.say(f"  sparkrack {shlex.join(words)}")
        if keep:
            self.around.progress.phase(f"run sparkrack {words[0]}")
        with nullcontext() if keep else self.around.hidden():
            done = self.caller.call(words, keep=keep)
        self.journal.write(
            CommandFinished(run=self.journal.run, exit=done.exit, seconds=round(done.seconds, 1), machine=machine)
        )
        self.caller.check()
        # 2: done with a warning, which the verb has shown; see `sparkrack bootstrap switch --help`.
        grouped = words[0] in ("bootstrap", "switch")
        if done.exit not in (0, *((2,) if grouped else ()), *fine) and not keep:
            how = f"was ended by signal {-done.exit}" if done.exit < 0 else f"ended with {done.exit}"
            named = words[: 3 if words[0] == "serve" else 2 if grouped else 1]
            raise RebuildStoppedError(f"sparkrack {' '.join(named)} {how}")
        return done


def judge_workloads(
    rack: Rack,
    request: Request,
    found: Mapping[str, NodeWorkload],
    containers: Collection[str],
    stop_units: bool,
    *,
    ready: bool = False,
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the units that run and that the rebuild would end, each with the nodes that show it, and why it must not
    go on, a line each. `found`: of the affected nodes, and of those asked besides. For the others see `Rebuild` and
    `workload_blockers`.
    """
    affected = phase_commands.affected_nodes(rack, request)
    units = phase_commands.affected_units(rack, request)
    running = running_units(counted_workloads(found, affected, units))
    unknown = {name: nodes for name, nodes in units.items() if name not in running}
    return running, [
        *workload_blockers({name: found[name] for name in affected}, request.nodes, containers, ready=ready),
        *unit_blockers(rack, running, stops=stop_units),
        *unknown_units(rack, found, unknown, containers),
    ]


def rack_state(found: dict[str, NodeWorkload]) -> list[str]:
    """Return notes about nodes that are not in service, a line each."""
    quiet = (NodeReachability.NOT_OURS, NodeReachability.AWAY)
    return [
        f"{name}: {service.reachability.value} ({service.reason})"
        for name, service in found.items()
        if service.reachability in quiet
    ]


def _earlier_report(past: Past | None, phase: Phase) -> PhaseReport:
    """A phase as an earlier process left it."""
    if past is None:
        return PhaseReport(phase=phase, result="not reached", seconds=0, tries=0)
    result: Outcome = "done" if phase in past.done else "interrupted" if past.tries(phase) else "not reached"
    return PhaseReport(phase=phase, result=result, seconds=past.seconds(phase), tries=past.tries(phase))
