"""Execute a transaction, and report afterwards - in any case - the state of the switch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from core.model.secrets import SecretError, SecretRef
from core.routeros.change_plan import secrets_of
from core.routeros.diff import RowChange
from core.routeros.errors import CheckError, RefusedError, SwitchError, UnreadableError
from core.routeros.menus import USER
from core.routeros.reading import SwitchReading
from core.routeros.rollback_disarm import disarm, log_of, scheduled
from core.routeros.safe_mode import enabled, free, holder, state
from core.routeros.session import Client, SwitchConnection
from switch.target_state import TargetState
from switch.transaction import Check, Say, Step, Transaction

UNDO_SECONDS = 15.0
"""Seconds to wait for a switch that lost our session to roll everything back."""

FAULTS = (CheckError, SwitchError, UnreadableError, RefusedError, SecretError)


@dataclass(frozen=True)
class TransactionOutcome:
    """Result of a transaction: whether it ended as planned, and a description of the switch's state."""

    done: bool
    text: str


def execute(
    transaction: Transaction,
    line: SwitchConnection,
    show: Callable[[Step], None] = lambda _step: None,
    *,
    timeout: float = UNDO_SECONDS,
) -> TransactionOutcome:
    """Execute the steps on `line`; `show` gets each step before it is executed. Never raises for an error of switch or
    network: it rolls back, reads the state of the switch, and reports it.
    """
    step: Step | None = None
    try:
        # All of them before the first write: a missing one must not stop the transaction in the middle.
        known = {ref: ref.resolve() for ref in secrets_of(transaction.todo)}
        for step in transaction.steps():
            show(step)
            _perform_step(step, line, known)
    except FAULTS as fault:
        words = f"{_name_of_step(step)}: {fault}{line.back_out()}"
        if transaction.armed_for is None:
            return TransactionOutcome(False, f"stopped at: {words}")
        ended = _settle_outcome(transaction, line, timeout, released=transaction.verified(step))
        # Everything is verified before the last release, so a connection that fails from then on changes no result.
        if ended.done and transaction.verified(step) and isinstance(fault, SwitchError) and not line.stopped():
            return TransactionOutcome(True, f"error after the last change, at: {words}\n{ended.text}")
        return TransactionOutcome(False, f"stopped at: {words}\n{ended.text}")
    except BaseException:
        # Ended from outside (Ctrl-C, a timeout of the caller): roll back what is possible, then end.
        line.say(f"interrupted{line.back_out()}")
        if legs := transaction.recovery(line.stopped):
            line.say(legs.remaining("interrupted"))
        raise
    return TransactionOutcome(True, f"the switch is as {transaction.goal.words}")


def disarmed(goal: TargetState, line: SwitchConnection, names: Collection[str]) -> TransactionOutcome:
    """Disarm the timers of interrupted runs on a switch that is in the state of `goal`, and check whether it still is.
    Never raises for an error of switch or network.
    """
    try:
        free(line)
        for name in names:
            disarm(line, name)
        changes = goal.plan(goal.read(lambda sentence: line.talk(*sentence))).changes
    except FAULTS as fault:
        return TransactionOutcome(False, f"rollback timer not disarmed: {fault}; run again")
    if changes:
        return TransactionOutcome(
            False, f"the switch is no longer as {goal.words}: the rollback timer acted first; run again"
        )
    return TransactionOutcome(True, f"disarmed {', '.join(names)}; the switch is as {goal.words}")


def _name_of_step(step: Step | None) -> str:
    match step:
        case None:
            return "beginning"
        case Say(title=title, sentence=sentence):
            return f"{title}: {sentence[0]}"
        case Check(title=title):
            return title


def _perform_step(step: Step, line: SwitchConnection, known: Mapping[SecretRef, SecretStr]) -> None:
    match step:
        case Say(sentence=sentence, secrets=secrets):
            line.talk(*sentence, *(f"={name}={known[ref].get_secret_value()}" for name, ref in secrets))
        case Check():
            step.test(line)


