"""Carry out a transaction, and say afterwards - whatever happened - which state the switch is in."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from sparkrack.fleet.secrets import SecretError

from .diff import Change
from .disarm import disarm, log_of, scheduled
from .errors import CheckError, RefusedError, SwitchError, UnreadableError
from .goal import Goal
from .line import Line, Talker
from .menus import USER
from .reading import Reading
from .safemode import enabled, free, holder, state
from .transaction import Check, Say, Step, Transaction

UNDO_SECONDS = 15.0
"""How long to look whether a switch that lost our session has taken everything back."""

FAULTS = (CheckError, SwitchError, UnreadableError, RefusedError, SecretError)


@dataclass(frozen=True)
class Ended:
    """How a transaction ended: whether as planned, and in words which state the switch is in."""

    done: bool
    text: str


def conduct(
    transaction: Transaction,
    line: Line,
    show: Callable[[Step], None] = lambda _step: None,
    *,
    patience: float = UNDO_SECONDS,
) -> Ended:
    """Carry out the steps on `line`; `show` is told each before it is taken. Never raises for a fault of
    switch or network: it backs out, looks in which state the switch is, and tells."""
    step: Step | None = None
    try:
        for step in transaction.steps():
            show(step)
            _take(step, line)
    except FAULTS as fault:
        words = f"stopped at: {_named(step)}: {fault}{line.back_out()}"
        if transaction.armed_for is None:
            return Ended(False, words)
        return Ended(False, f"{words}\n{_aftermath(transaction, line, patience)}")
    except BaseException:
        # Ended from outside (Ctrl-C, a timeout of the caller): take back what can be taken back, then obey.
        line.say(f"interrupted{line.back_out()}")
        raise
    return Ended(True, f"the switch is as {transaction.goal.words}")


def disarmed(goal: Goal, line: Line, names: Collection[str]) -> Ended:
    """Disarm what interrupted runs left on a switch that is as `goal` says, and look whether it still is. Never raises
    for a fault of switch or network."""
    try:
        free(line)
        for name in names:
            disarm(line, name)
        changes = goal.plan(goal.read(lambda sentence: line.talk(*sentence))).changes
    except FAULTS as fault:
        return Ended(False, f"rollback timer not disarmed: {fault}; run again")
    if changes:
        return Ended(False, f"the switch is no longer as {goal.words}: the rollback timer acted first; run again")
    return Ended(True, f"disarmed {', '.join(names)}; the switch is as {goal.words}")


def _named(step: Step | None) -> str:
    match step:
        case None:
            return "beginning"
        case Say(title=title, sentence=sentence):
            return f"{title}: {sentence[0]}"
        case Check(title=title):
            return title


def _take(step: Step, line: Line) -> None:
    match step:
        case Say(sentence=sentence, secrets=secrets):
            line.talk(*sentence, *(f"={name}={ref.resolve().get_secret_value()}" for name, ref in secrets))
        case Check():
            step.test(line)


def _aftermath(transaction: Transaction, line: Line, patience: float) -> str:
    """Bring the switch to its old state or prove its new one, and say which it is. A lost session takes the
    switch a moment to notice."""
    end = time.monotonic() + (patience if line.lost else patience / 3)
    fired = False
    while True:
        try:
            with line.second() as session:
                found = _state(transaction, session)
                if found is None and not fired:
                    fired = True
                    line.say("what was released already is undone by the dead man now")
                    session.talk(*transaction.dead_man.fire)
                    found = _state(transaction, session)
                if found:
                    disarm(session, transaction.name)
                    return f"looked again: {found}"
            why = f"the switch reads neither as before nor as {transaction.goal.words}"
        except FAULTS as fault:
            why = f"the switch could not be read again ({fault})"
        if time.monotonic() >= end:
            break
        time.sleep(0.5)
    return (
        f"ROLLBACK NOT PROVEN: {why}. {_timer(transaction, line, fired)}. Look with --dry; on the switch's console: "
        "/safe-mode/print, /system/scheduler/print, /system/history/print"
    )


def _timer(transaction: Transaction, line: Line, fired: bool) -> str:
    """What is to be expected of the rollback timer, by what is there now."""
    name = f"the rollback timer ({transaction.name})"
    left = max(0.0, transaction.armed_for or 0.0)
    try:
        with line.second() as session:
            if scheduled(session, transaction.name):
                return f"The schedule of {name} is on the switch: it undoes this run in {left:.0f} s by itself"
            failed = log_of(session, transaction.name)
    except FAULTS as fault:
        if fired:
            return f"This run fired {name}; whether it has acted is unknown ({fault})"
        return f"Whether {name} is still on the switch is unknown ({fault}); it acts in {left:.0f} s if it is"
    log = f"the switch's log: {'; '.join(failed)}" if failed else "the switch's log has no failed line of it"
    what = "was fired by this run" if fired else "has acted, or was removed,"
    return f"The rollback timer ({transaction.name}) {what} and is gone: nothing acts any more by itself; {log}"


def _state(transaction: Transaction, session: Talker) -> str | None:
    """Which of its states the switch is in; None when it is between. CheckError while the lost session still
    holds safe mode: what reads now is about to change."""
    row = state(session)
    if enabled(row):
        raise CheckError(f"safe mode is still held by {holder(row)}, who is gone")
    goal = transaction.goal
    now = goal.read(lambda sentence: session.talk(*sentence))
    if now.same(transaction.before, goal.menus):
        return "the switch is as it was before the run"
    missing = {place for change in goal.plan(now).changes for place in _places(change)}
    if not missing:
        return f"the switch is as {goal.words}, the release came through"
    if all(place in missing for change in transaction.todo.changes for place in _places(change, now)):
        if any(change.removes and change.menu is USER for change in transaction.todo.changes):
            return (
                "nothing of this run is left on the switch, which is not wholly as before: a user it removed comes "
                "back disabled, or somebody else has changed it meanwhile"
            )
        return "nothing of this run is left on the switch; somebody else has changed it meanwhile"
    return None


def _places(change: Change, now: Reading | None = None) -> Iterator[tuple[object, ...]]:
    """What a change is about, without the values: a row that comes or goes, or fields of one that stays; with `now`,
    only fields that mean something as the row is."""
    if change.adds or change.removes:
        yield change.menu.path, change.key
        return
    row = now.by_key(change.menu).get(change.key, {}) if now else {}
    for field in change.fields:
        if now is None or change.menu.counts(field.name, row):
            yield change.menu.path, change.key, field.name
