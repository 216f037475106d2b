"""One transaction on a switch: its sentences, their order, and the checks in between.

Two rollbacks guard it. RouterOS safe mode belongs to one session and reverts everything when that session ends: any
failure before the release, including the loss of this process, leaves the switch in its old state. The rollback timer
is on the device and reverts everything unless it is disarmed: it covers the time after the release, and plans too long
for one safe mode. This module knows the order; `executor` runs the steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from core.model.secrets import SecretRef
from core.routeros.change_plan import ChangeBatch, ChangePlan
from core.routeros.diff import RowChange
from core.routeros.errors import CheckError, StoppedError, SwitchError
from core.routeros.menus import IDENTITY, RESOURCE, SCRIPT, SERVICE, Row, Sentence
from core.routeros.reading import SwitchReading
from core.routeros.rollback_disarm import disarm, disarm_others
from core.routeros.rollback_timer import PROOF_SECONDS, RollbackTimer
from core.routeros.safe_mode import RELEASE, TAKE, free, held
from core.routeros.sentences import writes
from core.routeros.session import SwitchConnection
from core.routeros.values import gbps, milliseconds
from switch.leg_recovery import LegRecovery, linked, restarted
from switch.link_witness import Witness
from switch.offload import REBIND_SECONDS, rebind
from switch.target_state import TargetState
from switch.wait_for_links import SETTLE_SECONDS, wait_for_links

MOST_WRITES = 80
"""Rows written under one safe mode. The switch's history holds 100 actions, and beyond that safe mode ends
without a word and undoes nothing (MikroTik manual, 'Configuration management'); the rest is left for what
else a session may do."""

PROOF_POLL_SECONDS = 0.25
SENTENCE_SECONDS = 2.0
MARGIN_SECONDS = 120.0


@dataclass(frozen=True)
class Say:
    """Send one sentence. `title` is its purpose, in words that fit after "stopped at:". `secrets` are added to it at
    the last moment.
    """

    title: str
    sentence: Sentence
    secrets: tuple[tuple[str, SecretRef], ...] = ()


@dataclass(frozen=True)
class Check:
    """Make sure of something, `title`. `test` raises CheckError, or an error of the session, if it does not
    hold."""

    title: str
    test: Callable[[SwitchConnection], None]


Step = Say | Check


@dataclass(frozen=True)
class Transaction:
    """Brings a switch from the reading `before`, which `todo` was made from, to its `goal`.

    name: of this run, for its rows on the switch. settle: seconds a link may take to come up. most: rows written before
    safe mode is released and taken again. fuse: seconds until the rollback timer acts; None for as long as the plan may
    take. keep: saves the data of a backup, before the first write. witness: reads the nodes' ends of links.
    """

    name: str
    goal: TargetState
    before: SwitchReading
    todo: ChangePlan
    settle: float = SETTLE_SECONDS
    most: int = MOST_WRITES
    fuse: float | None = None
    keep: Callable[[SwitchConnection], None] | None = None
    witness: Witness | None = None
    _armed: list[float] = field(default_factory=list, compare=False)
    _uptime: list[float] = field(default_factory=list, compare=False)
    _begun: list[ChangeBatch] = field(default_factory=list, compare=False)
    _rates: dict[str, str] = field(default_factory=dict, compare=False)
    _verified: list[Step] = field(default_factory=list, compare=False)

    @property
    def rollback_timer(self) -> RollbackTimer:
        """The rollback timer of this transaction. Its time covers the longest run that can still end well."""
        fuse = self.fuse
        if fuse is None:
            settling = sum(1 for batch in self.todo.batches if batch.settles)
            fuse = MARGIN_SECONDS + settling * (self.settle + 10) + SENTENCE_SECONDS * len(self.todo.changes)
        return RollbackTimer(self.name, fuse, self.todo, self.before.release)

    @property
    def armed_for(self) -> float | None:
        """Seconds until the rollback timer acts; None while it is not armed."""
        return self._armed[0] - time.monotonic() if self._armed else None

    def verified(self, step: Step | None) -> bool:
        """Return whether `step` is the last release or a later step: every change was read back, and every link came
        up, before it."""
        return step in self._verified

    def restarted_since(self, now: SwitchReading) -> bool:
        """Return whether the switch has restarted since the rollback timer was armed, by its uptime."""
        uptime = _seconds_up(now.rows(RESOURCE))
        return uptime is not None and bool(self._uptime) and uptime < self._uptime[0]

    def recovery(self, stopped: Callable[[], str]) -> LegRecovery | None:
        """What is to be done about the legs once this transaction is rolled back; None when none restarted that had a
        link before. `stopped`: returns why nothing may be written, if so."""
        lanes = self._list_restarted_legs(change for batch in self._begun for change in batch.changes)
        rates = {lane: self._rates[lane] for lane in lanes if lane in self._rates}
        if not rates:
            return None
        links = {link.leg.interface: link for batch in self.todo.batches for link in batch.settles}
        # A leg that had another speed before is not the node's port that the plan is about.
        same = tuple(link for lane, link in links.items() if gbps(rates.get(lane)) == link.leg.gbps)
        asked = self.witness if same else None
        return LegRecovery(self.goal.switch.name, self.before, rates, same, self.settle, asked, stopped)

    def steps(self) -> Iterator[Step]:
        """The steps in order. The first that fails is the last: the caller backs out then."""
        yield Check("looking whether safe mode is free", free)
        yield Check("logging in a second time", second_session)
        if self.keep:
            yield Check("keeping a backup", self.keep)
        yield Check("disarming what earlier runs left", disarm_others)
        yield Check("arming the rollback timer", self._arm_rollback_timer)
        if self._list_restarted_legs(self.todo.changes):
            yield Check("looking which legs have a link", self._read_link_rates)
        yield Check("waiting until the rollback timer has run", self._wait_for_schedule)
        portions = self.todo.portions(self.most)
        for number, portion in enumerate(portions):
            later = tuple(change for batches in portions[number + 1 :] for batch in batches for change in batch.changes)
            now = tuple(change for batch in portion for change in batch.changes)
            yield Check("looking whether safe mode is free", free)
            yield Say("taking safe mode", TAKE)
            yield Check("looking whether safe mode is ours", held)
            yield Check("looking whether the switch is still as planned for", self._expect_left_changes(now + later))
            for batch in portion:
                yield from self._list_batch_steps(batch)
            yield Check("reading everything back", self._expect_left_changes(later))
            yield Check("logging in again", reachable)
            yield Check("looking whether there is time left", self._in_time)
            yield Check("looking whether safe mode is still ours", held)
            release = Say("releasing safe mode", RELEASE)
            if not later:
                self._verified.append(release)
            yield release
        last = (
            Check("logging in again after the release", reachable),
            Check("reading everything back after the release", self._expect_left_changes(())),
            Check("disarming the rollback timer", lambda line: disarm(line, self.name)),
        )
        self._verified.extend(last)
        yield from last

    def _list_restarted_legs(self, changes: Iterable[RowChange]) -> tuple[str, ...]:
        return restarted(self.goal.switch.hardware, changes, self.before)

    def _read_link_rates(self, line: SwitchConnection) -> None:
        self._rates.update(linked(line, self.before, self._list_restarted_legs(self.todo.changes)))

    def _arm_rollback_timer(self, line: SwitchConnection) -> None:
        uptime = _seconds_up(line.talk(*RESOURCE.sentence()))
        if uptime is None:
            raise CheckError("the switch does not report its uptime, which sets the rollback timer")
        self._uptime.append(uptime)
        # Counted from before the sentence is sent: the fuse burns on the switch a little later.
        self._armed.append(time.monotonic() + self.rollback_timer.fuse)
        for sentence in self.rollback_timer.arm(uptime):
            line.talk(*sentence)
        # A script that the switch cannot parse would have no effect when it is needed; the switch reports it for each.
        scripts = line.talk(f"{SCRIPT.path}/print", "=.proplist=invalid", f"?name={self.name}")
        # claim: switch.scripts.invalid-flag
        if [script.get("invalid", "false") for script in scripts] not in (["false"], ["no"]):
            raise CheckError(f"the switch cannot read the script of the rollback timer ({self.name})")

    def _wait_for_schedule(self, line: SwitchConnection) -> None:
        """Wait until the schedule has run: one that never does undoes nothing."""
        until = time.monotonic() + PROOF_SECONDS
        while not any(_parse_run_count(row) for row in line.talk(*self.rollback_timer.question)):
            if time.monotonic() >= until:
                raise CheckError(self.rollback_timer.not_run)
            time.sleep(PROOF_POLL_SECONDS)

    def _list_batch_steps(self, batch: ChangeBatch) -> Iterator[Step]:
        self._begun.append(batch)
        for write in writes(batch.changes, self.before.release):
            yield Say(write.title, write.sentence, write.secrets)
        if batch.settles:
            title = f"waiting for links after {batch.title}"
            yield Check(title, lambda line: wait_for_links(line, batch.settles, self.settle, self.witness))
        if batch.rebinds:
            yield from _list_rebind_steps(batch.rebinds)
        yield Check("looking whether safe mode is still ours", held)

    def _expect_left_changes(self, changes: tuple[RowChange, ...]) -> Callable[[SwitchConnection], None]:
        def test(line: SwitchConnection) -> None:
            found = self.goal.plan(self.goal.read(lambda sentence: line.talk(*sentence))).changes
            if found != changes:
                odd = [change for change in (*found, *changes) if change not in found or change not in changes]
                rows = ", ".join(dict.fromkeys(f"{change.menu.path} {change.row}".strip() for change in odd))
                raise CheckError(f"the switch does not read as expected at {rows}")

        return test

    def _in_time(self, _line: SwitchConnection) -> None:
        left = self.armed_for or 0.0
        if left < min(30.0, self.rollback_timer.fuse / 4):
            raise CheckError(f"the rollback timer on the switch acts in {left:.0f} s, too soon to verify the changes")


def _list_rebind_steps(ports: tuple[str, ...]) -> Iterator[Step]:
    """After a link has trained again, its port may be forwarded by the CPU, which only the counters show."""
    off, on = rebind(ports)
    title = f"binding {len(ports)} bridge ports to the chip again"
    yield Say(title, off)
    yield Check("waiting until the ports are off the chip", lambda _line: time.sleep(REBIND_SECONDS))
    yield Say(title, on)


def _seconds_up(rows: Sequence[Row]) -> float | None:
    """Return the uptime in an answer of RESOURCE; None when the switch does not report it."""
    try:
        return milliseconds(rows[0]["uptime"]) / 1000
    except (LookupError, ValueError):
        return None


def _parse_run_count(row: Row) -> int:
    """Return how often a schedule has run since the unit started; 0 when it does not say so."""
    count = row.get("run-count", "")
    return int(count) if count.isdecimal() else 0


def second_session(line: SwitchConnection) -> None:
    """Check, before the first write, that a second session is possible: the changes are verified in one."""
    # claim: switch.session-limit
    try:
        reachable(line)
    except StoppedError:
        raise
    except SwitchError as fault:
        raise CheckError(
            f"no second session ({fault}), in which a run verifies its changes; nothing was written. Close other "
            f"sessions of the API, or raise max-sessions of the service in {SERVICE.path}"
        ) from None


def reachable(line: SwitchConnection) -> None:
    """Check that a new session can log in and reaches the same switch."""
    here = line.talk(*IDENTITY.sentence())
    with line.second() as other:
        there = other.talk(*IDENTITY.sentence())
    if list(there) != list(here):
        raise CheckError(f"a second session finds another switch: {list(there)}, not {list(here)}")
