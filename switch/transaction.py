"""One transaction on a switch: what is said, in which order, and what is checked in between.

RouterOS safe mode belongs to one session and undoes everything when that session ends. So the transaction
takes it, writes, proves, and releases it last; whatever goes wrong before that, losing this very process
included, leaves the switch as it was. This module knows the order; who carries out the steps is a `Line`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from .diff import Change
from .menus import IDENTITY, SAFE_MODE, Row
from .plan import MOST_WRITES, Batch, Link, Plan, plan
from .reading import read
from .sentences import Sentence, writes
from .values import Kind, bits_per_second, canonical

if TYPE_CHECKING:
    from sparkrack.fleet import Rack, Switch

SETTLE_SECONDS = 60.0
"""How long a link may take to come up again. Reported from the field: 8 to 40 s after a change of speed."""

# `abort` fails when somebody else holds safe mode; the other words ask, or throw the holder out.
TAKE: Sentence = ("/safe-mode/take", "=on-error=abort")
RELEASE: Sentence = ("/safe-mode/release",)
UNROLL: Sentence = ("/safe-mode/unroll",)


class CheckError(Exception):
    """A check between the writes did not hold: the transaction must not go on. The text is one line."""


class Talker(Protocol):
    def talk(self, *words: str) -> Sequence[Row]: ...


class Line(Talker, Protocol):
    """What a check may use: the session that holds safe mode, a second one, and the user's ear."""

    def second(self) -> AbstractContextManager[Talker]: ...

    def say(self, text: str) -> None: ...


@dataclass(frozen=True)
class Say:
    """Send one sentence. `title` says what for, in words that fit after "stopped at:"."""

    title: str
    sentence: Sentence
    writes: bool = False


@dataclass(frozen=True)
class Check:
    """Make sure of something, `title`. `test` raises CheckError, or an error of the session, if it does not
    hold."""

    title: str
    test: Callable[[Line], None]
    writes: bool = False


Step = Say | Check


@dataclass(frozen=True)
class Transaction:
    """Brings a switch from the reading `todo` was made from to its declaration.

    settle: seconds a link may take to come up. most: rows written before safe mode is released and taken
    anew; what a later portion undoes, if it fails, does not reach back before that.
    """

    rack: Rack
    switch: Switch
    todo: Plan
    settle: float = SETTLE_SECONDS
    most: int = MOST_WRITES

    def steps(self) -> Iterator[Step]:
        """The steps in order. The first that fails is the last: the caller unrolls then."""
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
            yield Check("looking whether safe mode is still ours", held)
            yield Say("releasing safe mode", RELEASE)
        yield Check("logging in anew after the release", reachable)

    def _batch(self, batch: Batch) -> Iterator[Step]:
        for write in writes(batch.changes):
            yield Say(write.title, write.sentence, writes=True)
        if batch.settles:
            title = f"waiting for links after {batch.title}"
            yield Check(title, lambda line: settled(line, batch.settles, self.settle))
        yield Check("looking whether safe mode is still ours", held)

    def _left(self, changes: tuple[Change, ...]) -> Callable[[Line], None]:
        def test(line: Line) -> None:
            found = plan(self.rack, self.switch, read(lambda sentence: line.talk(*sentence))).changes
            if found != changes:
                odd = [change for change in (*found, *changes) if change not in found or change not in changes]
                rows = ", ".join(dict.fromkeys(f"{change.menu.path} {change.row}".strip() for change in odd))
                raise CheckError(f"the switch does not read as expected at {rows}")

        return test


def free(line: Line) -> None:
    """Nobody holds safe mode; otherwise say who."""
    row = _safe_mode(line)
    if _flag(row, "enabled"):
        raise CheckError(f"safe mode is held by {holder(row)}; nothing was written")


def held(line: Line) -> None:
    """This session holds safe mode. It ends by itself, undoing nothing, when the history overflows."""
    row = _safe_mode(line)
    if not _flag(row, "current"):
        raise CheckError(f"safe mode is not ours any more (held by {holder(row)})")


def holder(row: Row) -> str:
    """Who holds safe mode by a row of its menu: "admin (api 10.0.0.9)"."""
    if not _flag(row, "enabled"):
        return "nobody"
    user, owner = row.get("user", ""), row.get("owner", "")
    return f"{user or 'somebody'} ({owner})" if owner else user or "somebody"


def reachable(line: Line) -> None:
    """Somebody who comes anew can log in and is at the same switch."""
    here = line.talk(*IDENTITY.sentence)
    with line.second() as other:
        there = other.talk(*IDENTITY.sentence)
    if list(there) != list(here):
        raise CheckError(f"a second session finds another switch: {list(there)}, not {list(here)}")


def settled(line: Line, links: tuple[Link, ...], seconds: float) -> None:
    """All `links` are up at their speed, within `seconds`.

    This is the switch's side only: in forced mode it may call a link up that the node does not see (reported
    on 7.20), so both ends are verified after a run, from outside.
    """
    ids = ",".join(link.id for link in links)
    sentence = ("/interface/ethernet/monitor", f"=numbers={ids}", "=once=", "=.proplist=name,status,rate")
    start = time.monotonic()
    spoken = 0.0
    while True:
        rows = {row.get("name", ""): row for row in line.talk(*sentence)}
        waiting = [text for link in links if (text := _not_up(link, rows.get(link.name)))]
        if not waiting:
            return
        held(line)  # without it what was written may be gone, and the links with it
        waited = time.monotonic() - start
        if waited >= seconds:
            raise CheckError(f"after {seconds:.0f} s {'; '.join(waiting)}")
        if waited - spoken >= 10:
            spoken = waited
            line.say(f"waiting for links, {waited:.0f} s: {'; '.join(waiting)}")
        time.sleep(1)


def _not_up(link: Link, row: Row | None) -> str | None:
    row = row or {}
    status, rate = row.get("status", "not reported"), row.get("rate", "")
    if status == "link-ok" and _gbps(rate) == link.leg.gbps:
        return None
    lanes = f"lanes {link.leg.lanes[0]}-{link.leg.lanes[-1]}"
    at = f" at {rate or 'no rate'}" if status == "link-ok" else ""
    return f"leg {link.leg} ({lanes}, to {link.port}) is {status}{at}, should be up at {link.leg.gbps}G"


def _gbps(rate: str) -> float | None:
    try:
        return bits_per_second(rate) / 10**9
    except ValueError:
        return None


def _safe_mode(line: Talker) -> Row:
    rows = line.talk(*SAFE_MODE.sentence)
    if len(rows) != 1:
        raise CheckError(f"{SAFE_MODE.path} should have one row and has {len(rows)}")
    return rows[0]


def _flag(row: Row, name: str) -> bool:
    try:
        return canonical(Kind.FLAG, row.get(name, "no")) == "yes"
    except ValueError:
        raise CheckError(f"{SAFE_MODE.path} {name} is {row[name]!r}") from None
