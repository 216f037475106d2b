"""Bring a switch to its declared state: one operation, one transaction."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, cast

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from sparkrack.ops.refusal import refuse, unseen

from .api import SwitchError
from .connector import RouterOSConnector
from .diff import UnreadableError
from .facts import asking, spoken
from .plan import Plan, RefusedError, plan
from .reading import Reading, read
from .transaction import SETTLE_SECONDS, Check, CheckError, Say, Step, Transaction

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from sparkrack.fleet import Rack, Switch

UNDO_SECONDS = 15.0
"""How long to look whether a switch that lost our session has taken everything back."""


@deploy("Switch")
def apply(rack: Rack, switch: Switch, settle: float = SETTLE_SECONDS) -> None:
    """Bring `switch` to what `rack` declares of it: lanes of the declared cages, their legs in the bridge,
    identity.

    settle: seconds a cabled leg may take to come up; one that does not (a node without power, too) fails the
    run and everything is taken back. Does not protect from somebody who writes without safe mode at the same
    moment, nor from a leg that only the switch calls up: verify both ends afterwards.
    """
    bring(name=f"Bring {switch.name} to its declared state", rack=rack, switch=switch, settle=settle)


@operation()
def bring(rack: Rack, switch: Switch, settle: float) -> Generator[PyinfraCommand, None, None]:
    """The one operation. Nothing is written unless the whole switch could be read, is the one that is meant,
    and differs; the same holds for --dry, an interactive run and -y, since each evaluation reads anew."""
    host = cast("Host", ctx_host.get())  # type: ignore[no-untyped-call]
    if unseen(host):
        yield _stop(host, ("no preview of the changes could be shown",))
        return
    try:
        before = read(asking(host))
        todo = plan(rack, switch, before)
    except RefusedError as refused:
        yield _stop(host, refused.reasons)
        return
    except (SwitchError, UnreadableError) as unknown:
        yield _stop(host, (f"state of the switch unknown: {unknown}",))
        return
    if not todo.batches:
        host.noop(f"{switch.name} is as declared")
        return
    _show(host, todo)
    yield from _carry_out(host, Transaction(rack, switch, todo, settle), before)


def _carry_out(host: Host, transaction: Transaction, before: Reading) -> Generator[PyinfraCommand, None, None]:
    step: Step | None = None
    written = False
    try:
        for step in transaction.steps():
            written = written or step.writes
            yield _command(step)
        step = None
    finally:
        # pyinfra ends an operation at its first failing command by closing this generator; it does so in the
        # preview, too, at the first command.
        if step and host.state.is_executing:
            host.log_styled(f"stopped at: {step.title}", fg="red", log_func=logger.error)
            if written:
                _tell_aftermath(host, transaction, before)


def _command(step: Step) -> PyinfraCommand:
    match step:
        case Say(sentence=sentence):
            return spoken(sentence)
        case Check():
            return FunctionCommand(_test, (step,), {})


def _test(state: State, host: Host, check: Check) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    connector = cast(RouterOSConnector, host.connector)
    try:
        check.test(connector)
    except (CheckError, SwitchError, UnreadableError, RefusedError) as fault:
        # Returned, not raised: pyinfra prints a traceback for whatever a function raises.
        host.log_styled(f"{fault}{connector.back_out()}", fg="red", log_func=logger.error)
        return False
    return True


def _stop(host: Host, reasons: tuple[str, ...]) -> PyinfraCommand:
    return refuse(host, *(f"{reason}; nothing was written" for reason in reasons))


def _show(host: Host, todo: Plan) -> None:
    for line in todo.lines if host.state.config.DIFF else todo.effects:
        host.log(line)


def _tell_aftermath(host: Host, transaction: Transaction, before: Reading) -> None:
    """Look whether the switch is as it was before, and say so. A lost session takes it a moment to notice."""
    connector = cast(RouterOSConnector, host.connector)
    end = time.monotonic() + (UNDO_SECONDS if connector.lost else 0)
    while True:
        try:
            with connector.second() as session:
                now = read(lambda sentence: session.talk(*sentence))
            if now == before:
                host.log("looked again: the switch is as it was before the run")
                return
            if not plan(transaction.rack, transaction.switch, now).batches:
                host.log("looked again: the switch is as declared, the release came through")
                return
            found = "the switch reads neither as before nor as declared"
        except (SwitchError, UnreadableError, RefusedError) as fault:
            found = f"the switch could not be read again ({fault})"
        if time.monotonic() >= end:
            break
        time.sleep(1)
    host.log_styled(
        f"ROLLBACK NOT PROVEN: {found}. On the switch's console: /safe-mode/print, /system/history/print, "
        "/interface/ethernet/print detail",
        fg="red",
        log_func=logger.error,
    )
