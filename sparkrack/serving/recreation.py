"""`sparkrack serve recreate`: a unit with the files that rack.yaml declares, or its previous version again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sparkrack.engine.subcommands import CommandResult, CommandRunner, InterruptedCommandError
from sparkrack.serving.coordinator import SERVING, STOPPED, CoordinatorError, CoordinatorStatus
from sparkrack.serving.previous_version import PreviousVersion, PreviousVersionError
from sparkrack.serving.unit_run import UnitRun, UnitSession

COORDINATOR_SECONDS = 30.0
"""Seconds for a coordinator to answer after its files were written, which restarts it."""


class UnitRecreation:
    """Stop a unit, write its files, start it, and go back when that fails. All of it is under one lock."""

    def __init__(self, work: UnitRun, file: Path, anyway: bool, timeout: int | None) -> None:
        self.work, self.file, self.name = work, file, work.unit.name
        self._start: Callable[[UnitSession], bool] = work.start(anyway, timeout, COORDINATOR_SECONDS)

    def run(self, session: UnitSession) -> bool:
        """Return whether a completion has proven the unit with the declared files. Raises CoordinatorError."""

        previous = PreviousVersion(self.work.rack, self.work.unit, session.shells)
        if not self._keep_and_stop(session, previous):
            return False
        applied = self._apply_files(session, previous)
        if applied and self._try_start(session):
            last = self.work.last
            return last is None or self._keep_files(session, previous, last, "the unit serves")
        if self.work.interrupted:
            session.screen.warn(f"ended during apply; {self.work.left()}")
            return False
        return self._go_back(session, previous, applied=applied)

    def attempt(self, session: UnitSession) -> bool:
        """Return whether a completion has proven the unit with the declared files, which `keep` keeps. It does not go
        back: the version that served before stays the one that is kept. Raises CoordinatorError.
        """
        previous = PreviousVersion(self.work.rack, self.work.unit, session.shells)
        return (
            self._keep_and_stop(session, previous) and self._apply_files(session, previous) and self._try_start(session)
        )

    def keep(self, session: UnitSession) -> bool:
        """Keep the files with which the unit serves now as its previous version of a later time."""
        previous = PreviousVersion(self.work.rack, self.work.unit, session.shells)
        return self._keep_files(session, previous, session.first_status(0), "the unit serves")

    def _keep_and_stop(self, session: UnitSession, previous: PreviousVersion) -> bool:
        """Keep the files of a unit that serves, then stop it."""
        kept = self._keep_files(session, previous, session.first_status(0), "nothing was changed")
        return kept and self.work.stop(session)

    def _keep_files(self, session: UnitSession, previous: PreviousVersion, now: CoordinatorStatus, then: str) -> bool:
        """Keep the files of a unit that a completion has proven. `then`: the state of things if that fails."""

        if now.state not in SERVING:
            return True  # what is kept is of the latest time that it was
        served = tuple(rank.node for rank in now.ranks)
        if served != previous.nodes:
            session.tell(f"{self.name}: its nodes change, so that it cannot go back to its previous version")
            return True
        session.check()
        try:
            previous.keep(now.generation)
        except PreviousVersionError as fault:
            session.fail(f"its files cannot be kept for a way back: {fault}; {then}")
            return False
        return True

    def _apply_files(self, session: UnitSession, previous: PreviousVersion) -> bool:
        """Write the files of the unit on its nodes, under the lock of this run.

        Each node gets the mark of a change before, which `apply` removes there: when this run is killed between two
        nodes, no gate passes on one that `apply` has not reached.
        """

        work = self.work
        work.then = ["recreate", self.name]
        words = ["apply", "-y", "--rack", str(self.file), "--only", "serving"]
        words += [word for name in work.unit.ranks(work.rack.nodes) for word in ("--limit", name)]
        session.check()
        try:
            previous.begin()
        except PreviousVersionError as fault:
            session.fail(f"a change of its files cannot be begun: {fault}; {work.left()}")
            return False
        caller = CommandRunner(None, as_json=False, environment=session.lock.environment)
        try:
            with caller.listening():
                done, reason = _call_apply(session, caller, words)
                caller.check()
        except InterruptedCommandError:
            work.interrupted = True
            return False
        if done.exit:
            session.fail(f"apply failed (exit {done.exit}){f': {reason}' if reason else ''}; {work.left()}")
            work.reason = "when this is fixed"
        return done.exit == 0

    def _try_start(self, session: UnitSession) -> bool:
        """Start the unit. A coordinator that never answered since its files were written is a failed start."""

        self.work.asked, self.work.last = "", None
        try:
            return self._start(session)
        except CoordinatorError as fault:
            if self.work.asked:
                raise  # it may be starting
            session.fail(str(fault))
            return False

    def _go_back(self, session: UnitSession, previous: PreviousVersion, *, applied: bool) -> bool:
        """Put the files of the previous version back, and start it. Never returns True: the declared one has failed."""

        reason, last = session.failure, self.work.last
        if last is not None and last.state not in STOPPED:
            return False  # the wait was ended, and the coordinator continues
        session.check()
        try:
            generation = previous.find(changed=not applied)
            session.tell(f"{self.name}: goes back to its previous version, that of generation {generation}")
            previous.restore(generation)
        except PreviousVersionError as fault:
            session.fail(f"does not serve ({reason}), and does not go back: {fault}")
            return False
        if self._try_start(session):
            session.fail(
                f"does not serve as rack.yaml declares it ({reason}); its previous version, that of generation "
                f"{generation}, serves again. `sparkrack drift` reports the difference until rack.yaml is corrected"
            )
            self.work.then, self.work.reason = ["recreate", self.name], "when rack.yaml is corrected"
        else:
            session.fail(
                f"does not serve as rack.yaml declares it ({reason}), and its previous version does not either "
                f"({session.failure}); {self.work.left()}"
            )
            self.work.then, self.work.reason = ["logs", self.name], ""
        return False


def _call_apply(session: UnitSession, caller: CommandRunner, words: Sequence[str]) -> tuple[CommandResult, str]:
    """Call `apply`; return its result, and the last lines of what it printed if it failed and has a log. With a log its
    output is shown only then.
    """
    log = session.log
    if not log:
        with session.screen.hidden():
            return caller.call(words), ""
    session.screen.step(session.coordinator.head, "apply its files")
    begun = log.file.tell()
    done = caller.call(words, log=log.file)
    if done.exit:
        return done, log.show_written(begun)
    log.step(f"files applied in {done.seconds:.0f} s")
    return done, ""
