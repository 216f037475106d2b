"""Bring a switch to its declared state: one operation, one transaction."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.operation import operation
from pyinfra.api.output import echo
from pyinfra.context import ctx_host

from sparkrack.ops import refusal
from sparkrack.ops.account import Entry, Sort, heard

from . import backup, legs, offload
from .batch import DISARMING, Batch, Plan
from .conduct import Ended, conduct, disarmed
from .connector import RouterOSConnector
from .deadman import PREFIX
from .errors import RefusedError, SwitchError, UnreadableError
from .facts import asking, spoken
from .goal import Declared
from .settling import SETTLE_SECONDS
from .transaction import Say, Step, Transaction
from .values import visible
from .witness import witness

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from sparkrack.fleet import Rack, Switch


@deploy("Switch")
def apply(rack: Rack, switch: Switch, settle: float = SETTLE_SECONDS, fuse: float | None = None) -> None:
    """Bring `switch` to what `rack` declares of it: cages and their legs, bridge, VLANs, lossless policy, and
    whichever of identity, time, names, log, SNMP, services and users the file names.

    settle: seconds a cabled leg may take to come up; one that does not (a node without power, too) fails the
    run and everything is taken back. fuse: seconds until the dead man on the switch undoes a run that nobody
    finished; None for as long as the plan may take. Does not protect from somebody who writes without safe
    mode at the same moment.
    """
    bring(name=f"Bring {switch.name} to its declared state", rack=rack, switch=switch, settle=settle, fuse=fuse)


@operation()
def bring(rack: Rack, switch: Switch, settle: float, fuse: float | None) -> Generator[PyinfraCommand, None, None]:
    """The one operation. Nothing is written unless the whole switch could be read, is the one that is meant,
    and differs; the same holds for --dry, an interactive run and -y, since each evaluation reads anew."""
    host = cast("Host", ctx_host.get())  # type: ignore[no-untyped-call]
    if refusal.unseen(host):
        yield refusal.unknown(host, *_untouched("no preview of the changes could be shown"))
        return
    goal = Declared(rack, switch)
    try:
        frames = asking(host)(offload.QUESTION)
        before = goal.read(asking(host))
        todo = goal.plan(before)
        # Unknown stops a run here as a garbled answer of a node does there: whether its links came back would be
        # asked of the same monitor.
        down = legs.faults(rack, switch, before, todo, asking(host))
        links = legs.as_declared(rack, switch, before, todo)
        by_cpu, unseen = legs.forwarded(links, frames, asking(host)(offload.QUESTION) if links else ())
    except RefusedError as refused:
        yield refusal.refuse(host, *_untouched(*refused.reasons))
        return
    except (SwitchError, UnreadableError) as unknown:
        yield refusal.unknown(host, *_untouched(f"state of the switch unknown: {unknown}"))
        return
    todo = replace(todo, faults=(*todo.faults, *down, *by_cpu), told=(*todo.told, *([unseen] if unseen else [])))
    _show(host, todo)
    if todo.empty:
        host.noop(f"{switch.name} is as declared")
        return
    if not todo.batches:
        yield FunctionCommand(_disarm, (goal, todo.armed), {})
        return
    run = f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}"
    keeper = backup.Keeper(backup.folder(rack.rack, switch.name), switch.backups, switch.password.resolve)
    transaction = Transaction(
        *(f"{PREFIX}{run}", goal, before, todo),
        settle=settle,
        fuse=fuse,
        keep=lambda line: line.say(f"backup kept in {keeper.keep(line, f'sparkrack-{run}')}"),
        witness=witness(_asking_nodes(host.state)),
    )
    yield FunctionCommand(_carry_out, (transaction,), {})


def _carry_out(state: State, host: Host, transaction: Transaction) -> bool:  # noqa: ARG001 - pyinfra passes both
    connector = cast("RouterOSConnector", host.connector)
    return _ended(host, conduct(transaction, connector.line, _showing(host)))


def _disarm(state: State, host: Host, goal: Declared, names: tuple[str, ...]) -> bool:  # noqa: ARG001
    return _ended(host, disarmed(goal, cast("RouterOSConnector", host.connector).line, names))


def _ended(host: Host, ended: Ended) -> bool:
    # Returned, not raised: pyinfra prints a traceback for whatever a function raises.
    for line in ended.text.splitlines():
        host.log_styled(
            visible(line), fg=None if ended.done else "red", log_func=logger.info if ended.done else logger.error
        )
    return ended.done


def _showing(host: Host) -> Callable[[Step], None]:
    """Shows what is sent as pyinfra does, at -vv; secrets by their reference."""

    def show(step: Step) -> None:
        if host.state.print_input and isinstance(step, Say):
            words = (*step.sentence, *(f"={name}=({reference})" for name, reference in step.secrets))
            echo(f"{host.print_prefix}>>> {spoken(words)}", err=True)

    return show


def _asking_nodes(state: State) -> Callable[[str, str], str | None]:
    """Runs a command on a node of this run; None for one that is not in it, or does not answer."""

    def ask(node: str, command: str) -> str | None:
        host = state.inventory.get_host(node) if node in state.inventory.hosts else None
        if host is None or not host.connected:
            return None
        fine, output = host.run_shell_command(StringCommand(command))
        return output.stdout if fine else None

    return ask


def _untouched(*reasons: str) -> list[str]:
    return [f"{visible(reason)}; nothing was written" for reason in reasons]


def _said(batch: Batch, effect: str) -> list[tuple[Sort, str]]:
    return [(Sort.EFFECT, effect), *((Sort.CHANGE, str(change)) for change in batch.changes)]


def _show(host: Host, todo: Plan) -> None:
    effects = todo.effects[1:] if todo.armed else todo.effects
    entries = [
        *([(Sort.EFFECT, DISARMING), *((Sort.CHANGE, line) for line in todo.disarms)] if todo.armed else []),
        *(entry for batch, effect in zip(todo.batches, effects, strict=True) for entry in _said(batch, effect)),
        *((Sort.FAULT, line) for line in todo.faults),
        *((Sort.UNMANAGED, line) for line in todo.unmanaged),
        *((Sort.NOTE, line) for line in todo.told),
    ]
    if heard(host, *(Entry(sort, visible(line)) for sort, line in entries)):
        return
    for line in todo.lines if host.state.config.DIFF else todo.effects:
        host.log(visible(line))
    for line in todo.notes:
        host.log(visible(line))