def _settle_outcome(
    transaction: Transaction, line: SwitchConnection, timeout: float, *, released: bool
) -> TransactionOutcome:
    """Bring the switch to its old state or verify its new one, and report which it is; done when it is the new one and
    the rollback timer is disarmed. The switch needs a moment to notice a lost session. `released`: whether the last
    release was sent.
    """
    end = time.monotonic() + (timeout if line.lost else timeout / 3)
    fired = False
    legs = transaction.recovery(line.stopped)
    while True:
        try:
            with line.second() as session:
                found = _read_switch_state(transaction, session, released)
                if found is None and not fired and not line.stopped():
                    fired = True
                    line.say("the changes that were already released are reverted by the rollback timer now")
                    session.talk(*transaction.rollback_timer.fire)
                    found = _read_switch_state(transaction, session, released)
                if found:
                    disarm(session, transaction.name)
                    text, rolled_back = found
                    recovered = f"\n{legs.run(session)}" if legs and rolled_back else ""
                    return TransactionOutcome(not rolled_back, f"looked again: {text}{recovered}")
            why = f"the switch reads neither as before nor as {transaction.goal.words}"
        except FAULTS as fault:
            why = f"the switch could not be read again ({fault})"
        if time.monotonic() >= end:
            break
        time.sleep(0.5)
    text = (
        f"ROLLBACK NOT PROVEN: {why}. {_describe_rollback_timer(transaction, line, fired)}. "
        "Look with --dry; on the switch's console: "
        "/safe-mode/print, /system/scheduler/print, /system/history/print"
    )
    return TransactionOutcome(False, f"{text}\n{legs.remaining('the rollback is not proven')}" if legs else text)


def _describe_rollback_timer(transaction: Transaction, line: SwitchConnection, fired: bool) -> str:
    """Describe the expected action of the rollback timer, from its current rows."""
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


def _read_switch_state(transaction: Transaction, session: Client, released: bool) -> tuple[str, bool] | None:
    """Which of its states the switch is in, and whether that is the old one; None when it is between. CheckError while
    the lost session still holds safe mode: what reads now is about to change."""
    row = state(session)
    if enabled(row):
        raise CheckError(f"safe mode is still held by {holder(row)}, whose session has ended")
    goal = transaction.goal
    now = goal.read(lambda sentence: session.talk(*sentence))
    if now.same(transaction.before, goal.menus):
        return "the switch is as it was before the run", True
    missing = {place for change in goal.plan(now).changes for place in _list_changed_places(change)}
    if not missing:
        return f"the switch is as {goal.words}, {_why_new(transaction, now, released)}", False
    if all(place in missing for change in transaction.todo.changes for place in _list_changed_places(change, now)):
        if any(change.removes and change.menu is USER for change in transaction.todo.changes):
            why = "a user it removed comes back disabled, or another session changed it during the run"
            return f"nothing of this run is left on the switch, which is not wholly as before: {why}", True
        return "nothing of this run is left on the switch; another session changed it during the run", True
    return None


def _why_new(transaction: Transaction, now: SwitchReading, released: bool) -> str:
    """Why a run that stopped left its new state."""
    if released:
        return "the release came through"
    if transaction.restarted_since(now):
        return "although safe mode was not released: the switch has restarted meanwhile, and kept what was written"
    return "although this run did not release safe mode: it ended by itself, and undid nothing"


def _list_changed_places(change: RowChange, now: SwitchReading | None = None) -> Iterator[tuple[object, ...]]:
    """Yield the subject of a change, without the values: an added or removed row, or fields of a remaining one; with
    `now`, only fields that have a meaning in the current row.
    """
    if change.adds or change.removes:
        yield change.menu.path, change.key
        return
    row = now.by_key(change.menu).get(change.key, {}) if now else {}
    for field in change.fields:
        if now is None or change.menu.counts(field.name, row):
            yield change.menu.path, change.key, field.name
