"""One transaction on a switch: what is said, in which order, and what is checked in between.

Two rollbacks guard it. RouterOS safe mode belongs to one session and undoes everything when that session
ends: whatever goes wrong before the release, losing this very process included, leaves the switch as it was.
The dead man stands on the device and undoes everything when nobody disarms it: that covers the time after
the release, and plans too long for one safe mode. This module knows the order; who carries out the steps is
`conduct`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sparkrack.fleet.secrets import SecretRef

from .batch import Batch, Plan
from .deadman import DeadMan
from .diff import Change
from .disarm import disarm, disarm_others
from .errors import CheckError
from .goal import Goal
from .line import Line
from .menus import BRIDGE_PORT, IDENTITY, RESOURCE, SCRIPT, Sentence
from .reading import Reading
from .safemode import RELEASE, TAKE, free, held
from .sentences import writes
from .settling import SETTLE_SECONDS, settled
from .values import milliseconds
from .witness import Witness

MOST_WRITES = 80
"""Rows written under one safe mode. The switch's history holds 100 actions, and beyond that safe mode ends
without a word and undoes nothing (MikroTik manual, 'Configuration management'); the rest is left for what
else a session may do."""

REBIND_SECONDS = 0.1
SENTENCE_SECONDS = 2.0
MARGIN_SECONDS = 120.0


@dataclass(frozen=True)
class Say:
    """Send one sentence. `title` says what for, in words that fit after "stopped at:". `secrets` are added to
    it at the last moment."""

    title: str
    sentence: Sentence
    secrets: tuple[tuple[str, SecretRef], ...] = ()


@dataclass(frozen=True)
class Check:
    """Make sure of something, `title`. `test` raises CheckError, or an error of the session, if it does not
    hold."""

    title: str
    test: Callable[[Line], None]


Step = Say | Check


@dataclass(frozen=True)
class Transaction:
    """Brings a switch from the reading `before`, which `todo` was made from, to its `goal`.

    name: of this run, for its rows on the switch. settle: seconds a link may take to come up. most: rows
    written before safe mode is released and taken anew. fuse: seconds until the dead man acts; None for as
    long as the plan may take. keep: saves what a backup needs, before the first write. witness: asks the
    nodes' ends of links.
    """

    name: str
    goal: Goal
    before: Reading
    todo: Plan
    settle: float = SETTLE_SECONDS
    most: int = MOST_WRITES
    fuse: float | None = None
    keep: Callable[[Line], None] | None = None
    witness: Witness | None = None
    _armed: list[float] = field(default_factory=list, compare=False)

    @property
    def dead_man(self) -> DeadMan:
        """The dead man of this transaction. Its fuse covers the longest run that can still end well."""
        fuse = self.fuse
        if fuse is None:
            settling = sum(1 for batch in self.todo.batches if batch.settles)
            fuse = MARGIN_SECONDS + settling * (self.settle + 10) + SENTENCE_SECONDS * len(self.todo.changes)
        return DeadMan(self.name, fuse, self.todo, self.before.release)

    @property
    def armed_for(self) -> float | None:
        """Seconds until the dead man acts; None while it is not armed."""
        return self._armed[0] - time.monotonic() if self._armed else None

    def steps(self) -> Iterator[Step]:
        """The steps in order. The first that fails is the last: the caller backs out then."""
        yield Check("looking whether safe mode is free", free)
        if self.keep:
            yield Check("keeping a backup", self.keep)
        yield Check("disarming what earlier runs left", disarm_others)
        yield Check("arming the dead man", self._arm)
        portions = self.todo.portions(self.most)
        for number, portion in enumerate(portions):
            later = tuple(change for batches in portions[number + 1 :] for batch in batches for change in batch.changes)
            now = tuple(change for batch in portion for change in batch.changes)
            yield Check("looking whether safe mode is free", free)
            yield Say("taking safe mode", TAKE)
            yield Check("looking whether safe mode is ours", held)
            yield Check("looking whether the switch is still as planned for", self._left(now + later))
            for batch in portion:
                yield from self._batch(batch)
            yield Check("reading everything back", self._left(later))
            yield Check("logging in anew", reachable)
            yield Check("looking whether there is time left", self._in_time)
            yield Check("looking whether safe mode is still ours", held)
            yield Say("releasing safe mode", RELEASE)
        yield Check("logging in anew after the release", reachable)
        yield Check("reading everything back after the release", self._left(()))
        yield Check("disarming the dead man", lambda line: disarm(line, self.name))

    def _arm(self, line: Line) -> None:
        rows = line.talk(*RESOURCE.sentence())
        try:
            uptime = milliseconds(rows[0]["uptime"]) / 1000
        except (LookupError, ValueError):
            raise CheckError("the switch does not tell its uptime, by which the dead man is timed") from None
        # Counted from before the sentence is sent: the fuse burns on the switch a little later.
        self._armed.append(time.monotonic() + self.dead_man.fuse)
        for sentence in self.dead_man.arm(uptime):
            line.talk(*sentence)
        # A script that the switch cannot read would do nothing when it is needed; it says so of each.
        scripts = line.talk(f"{SCRIPT.path}/print", "=.proplist=invalid", f"?name={self.name}")
        if [script.get("invalid", "false") for script in scripts] not in (["false"], ["no"]):
            raise CheckError(f"the switch cannot read the script of the dead man ({self.name})")

    def _batch(self, batch: Batch) -> Iterator[Step]:
        for write in writes(batch.changes, self.before.release):
            yield Say(write.title, write.sentence, write.secrets)
        if batch.settles:
            title = f"waiting for links after {batch.title}"
            yield Check(title, lambda line: settled(line, batch.settles, self.settle, self.witness))
        if batch.rebinds:
            yield from _bound_anew(batch.rebinds)
        yield Check("looking whether safe mode is still ours", held)

    def _left(self, changes: tuple[Change, ...]) -> Callable[[Line], None]:
        def test(line: Line) -> None:
            found = self.goal.plan(self.goal.read(lambda sentence: line.talk(*sentence))).changes
            if found != changes:
                odd = [change for change in (*found, *changes) if change not in found or change not in changes]
                rows = ", ".join(dict.fromkeys(f"{change.menu.path} {change.row}".strip() for change in odd))
                raise CheckError(f"the switch does not read as expected at {rows}")

        return test

    def _in_time(self, _line: Line) -> None:
        left = self.armed_for or 0.0
        if left < min(30.0, self.dead_man.fuse / 4):
            raise CheckError(f"the dead man on the switch acts in {left:.0f} s, too soon to prove what was written")


def _bound_anew(ports: tuple[str, ...]) -> Iterator[Step]:
    """A link that was trained anew may have left its port to the CPU, and nothing but the counters shows it. Field
    configurations of these models write the same two values, 100 ms apart, after each change of a link."""
    for value in ("no", "yes"):
        sentence = (f"{BRIDGE_PORT.path}/set", f"=.id={','.join(ports)}", f"=hw={value}")
        yield Say(f"binding {len(ports)} bridge ports to the chip anew", sentence)
        if value == "no":
            yield Check("waiting until the ports are off the chip", lambda _line: time.sleep(REBIND_SECONDS))


def reachable(line: Line) -> None:
    """Somebody who comes anew can log in and is at the same switch."""
    here = line.talk(*IDENTITY.sentence())
    with line.second() as other:
        there = other.talk(*IDENTITY.sentence())
    if list(there) != list(here):
        raise CheckError(f"a second session finds another switch: {list(there)}, not {list(here)}")
