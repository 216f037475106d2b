"""Sequence of `sparkrack serve start|stop|restart`: a unit up on all its nodes, or down, and the wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.model import Rack, load
from core.model.errors import printable_line
from core.model.fields import seconds
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell
from core.util.command_error import CommandError
from core.util.screen import Screen
from serving.desired import GATE_LIMIT, STOP_GRACE
from serving.options import ServedUnit, select_unit
from sparkrack.engine.rack_lock import RackLock
from sparkrack.engine.recorded_run import RecordedRun, recorded_run
from sparkrack.engine.silences import silenced, silences_of_units
from sparkrack.engine.ssh_locking import ANSWER_SECONDS, hold_lock
from sparkrack.serving.coordinator import (
    SERVING,
    STOPPED,
    CoordinatorError,
    CoordinatorStatus,
    UnitAbsentError,
    UnitCoordinator,
)
from sparkrack.serving.trial_log import TrialLog
from sparkrack.serving.unit_gateway import GatewayError, UnitGateway, gateway_node

POLL_SECONDS = 1.0
"""Seconds between two questions to the coordinator."""
SILENCE_SECONDS = 60.0
"""Seconds for which a coordinator may not answer while a unit starts or stops."""
SLACK_SECONDS = 60
"""Seconds beyond the limits of the coordinator, which ends each phase by itself."""

ANSWERS = ("completion_s", "embedding_s", "ranking_s")
"""Figures of the latest answer, by the kind of the unit."""
ENDING = ("stop", "restart", "recreate", "use", "tune")
"""What ends the processes of a unit on purpose."""


class UnitRun:
    """One such command. `then`, `reason`: the next step, as words after `sparkrack serve`, and its purpose."""

    def __init__(self, file: Path, name: str, screen: Screen) -> None:
        """Raises CommandError for a name that is not a unit, before any connection."""
        self.file, self._screen = file, screen
        self.rack: Rack = load(file)
        self.unit: ServedUnit = select_unit(self.rack, name)
        self.then = ["status", name]
        self.reason = ""
        self.interrupted = False
        self.asked = ""
        """The desired state that was sent last: start or stop."""
        self.last: CoordinatorStatus | None = None
        """What the coordinator answered last since then."""

    def attempt(self, *steps: Callable[[], bool]) -> bool:
        """Run steps up to the first that fails; return whether all were done. Ctrl-C ends the wait, not the unit."""
        try:
            return all(step() for step in steps)
        except KeyboardInterrupt:
            self._screen.warn(f"ended; {self.left()}")
        return False

    def locked(self, verb: str, *steps: Callable[[UnitSession], bool]) -> bool:
        """Run steps up to the first that fails, under one lock of the rack, with one journal. `verb`: for the journal.

        Raises CommandError for a lock that is taken, and a coordinator that gives no answer or refuses.
        """
        with hold_rack(self.rack, verb, self.unit, self._screen) as held:
            return self.within(held, verb, *steps)

    def within(self, held: ServeRun, verb: str, *steps: Callable[[UnitSession], bool]) -> bool:
        """Run steps as `locked` does, in a run that holds the lock."""
        nodes = self.unit.ranks(self.rack.nodes)
        at = gateway_node(self.rack)
        held.screen.phase(f"{verb} unit {self.unit.name}", nodes)
        # A node is contacted by the first command that it is to run: of most verbs only the head.
        with open_shells(self.rack, {*nodes, at} if at else nodes, ANSWER_SECONDS) as shells:
            coordinator = UnitCoordinator(self.rack, self.unit, shells[nodes[0]])
            session = UnitSession(coordinator, held, shells, UnitGateway(self.unit, at, shells[at]) if at else None)
            try:
                return all(step(session) for step in steps)
            except CoordinatorError as fault:
                held.run.fail(coordinator.head, str(fault))
                raise CommandError(str(fault)) from None

    def start(self, anyway: bool, timeout: int | None, patience: float = 0) -> Callable[[UnitSession], bool]:
        """Return the step that starts the unit and waits. `patience`: seconds for the coordinator to answer at all."""
        limit = timeout or _start_seconds(self.unit) + _stop_seconds(self.unit)
        return lambda session: self._start_unit(session, anyway, limit, patience)

    def _start_unit(self, session: UnitSession, anyway: bool, limit: int, patience: float) -> bool:

        before = session.first_status(patience)
        session.check()
        self._note_desired_state("start")
        session.tell(session.coordinator.up(anyway=anyway))
        last = self._follow_states(session, before, limit, lambda now: now.state in SERVING | STOPPED)
        if last.state in SERVING:
            figure = next((name for name in ANSWERS if name in last.figures), "")
            took = f"the latest {figure.removesuffix('_s')} took {last.figures[figure]:g} s" if figure else ""
            proof = took or "its counters rise"
            session.tell(f"{self.unit.name}: {last.state}, generation {last.generation}; {proof}")
            return True
        if last.state not in STOPPED:
            session.fail(f"not ready within {limit} s: {self.left()}")
        elif last.failed_gates:
            session.fail("not started: a gate failed", *(f"{node}: {why}" for node, why in last.failed_gates.items()))
            self.then, self.reason = ["start", self.unit.name], "when this is fixed"
        else:
            session.fail(f"{last.state}: {last.reason}")
            self.then = ["logs", self.unit.name]
        return False

    def stop(self, session: UnitSession) -> bool:
        """Stop the unit and wait. Its gateway is closed meanwhile, so that requests that run can end before."""
        before = session.first_status(0)
        session.check()
        with session.closed_gateway():
            return self._stop_unit(session, before)

    def _stop_unit(self, session: UnitSession, before: CoordinatorStatus) -> bool:
        limit = _stop_seconds(self.unit)
        self._note_desired_state("stop")
        session.tell(session.coordinator.down())
        last = self._follow_states(session, before, limit, lambda now: now.state == "down" or now.desired_state == "up")
        if last.state == "down":
            session.tell(f"{self.unit.name}: down, every rank is stopped")
            self.then = ["start", self.unit.name]
            return True
        if last.desired_state == "up":
            session.fail("was asked to start by another command during the stop")
        else:
            nodes = ", ".join(last.unconfirmed) or "a rank"
            left = [f"{one.node}: {one.detail}" for one in last.ranks if one.node in last.unconfirmed and one.detail]
            session.fail(
                f"not down within {limit} s: {nodes} is not confirmed as stopped; the coordinator continues", *left
            )
        return False

    def _follow_states(
        self,
        session: UnitSession,
        before: CoordinatorStatus,
        limit: float,
        reached: Callable[[CoordinatorStatus], bool],
    ) -> CoordinatorStatus:
        """Print each change of the state until one is reached, or the time is over; return the latest state.

        Raises CoordinatorError for a coordinator that does not answer for a minute, or at the end of the time.
        """
        begun = heard = time.monotonic()
        printed = before
        while True:
            try:
                now = session.coordinator.status()
            except CoordinatorError as fault:
                if time.monotonic() - heard > SILENCE_SECONDS or time.monotonic() - begun > limit:
                    raise CoordinatorError(f"{fault}; {self.left()}") from None
                session.screen.step(session.coordinator.head, "the coordinator does not answer")
            else:
                heard = time.monotonic()
                self.last = now
                session.show(printed, now)
                printed = now
                if reached(now):
                    return now
            if time.monotonic() - begun > limit:
                return printed
            time.sleep(POLL_SECONDS)

    def _note_desired_state(self, verb: str) -> None:
        """Note the desired state that is sent next."""
        self.asked, self.last = verb, None
        self.then = ["status", self.unit.name]

    def left(self) -> str:
        """Return how the unit is left."""
        if not self.asked:
            return "nothing was changed"
        state = (
            f"unit {self.unit.name} is {self.last.state}"
            if self.last
            else f"unit {self.unit.name} was asked to {self.asked}"
        )
        moving = self.last is None or self.last.state not in ("down", "held", "ready", "busy")
        return f"{state}{', and its coordinator continues' if moving else ''}"


@dataclass(frozen=True)
class ServeRun:
    """A run that holds the lock of the rack, with its journal and its progress. `log`: of a run that shows a line a
    step.
    """

    run: RecordedRun
    screen: Screen
    lock: RackLock
    log: TrialLog | None = None


@contextmanager
def hold_rack(
    rack: Rack, verb: str, unit: ServedUnit, screen: Screen, others: Sequence[ServedUnit] = (), starts: int = 1
) -> Iterator[ServeRun]:
    """Hold the lock of the rack for a unit, with journal and progress. Raises CommandError when it is taken.

    `others`: units that stop or start as well. `starts`: how often the unit may be stopped and started.
    """

    # The coordinator exports until when a unit that starts may take, by which the alerts wait.
    silences = silences_of_units([one.name for one in (unit, *others)] if verb in ENDING else [])
    seconds = starts * sum(2 * (_stop_seconds(one) + _start_seconds(one)) for one in (unit, *others))
    with recorded_run(rack, f"serve: {verb.capitalize()} the unit") as run:
        own = run.begin(f"{verb} of unit {unit.name} on {', '.join(unit.ranks(rack.nodes))}")
        screen.phase("take the lock of the rack")
        with (
            hold_lock(rack, own, screen.warn) as lock,
            silenced(rack, own.id, f"{verb} of unit {unit.name}", silences, seconds, screen.warn),
        ):
            yield ServeRun(run, screen, lock)


class UnitSession:
    """The coordinator of a unit and its nodes, under the lock of the rack. `failure`: the latest reason that was
    printed, or written to the log, which is there in a run that shows a line a step.

    `gateway`: None for a rack without one.
    """

    def __init__(
        self,
        coordinator: UnitCoordinator,
        held: ServeRun,
        shells: Mapping[str, RootShell],
        gateway: UnitGateway | None = None,
    ) -> None:
        self.coordinator, self.shells, self._gateway = coordinator, shells, gateway
        self.run, self.screen, self.lock, self.log = held.run, held.screen, held.lock, held.log
        self.failure = ""

    def check(self) -> None:
        """Raise CommandError if another run may change the rack now."""
        self.lock.check()

    def tell(self, text: str) -> None:
        """Print a line, or write it to the log of a run that has one."""
        (self.log.write if self.log else self.screen.say)(text)

    @contextmanager
    def closed_gateway(self) -> Iterator[None]:
        """Close the gateway for the unit during the block, so that its coordinator sees the requests end.

        A gateway that gives no answer is a warning: it must not keep a unit from being stopped.
        """
        if self._gateway is None:
            yield
            return

        name = self.coordinator.unit.name
        self.screen.step(self._gateway.node, "close the gateway")
        try:
            self._gateway.close()
        except GatewayError as fault:
            self.screen.warn(f"{name}: is stopped with an open gateway: {fault}")
        try:
            yield
        finally:
            try:
                self._gateway.open()
            except GatewayError as fault:
                self.screen.warn(f"{name}: may still be closed at the gateway: {fault}")

    def first_status(self, patience: float) -> CoordinatorStatus:
        """Return the state before the desired state. Raises CoordinatorError when there is none within `patience`
        seconds."""
        until = time.monotonic() + patience
        while True:
            try:
                return self.coordinator.status()
            except UnitAbsentError:
                raise
            except CoordinatorError:
                if time.monotonic() >= until:
                    raise
            self.screen.step(self.coordinator.head, "wait for its coordinator")
            time.sleep(POLL_SECONDS)

    def show(self, before: CoordinatorStatus, now: CoordinatorStatus) -> None:
        """Print the changes since an earlier state, with the seconds of the phase that each ended."""

        for rank in now.ranks:
            self.screen.step(rank.node, printable_line(rank.state))
        last = before.transitions[-1:]
        known = (
            len(now.transitions) - now.transitions[::-1].index(last[0]) if last and last[0] in now.transitions else 0
        )
        for number in range(known, len(now.transitions)):
            one = now.transitions[number]
            reason, took = f": {one.reason}", ""
            if now.failed_gates and one is now.transitions[-1]:
                reason = ""  # it follows, a line for each node
            if number and (earlier := now.transitions[number - 1]).generation == one.generation:
                took = f" ({earlier.state} took {max(0.0, one.at - earlier.at):.1f} s)"
                if self.log:
                    self.log.show_change(earlier, one)
            self.tell(printable_line(f"{self.coordinator.unit.name}: {one.state}{reason}{took}"))

    def fail(self, reason: str, *details: str) -> None:
        """Print and record why the desired state is not fulfilled, with a line for each detail. A run with a log
        prints it where it judges.
        """
        self.failure = "; ".join(details) or reason
        for line in (*details, f"{self.coordinator.unit.name}: {reason}"):
            (self.log.write if self.log else self.screen.warn)(printable_line(line))
        self.run.fail(self.coordinator.head, reason)


def _start_seconds(unit: ServedUnit) -> int:
    """Seconds that gates and the start of a unit may take at most."""

    return GATE_LIMIT + seconds(unit.probe.ready)


def _stop_seconds(unit: ServedUnit) -> int:
    """Seconds that a unit may take to let its requests end, and its ranks, at most, as the coordinator counts them."""

    return 2 * seconds(unit.drain) + 4 * STOP_GRACE + SLACK_SECONDS
