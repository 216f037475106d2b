"""`sparkrack serve start|stop|restart`: bring a unit up on all its nodes, or down, and wait until it is so."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from core.util.command_error import CommandError
from sparkrack.cli.loading import loading
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import declared_unit, rack_option, units

if TYPE_CHECKING:
    from core.model import Rack
    from core.model.serving import ServingUnit
    from core.ssh.root_shell import RootShell
    from sparkrack.cli.progress import ProgressDisplay
    from sparkrack.engine.rack_lock import RackLock
    from sparkrack.engine.recorded_run import RecordedRun
    from sparkrack.serving.door import UnitDoor
    from sparkrack.serving.keeper import KeeperStatus, UnitKeeper

POLL_SECONDS = 1.0
"""Seconds between two questions to the keeper."""
SILENCE_SECONDS = 60.0
"""Seconds for which a keeper may not answer while a unit starts or stops."""
SLACK_SECONDS = 60
"""Seconds beyond the limits of the keeper, which ends each phase by itself."""

ENDING = ("stop", "restart", "recreate")
"""What ends the processes of a unit on purpose."""

unit_argument = click.argument("unit", metavar="UNIT", shell_complete=units)
anyway_option = click.option(
    "--anyway",
    is_flag=True,
    help="Start although a machine ended without a clean shutdown and was not rebooted since, or its driver failed "
    "or keeps memory since its boot.",
)
timeout_option = click.option(
    "--timeout",
    type=click.IntRange(1),
    metavar="SECONDS",
    help="Seconds to wait for the start.  [default: those that gates, start and stop of the unit may take]",
)


@click.command()
@unit_argument
@anyway_option
@timeout_option
@rack_option
def start(unit: str, anyway: bool, timeout: int | None, rack: Path) -> None:
    """Start a unit on all its nodes, and wait until a completion has proven it.

    \b
      sparkrack serve start qwen
      sparkrack serve start qwen --anyway

    The keeper on the head of the unit lets each node run its gate, then all ranks start, or none. Each phase is
    printed with its seconds. The lock of the rack is held during the wait. Ctrl-C, or the end of --timeout, ends the
    wait only: the keeper continues.

    Exit 0 when a completion has proven the unit, also when it ran already. Exit 1 when it was refused or failed: then
    no rank runs, and the reason of each node is printed.
    """
    work = UnitRun(rack, unit)
    exit_with_next(work, work.attempt(lambda: work.locked("start", work.start(anyway, timeout))))


@click.command()
@unit_argument
@rack_option
def stop(unit: str, rack: Path) -> None:
    """Stop a unit, and wait until every rank has reported that it does not run.

    \b
      sparkrack serve stop qwen

    Exit 0 when the unit is down, also when it was before. Exit 1 when a rank is not confirmed as stopped: the keeper
    goes on stopping it. It stays down until `serve start`; `wish` in rack.yaml is not changed.
    """
    work = UnitRun(rack, unit)
    exit_with_next(work, work.attempt(lambda: work.locked("stop", work.stop)))


@click.command()
@unit_argument
@anyway_option
@timeout_option
@rack_option
def restart(unit: str, anyway: bool, timeout: int | None, rack: Path) -> None:
    """Stop a unit, then start it: `serve stop` and `serve start`.

    \b
      sparkrack serve restart qwen

    It is not started when a rank is not confirmed as stopped. The restart budget of the unit is not used.

    Exit 0 when a completion has proven the unit, else 1.
    """
    work = UnitRun(rack, unit)
    exit_with_next(work, work.attempt(lambda: work.locked("restart", work.stop, work.start(anyway, timeout))))


def exit_with_next(work: UnitRun, done: bool) -> None:
    """Print the next step and end with the exit code."""
    next_step(["sparkrack", "serve", *work.then], work.reason, rack=work.file)
    sys.exit(0 if done else 1)


class UnitRun:
    """One such command. `then`, `reason`: the next step, as words after `sparkrack serve`, and its purpose."""

    def __init__(self, file: Path, name: str) -> None:
        """Raises CommandError for a name that is not a unit, before any connection."""
        with loading():
            from core.model import load

        self.file = file
        self.rack: Rack = load(file)
        self.unit: ServingUnit = declared_unit(self.rack, name)
        self.then = ["status", name]
        self.reason = ""
        self.interrupted = False
        self.asked = ""
        """The wish that was sent last: start or stop."""
        self.last: KeeperStatus | None = None
        """What the keeper answered last since then."""

    def attempt(self, *steps: Callable[[], bool]) -> bool:
        """Run steps up to the first that fails; return whether all were done. Ctrl-C ends the wait, not the unit."""
        try:
            return all(step() for step in steps)
        except KeyboardInterrupt:
            click.echo(f"ended; {self.left()}", err=True)
        return False

    def locked(self, verb: str, *steps: Callable[[UnitSession], bool]) -> bool:
        """Run steps up to the first that fails, under one lock of the rack, with one journal. `verb`: for the journal.

        Raises CommandError for a lock that is taken, and a keeper that gives no answer or refuses.
        """
        with loading():
            from core.ssh.node_shells import open_shells
            from sparkrack.engine.ssh_locking import ANSWER_SECONDS
            from sparkrack.serving.door import UnitDoor, door_node
            from sparkrack.serving.keeper import KeeperError, UnitKeeper

        nodes = self.unit.ranks(self.rack.nodes)
        at = door_node(self.rack)
        with hold_rack(self.rack, verb, self.unit) as held:
            held.screen.phase(f"{verb} unit {self.unit.name}", nodes)
            # A node is contacted by the first command that it is to run: of most verbs only the head.
            with open_shells(self.rack, {*nodes, at} if at else nodes, ANSWER_SECONDS) as shells:
                keeper = UnitKeeper(self.rack, self.unit, shells[nodes[0]])
                session = UnitSession(keeper, held, shells, UnitDoor(self.unit, at, shells[at]) if at else None)
                try:
                    return all(step(session) for step in steps)
                except KeeperError as fault:
                    held.run.fail(keeper.head, str(fault))
                    raise CommandError(str(fault)) from None

    def start(self, anyway: bool, timeout: int | None, patience: float = 0) -> Callable[[UnitSession], bool]:
        """Return the step that starts the unit and waits. `patience`: seconds for the keeper to answer at all."""
        limit = timeout or _start_seconds(self.unit) + _stop_seconds(self.unit)
        return lambda session: self._start(session, anyway, limit, patience)

    def _start(self, session: UnitSession, anyway: bool, limit: int, patience: float) -> bool:
        from sparkrack.serving.keeper import SERVING, STOPPED

        before = session.first_status(patience)
        session.check()
        self._ask("start")
        session.screen.say(session.keeper.up(anyway=anyway))
        last = self._follow(session, before, limit, lambda now: now.state in SERVING | STOPPED)
        if last.state in SERVING:
            took = last.figures.get("completion_s")
            proof = "its counters rise" if took is None else f"the latest completion took {took:g} s"
            session.screen.say(f"{self.unit.name}: {last.state}, generation {last.generation}; {proof}")
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
        """Stop the unit and wait. Its door is closed meanwhile, so that requests that run can end before."""
        before = session.first_status(0)
        session.check()
        with session.closed_door():
            return self._stop(session, before)

    def _stop(self, session: UnitSession, before: KeeperStatus) -> bool:
        limit = _stop_seconds(self.unit)
        self._ask("stop")
        session.screen.say(session.keeper.down())
        last = self._follow(session, before, limit, lambda now: now.state == "down" or now.wish == "up")
        if last.state == "down":
            session.screen.say(f"{self.unit.name}: down, every rank is stopped")
            self.then = ["start", self.unit.name]
            return True
        if last.wish == "up":
            session.fail("was asked to start by another command during the stop")
        else:
            nodes = ", ".join(last.unconfirmed) or "a rank"
            left = [f"{one.node}: {one.detail}" for one in last.ranks if one.node in last.unconfirmed and one.detail]
            session.fail(f"not down within {limit} s: {nodes} is not confirmed as stopped; the keeper continues", *left)
        return False

    def _follow(
        self,
        session: UnitSession,
        before: KeeperStatus,
        limit: float,
        reached: Callable[[KeeperStatus], bool],
    ) -> KeeperStatus:
        """Print each change of the state until one is reached, or the time is over; return the latest state.

        Raises KeeperError for a keeper that does not answer for a minute, or at the end of the time.
        """
        from sparkrack.serving.keeper import KeeperError

        begun = heard = time.monotonic()
        printed = before
        while True:
            try:
                now = session.keeper.status()
            except KeeperError as fault:
                if time.monotonic() - heard > SILENCE_SECONDS or time.monotonic() - begun > limit:
                    raise KeeperError(f"{fault}; {self.left()}") from None
                session.screen.step(session.keeper.head, "the keeper does not answer")
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

    def _ask(self, verb: str) -> None:
        """Note the wish that is sent next."""
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
        return f"{state}{', and its keeper continues' if moving else ''}"


@dataclass(frozen=True)
class ServeRun:
    """A run that holds the lock of the rack, with its journal and its progress."""

    run: RecordedRun
    screen: ProgressDisplay
    lock: RackLock


@contextmanager
def hold_rack(rack: Rack, verb: str, unit: ServingUnit) -> Iterator[ServeRun]:
    """Hold the lock of the rack for a unit, with journal and progress. Raises CommandError when it is taken."""
    with loading():
        from sparkrack.cli.progress import show_progress
        from sparkrack.engine.recorded_run import recorded_run
        from sparkrack.engine.silences import silenced, silences_of_units
        from sparkrack.engine.ssh_locking import hold_lock

    # The keeper exports until when a unit that starts may take, by which the alerts wait.
    silences = silences_of_units([unit.name] if verb in ENDING else [])
    seconds = 2 * (_stop_seconds(unit) + _start_seconds(unit))
    with (
        recorded_run(rack, f"serve: {verb.capitalize()} the unit") as run,
        show_progress(silent=False) as screen,
    ):
        own = run.begin(f"{verb} of unit {unit.name} on {', '.join(unit.ranks(rack.nodes))}")
        screen.phase("take the lock of the rack")
        with (
            hold_lock(rack, own, screen.warn) as lock,
            silenced(rack, own.id, f"{verb} of unit {unit.name}", silences, seconds, screen.warn),
        ):
            yield ServeRun(run, screen, lock)


class UnitSession:
    """The keeper of a unit and its nodes, under the lock of the rack. `failure`: the latest reason that was printed.

    `door`: None for a rack without one.
    """

    def __init__(
        self, keeper: UnitKeeper, held: ServeRun, shells: Mapping[str, RootShell], door: UnitDoor | None = None
    ) -> None:
        self.keeper, self.shells, self._door = keeper, shells, door
        self.run, self.screen, self.lock = held.run, held.screen, held.lock
        self.failure = ""

    def check(self) -> None:
        """Raise CommandError if another run may change the rack now."""
        self.lock.check()

    @contextmanager
    def closed_door(self) -> Iterator[None]:
        """Close the door for the unit during the block, so that its keeper sees the requests end.

        A door that gives no answer is a warning: it must not keep a unit from being stopped.
        """
        if self._door is None:
            yield
            return
        from sparkrack.serving.door import DoorError

        name = self.keeper.unit.name
        self.screen.step(self._door.node, "close the door")
        try:
            self._door.close()
        except DoorError as fault:
            self.screen.warn(f"{name}: is stopped with an open door: {fault}")
        try:
            yield
        finally:
            try:
                self._door.open()
            except DoorError as fault:
                self.screen.warn(f"{name}: may still be closed at the door: {fault}")

    def first_status(self, patience: float) -> KeeperStatus:
        """Return the state before the wish. Raises KeeperError when there is none within `patience` seconds."""
        from sparkrack.serving.keeper import KeeperError, UnitAbsentError

        until = time.monotonic() + patience
        while True:
            try:
                return self.keeper.status()
            except UnitAbsentError:
                raise
            except KeeperError:
                if time.monotonic() >= until:
                    raise
            self.screen.step(self.keeper.head, "wait for its keeper")
            time.sleep(POLL_SECONDS)

    def show(self, before: KeeperStatus, now: KeeperStatus) -> None:
        """Print the changes since an earlier state, with the seconds of the phase that each ended."""
        from core.model.errors import printable_line

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
            self.screen.say(printable_line(f"{self.keeper.unit.name}: {one.state}{reason}{took}"))

    def fail(self, reason: str, *details: str) -> None:
        """Print and record why the wish is not fulfilled, with a line for each detail."""
        from core.model.errors import printable_line

        self.failure = "; ".join(details) or reason
        for line in (*details, f"{self.keeper.unit.name}: {reason}"):
            self.screen.warn(printable_line(line))
        self.run.fail(self.keeper.head, reason)


def _start_seconds(unit: ServingUnit) -> int:
    """Seconds that gates and the start of a unit may take at most."""
    from core.model.fields import seconds
    from roles.serving.desired import GATE_LIMIT

    return GATE_LIMIT + seconds(unit.probe.ready)


def _stop_seconds(unit: ServingUnit) -> int:
    """Seconds that a unit may take to let its requests end, and its ranks, at most, as the keeper counts them."""
    from core.model.fields import seconds
    from roles.serving.desired import STOP_GRACE

    return 2 * seconds(unit.drain) + 4 * STOP_GRACE + SLACK_SECONDS
