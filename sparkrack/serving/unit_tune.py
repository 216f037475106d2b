"""`sparkrack serve tune UNIT`: one value after the other is tried, and kept only if the unit is faster with it.

A trial runs with a copy of the rack file that has one value changed. rack.yaml itself changes when a value is kept, so
that a run that is killed leaves a file that declares what was proven before: `serve recreate` brings the unit back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from core.model import ConfigError, Rack, load, yaml_editor
from core.model.errors import printable_line
from core.model.fields import mebibytes, seconds
from core.util import atomic_file
from core.util.command_error import CommandError
from core.util.provenance import revision
from core.util.screen import Screen
from roles.memory.options import MemoryOptions
from serving.options import ServedUnit, select_unit
from sparkrack.serving.bench import BenchError
from sparkrack.serving.coordinator import SERVING, CoordinatorError, CoordinatorStatus, ask_coordinators
from sparkrack.serving.recreation import UnitRecreation
from sparkrack.serving.trial_log import TrialLog, open_trial_log
from sparkrack.serving.tune_bench import measure_speed, short_matrix, usual_seconds
from sparkrack.serving.tune_judgement import RUNS, Cause, cause_of, first_failure, gain, is_better, short_memory
from sparkrack.serving.tune_ledger import (
    TrialJudged,
    TrialRun,
    TrialStarted,
    TriedValue,
    TuneBegun,
    TuneEnded,
    TuneLedger,
    Verdict,
    last_ledger,
    new_ledger,
    read_ledger,
)
from sparkrack.serving.tune_nodes import TrialNodes, watched_nodes
from sparkrack.serving.tune_tries import Candidate, Try, candidate, declared_value
from sparkrack.serving.unit_run import POLL_SECONDS, ServeRun, UnitRun, UnitSession, hold_rack

TRIAL_SUFFIX = ".tune"
"""rack.tune beside rack.yaml: the same lock file and the same relative paths count for it."""
SETTLE_SECONDS = 60
"""Seconds after a failure in which the coordinator finds out what it was, beyond those for requests."""
NOTICE_SECONDS = 10
"""Seconds in which a coordinator that calls a unit ready may find out that its measurement failed for a reason."""


@dataclass
class TrialResult:
    """What one trial has shown so far. `generation`: of its start, 0 before it. `reason`: why it has failed. `unknown`:
    it has failed before the unit was asked to start, and a node gave no answer meanwhile.
    """

    runs: list[float] = field(default_factory=list)
    generation: int = 0
    start_s: float | None = None
    reason: str = ""
    unknown: bool = False
    cause: Cause = ""
    memory_left: float | None = None


class UnitTune:
    """One such command. `interrupted`: Ctrl-C ended it; the unit was brought back."""

    def __init__(self, file: Path, name: str, screen: Screen) -> None:
        """Raises CommandError for a unit that cannot be tuned, before any connection."""
        if file.suffix == TRIAL_SUFFIX:
            raise CommandError(f"{file}: is the rack file of a trial; name the file beside it")
        self.file, self.name, self._screen = file, name, screen
        self.rack: Rack = load(file)
        self.unit: ServedUnit = select_unit(self.rack, name)
        self.interrupted = False
        self._log: TrialLog
        self._declared_serves = False
        """Whether the unit serves, proven, with what rack.yaml declares now."""
        if self.unit.state != "up":
            raise CommandError(f"unit {name} is down in rack.yaml, so that it has no speed; write state: up, and apply")
        try:
            short_matrix(self.unit)
        except BenchError as fault:
            raise CommandError(str(fault)) from None

    # What is tried

    def _begin_ledger(self, tries: Sequence[Try]) -> TuneLedger:
        """Begin a ledger for these values. Raises CommandError."""
        begun = TuneBegun(
            schema="sparkrack.serve-tune/1",
            rack=self.rack.rack,
            file=str(self.file),
            revision=revision(self.file),
            unit=self.name,
            image=self.unit.image,
            nodes=self.unit.ranks(self.rack.nodes),
            tries=tuple(TriedValue(key=one.key, value=one.value) for one in tries),
        )
        return new_ledger(begun)

    def resume(self) -> TuneLedger:
        """Return the latest ledger of the unit. Raises CommandError where it has none, or nothing is left to try."""
        found = last_ledger(self.rack.rack, self.name)
        if found is None:
            raise CommandError(f"unit {self.name} has no ledger to resume; name values with --try")
        if found.ended and found.ended.serves and not found.open_tries:
            raise CommandError(f"{found.path}: all of its values are judged; name others with --try")
        return found

    def candidates(self, tries: Sequence[Try]) -> tuple[Candidate, ...]:
        """Return what would be tried, and what `check` refuses, with what rack.yaml has now. Nothing is written."""
        snapshot = yaml_editor.snapshot(self.file)
        return tuple(candidate(snapshot, self.rack, self.name, one) for one in tries)

    def expected_time(self, found: Sequence[Candidate]) -> str:
        """Return how long the trials take at least and at most, by the latest start and measurement of the unit."""
        count = sum(not one.refused for one in found)
        answer = ask_coordinators(self.rack, [self.unit])[self.name]
        figures = answer.figures if isinstance(answer, CoordinatorStatus) else {}
        measured = usual_seconds(self.rack, self.unit)
        if "ready_s" not in figures or measured is None:
            missing = "a good start of the unit" if "ready_s" not in figures else "`serve bench --quick --save`"
            return f"unknown time: no figure of {missing} is recorded"
        start, bench = figures["ready_s"] + figures.get("gates_s", 0.0), RUNS * measured
        least = (count + 1) * (start + bench)
        most = least + count * start
        return (
            f"{_format_minutes(least)} to {_format_minutes(most)}: {count + 1} starts of {start:.0f} s with {RUNS} "
            "measurements of "
            f"{measured:.0f} s each, and up to {count} starts more to go back"
        )

    # The trials

    def run(self, tries: Sequence[Try], resumed: TuneLedger | None = None) -> TuneLedger:
        """Try values, or what is open in a ledger that is resumed; return the ledger.

        Raises CommandError for a lock that is taken or lost, and for a coordinator that gives no answer.
        """
        with hold_rack(self.rack, "tune", self.unit, self._screen, starts=2 * len(tries) + 2) as held:
            # Under the lock: another run may be at work with its ledger and its rack file of a trial.
            ledger = read_ledger(resumed.path) if resumed else self._begin_ledger(tries)
            self.file.with_suffix(TRIAL_SUFFIX).unlink(missing_ok=True)  # of a run that was killed
            with open_trial_log(ledger.path, self._screen) as self._log:
                self._try_all(replace(held, log=self._log), ledger)
            return ledger

    def _try_all(self, held: ServeRun, ledger: TuneLedger) -> None:
        """Try what is open in a ledger, and end it."""
        tries = ledger.open_tries
        before = self._measure_declared(held, ledger)
        reason = "" if before else f"nothing was tried: {ledger.judged[-1].reason}"
        for tried in tries if before else ():
            judged = self._try_value(held, ledger, tried, before)
            if judged.verdict == "kept" and judged.tokens_s:
                before = judged.tokens_s
            if reason := self._reason_to_end(held, judged):
                break
        if before and not self._declared_serves and not self._go_back(held):
            reason = reason or "the unit did not come back"
        ledger.write(TuneEnded(serves=self._declared_serves, reason=reason))

    def _reason_to_end(self, held: ServeRun, judged: TrialJudged) -> str:
        """Bring the unit back after a trial that failed; return why no further value is tried, empty if one can be."""
        if self.interrupted:
            return "interrupted"
        if judged.verdict not in ("failed", "unknown"):
            return ""
        if judged.cause == "driver":
            return f"a GPU or its driver had a fault with {judged.key}; look at its node before another value is tried"
        return "" if self._go_back(held) else f"the unit did not come back after {judged.key}"

    def _measure_declared(self, held: ServeRun, ledger: TuneLedger) -> tuple[float, ...]:
        """Recreate the unit as rack.yaml declares it, and measure it; return the runs, none when that fails."""
        ledger.write(TrialStarted())
        self._log.begin("as declared")
        work, result = UnitRun(self.file, self.name, self._screen), TrialResult()
        recreation = UnitRecreation(work, self.file, False, None)

        def recreate_and_measure(session: UnitSession) -> bool:
            with watched_nodes(work.rack, work.unit) as nodes:
                served = recreation.run(session)
                result.reason = "" if served else session.failure or work.left()
                done = served and self._measure_unit(session, work, nodes, result, ledger, None)
                status = self._wait_for_cause(session, result) if served and result.reason else None
            self._declared_serves = served
            self._add_evidence(nodes, result, status)
            return done and not result.reason

        done = work.attempt(lambda: work.within(held, "recreate", recreate_and_measure))
        reason = result.reason or ("" if done else "interrupted")
        judged = self._make_ledger_line(None, "failed" if reason else "baseline", result, reason, ())
        self._record_verdict(ledger, judged, "" if reason else f"{median(result.runs):.2f} tokens/s")
        return () if reason else tuple(result.runs)

    def _record_verdict(self, ledger: TuneLedger, judged: TrialJudged, figure: str = "") -> None:
        """Write a verdict to the ledger, and show it. `figure`: what there is to say without a reason."""
        ledger.write(judged)
        self._log.step(": ".join(filter(None, (judged.verdict, judged.cause, judged.reason or figure))))

    def _try_value(self, held: ServeRun, ledger: TuneLedger, tried: Try, before: tuple[float, ...]) -> TrialJudged:
        """Try one value; return how it is judged. After it the unit is stopped, unless the value is kept."""
        self._log.begin(str(tried))
        snapshot, rack = yaml_editor.snapshot(self.file), load(self.file)
        runs = ledger.unjudged_runs(tried)
        if runs is not None and declared_value(select_unit(rack, self.name), tried) == tried.value:
            reason = "rack.yaml has it: it was kept by the run that was killed"
            judged = self._make_ledger_line(tried, "kept", TrialResult(list(runs)), reason, before)
            self._record_verdict(ledger, judged.model_copy(update={"tokens_s": tuple(runs)}))
            return judged.model_copy(update={"tokens_s": ()})  # the runs before the next value are those of this start
        found = candidate(snapshot, rack, self.name, tried)
        if found.refused:
            judged = self._make_ledger_line(tried, "refused", TrialResult(), found.refused, ())
            self._record_verdict(ledger, judged)
            return judged
        ledger.write(TrialStarted(key=tried.key, value=tried.value))
        self._declared_serves = False
        judgements: list[TrialJudged] = []
        try:
            with self._trial_file(found.text) as file:
                work = UnitRun(file, self.name, self._screen)
                work.within(
                    held,
                    f"try {tried} on",
                    lambda session: self._run_trial(session, work, ledger, snapshot, found, before, judgements),
                )
        except KeyboardInterrupt:  # after the measurement: while its evidence is collected, or the unit stops
            self.interrupted = True
            # Not in the ledger: --resume finds out whether rack.yaml has the value already.
            judgements = judgements or [
                self._make_ledger_line(tried, "interrupted", TrialResult(), "by Ctrl-C", before)
            ]
        return judgements[-1]

    def _run_trial(
        self,
        session: UnitSession,
        work: UnitRun,
        ledger: TuneLedger,
        snapshot: yaml_editor.FileSnapshot,
        found: Candidate,
        before: tuple[float, ...],
        judgements: list[TrialJudged],
    ) -> bool:
        tried, result = found.tried, TrialResult()
        recreation = UnitRecreation(work, work.file, False, None)
        with watched_nodes(work.rack, work.unit) as nodes:
            try:
                if recreation.attempt(session):
                    self._measure_unit(session, work, nodes, result, ledger, tried)
                else:
                    result.reason = session.failure or "it was interrupted"
            except CoordinatorError as fault:
                result.reason = str(fault)
            except KeyboardInterrupt:
                self.interrupted, result.reason = True, "interrupted"
                for shell in session.shells.values():
                    shell.close()  # a late answer must not count for a later question
            self.interrupted |= work.interrupted
            if not result.generation and work.asked == "start" and work.last:
                result.generation = work.last.generation
            status = self._wait_for_cause(session, result) if result.reason and not self.interrupted else None
        if nodes.silent and result.reason and work.asked != "start":
            result.unknown = True
            result.reason = "; ".join((result.reason, *nodes.silent.values()))
        self._add_evidence(nodes, result, status)
        verdict, reason = self._judge_result(result, before)
        if verdict == "kept":
            reason = self._keep_value(session, recreation, snapshot, found) or reason
            verdict = "kept" if self._declared_serves else "failed"
        judgements.append(self._make_ledger_line(tried, verdict, result, reason, before))
        self._record_verdict(ledger, judgements[-1])
        return verdict == "kept" or work.stop(session)

    def _measure_unit(
        self,
        session: UnitSession,
        work: UnitRun,
        nodes: TrialNodes,
        result: TrialResult,
        ledger: TuneLedger,
        tried: Try | None,
    ) -> bool:
        """Measure the unit as often as a trial needs. Return whether nothing speaks against it meanwhile."""
        begun = session.first_status(0)
        result.generation = begun.generation
        if "ready_s" in begun.figures:
            result.start_s = round(begun.figures["ready_s"] + begun.figures.get("gates_s", 0.0), 1)
        floor = _guard_floor(work.rack)
        for number in range(1, RUNS + 1):
            session.check()
            try:
                speed = round(measure_speed(work.rack, work.unit, self._screen, again=number > 1), 3)
            except BenchError as fault:
                result.reason = printable_line(str(fault))
                return False
            result.runs.append(speed)
            ledger.write(TrialRun(key=tried.key if tried else "", value=tried.value if tried else "", tokens_s=speed))
            self._log.write(f"run {number} of {RUNS}: {speed:.2f} tokens/s")
            if short := short_memory(nodes.left, floor):
                result.reason, result.cause = short, "memory"
                return False
            now = session.first_status(0)
            if now.state not in SERVING or now.generation != result.generation:
                result.reason = f"unit {self.name} is {now.state} after run {number}: {now.reason}"
                return False
        self._log.step(f"measured: {' '.join(f'{speed:.2f}' for speed in result.runs)} tokens/s")
        return True

    def _wait_for_cause(self, session: UnitSession, result: TrialResult) -> CoordinatorStatus | None:
        """Wait until the coordinator of a unit that failed knows why; return its answer, None when it gives none."""
        begun = time.monotonic()
        limit = SETTLE_SECONDS + seconds(self.unit.drain)
        while True:
            try:
                now = session.first_status(0)
            except CoordinatorError:
                return None
            took = time.monotonic() - begun
            moving = now.state in ("stuck", "stopping", "draining")
            waiting = now.state in SERVING and now.generation == result.generation and took < NOTICE_SECONDS
            if (not moving and not waiting) or took > limit:
                return now
            time.sleep(POLL_SECONDS)

    def _add_evidence(self, nodes: TrialNodes, result: TrialResult, status: CoordinatorStatus | None = None) -> None:
        """Add what nodes and coordinator show: a fault in a kernel's log fails a trial that was fast, too."""
        result.memory_left = round(min(nodes.left.values()), 2) if nodes.left else None
        short = short_memory(nodes.left, _guard_floor(self.rack))
        cause = cause_of(status, result.generation, result.reason, nodes.kernel)
        if not result.cause and (result.reason or cause in ("driver", "memory")):
            result.cause = cause
        failure = first_failure(status, result.generation)
        if result.reason and failure and failure not in result.reason:
            result.reason = f"{failure} ({result.reason})"
        if nodes.kernel and cause in ("driver", "memory") and nodes.kernel not in result.reason:
            result.reason = f"{result.reason}; {nodes.kernel}" if result.reason else nodes.kernel
        if not result.reason and short:
            result.reason, result.cause = short, "memory"
        if not result.reason and nodes.unknown:
            result.reason = f"it is unknown whether a node had a fault: {nodes.unknown}"

    def _judge_result(self, result: TrialResult, before: tuple[float, ...]) -> tuple[Verdict, str]:
        if self.interrupted:
            return "interrupted", "by Ctrl-C"
        if result.unknown:
            return "unknown", result.reason
        if result.reason or len(result.runs) < RUNS:
            return "failed", result.reason or "it was not measured"
        better = is_better(before, result.runs)
        return ("kept" if better else "not better"), gain(before, result.runs)

    def _keep_value(
        self, session: UnitSession, recreation: UnitRecreation, snapshot: yaml_editor.FileSnapshot, found: Candidate
    ) -> str:
        """Write the value into rack.yaml, then keep its files on the nodes; return why that failed, empty if not."""
        session.check()
        try:
            snapshot.write(found.text.encode())
        except ConfigError as fault:
            return printable_line(f"is better, and rack.yaml cannot have it: {fault}")
        self._declared_serves = True
        recreation.keep(session)
        return ""

    def _go_back(self, held: ServeRun) -> bool:
        """Bring the unit back to what rack.yaml declares, from the state `down`; return whether it serves."""
        work = UnitRun(self.file, self.name, self._screen)
        recreation = UnitRecreation(work, self.file, False, None)
        self._log.begin("as declared, again")

        def recreate(session: UnitSession) -> bool:
            served = recreation.run(session)
            if not served:
                self._log.step(f"failed: {session.failure or work.left()}")
            return served

        self._declared_serves = work.attempt(lambda: work.within(held, "bring back", recreate))
        return self._declared_serves

    def _make_ledger_line(
        self, tried: Try | None, verdict: Verdict, result: TrialResult, reason: str, before: tuple[float, ...]
    ) -> TrialJudged:
        return TrialJudged(
            key=tried.key if tried else "",
            value=tried.value if tried else "",
            verdict=verdict,
            cause=result.cause if verdict == "failed" else "",
            reason=printable_line(reason),
            tokens_s=tuple(result.runs),
            before=before,
            start_s=result.start_s,
            memory_left=result.memory_left,
        )

    @contextmanager
    def _trial_file(self, text: str) -> Iterator[Path]:
        """The rack file of a trial beside rack.yaml, which a run that is killed leaves and the next one replaces."""
        path = self.file.with_suffix(TRIAL_SUFFIX)
        try:
            atomic_file.write_atomic(path, text)
        except OSError as error:
            raise CommandError(f"{path}: cannot be written: {error.strerror or error}") from None
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _guard_floor(rack: Rack) -> float:
    """Return the GiB at which the memory guard ends the engine; 0 without a guard."""
    floor = rack.options(MemoryOptions).floor
    return mebibytes(floor) / 1024 if floor else 0.0


def _format_minutes(value: float) -> str:
    return f"{max(1, round(value / 60))} min"
