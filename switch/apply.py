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

from core.model.declared_secrets import secret_problems
from core.ops import refusals, run_lock
from core.ops.events import emit
from core.routeros.change_plan import DISARMING, ChangeBatch, ChangePlan, secrets_of
from core.routeros.connector import RouterOSConnector
from core.routeros.diff import RowChange
from core.routeros.errors import RefusedError, SwitchError, UnreadableError
from core.routeros.pyinfra_facts import host_client, to_command
from core.routeros.rollback_timer import PREFIX
from core.routeros.values import visible
from core.util.event import Action, Event, EventKind, FieldValue, acted
from switch import ROLE, backup, leg_health, offload
from switch.executor import TransactionOutcome, disarmed, execute
from switch.link_witness import witness
from switch.served_units import UNASKED, nodes_behind, unit_refusals
from switch.target_state import DeclaredTarget
from switch.transaction import Say, Step, Transaction
from switch.wait_for_links import SETTLE_SECONDS

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from core.model import Rack, Switch
    from core.routeros.session import SessionConnection


UNTOUCHED = "nothing was written"


@deploy(ROLE.title)
def apply(rack: Rack, switch: Switch, settle: float = SETTLE_SECONDS, fuse: float | None = None) -> None:
    """Bring `switch` to the state that `rack` declares: cages and their legs, bridge, VLANs, lossless policy, and those
    of identity, time, names, log, SNMP, services and users that the file names.

    settle: seconds for a cabled leg to come up; one that does not (also a node without power) fails the run and
    everything is rolled back. fuse: seconds until the rollback timer on the switch reverts an unfinished run; None for
    as long as the plan may take. Does not protect from another writer without safe mode at the same moment.
    """
    bring(name=f"Bring {switch.name} to its declared state", rack=rack, switch=switch, settle=settle, fuse=fuse)


@operation()
def bring(rack: Rack, switch: Switch, settle: float, fuse: float | None) -> Generator[PyinfraCommand, None, None]:
    """The only operation. Nothing is written unless the whole switch could be read, is the declared one, and differs;
    the same holds for --dry, an interactive run and -y, since each evaluation reads again.
    """
    host = cast("Host", ctx_host.get())  # type: ignore[no-untyped-call]
    if refusals.refused_in_preview(host):
        yield refusals.fail_unknown(host, "no preview of the changes could be shown", untouched=UNTOUCHED)
        return
    goal = DeclaredTarget(rack, switch)
    try:
        frames = host_client(host)(offload.QUESTION)
        before = goal.read(host_client(host))
        todo = goal.plan(before)
        # Unknown stops a run here as a garbled answer of a node does there: whether its links came back would be
        # asked of the same monitor.
        down = leg_health.leg_problems(rack, switch, before, todo, host_client(host))
        links = leg_health.as_declared(rack, switch, before, todo)
        by_cpu, unseen = leg_health.forwarded(links, frames, host_client(host)(offload.QUESTION) if links else ())
    except RefusedError as refused:
        yield refusals.refuse(host, *map(visible, refused.reasons), untouched=UNTOUCHED)
        return
    except (SwitchError, UnreadableError) as unknown:
        yield refusals.fail_unknown(host, visible(f"state of the switch unknown: {unknown}"), untouched=UNTOUCHED)
        return
    todo = replace(todo, faults=(*todo.faults, *down, *by_cpu), notices=(*todo.notices, *([unseen] if unseen else [])))
    _show_notes(host, todo)
    # Before anything is written, on any host: a plan with this blocker is never carried out.
    if unusable := tuple(secret_problems(rack, secrets_of(todo))):
        yield refusals.refuse(host, *map(visible, unusable), untouched=UNTOUCHED)
        return
    if todo.empty:
        host.noop(f"{switch.name} is as declared")
        return
    asked = () if host.data.get(UNASKED) else nodes_behind(rack, switch, before, todo)
    if busy := unit_refusals(rack, switch, asked, _asking_nodes(host.state)):
        yield refusals.refuse(host, *busy, untouched=UNTOUCHED)
        return
    if not todo.batches:
        yield FunctionCommand(_disarm_timers, (goal, todo.armed), {})
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


def _carry_out(state: State, host: Host, transaction: Transaction) -> bool:
    return _log_end(host, execute(transaction, _session_of_run(state, host), _step_printer(host)))


def _disarm_timers(state: State, host: Host, goal: DeclaredTarget, names: tuple[str, ...]) -> bool:
    return _log_end(host, disarmed(goal, _session_of_run(state, host), names))


def _session_of_run(state: State, host: Host) -> SessionConnection:
    """The session of this run, which sends nothing more once the run has lost the lock of the rack."""
    line = cast("RouterOSConnector", host.connector).line
    line.stopped = lambda: run_lock.lost(state)
    return line


def _log_end(host: Host, ended: TransactionOutcome) -> bool:
    # Returned, not raised: pyinfra prints a traceback for every exception of a function.
    for line in ended.text.splitlines():
        host.log_styled(
            visible(line), fg=None if ended.done else "red", log_func=logger.info if ended.done else logger.error
        )
    return ended.done


def _step_printer(host: Host) -> Callable[[Step], None]:
    """Shows what is sent as pyinfra does, at -vv; secrets by their reference."""

    def show(step: Step) -> None:
        if host.state.print_input and isinstance(step, Say):
            words = (*step.sentence, *(f"={name}=({reference})" for name, reference in step.secrets))
            echo(f"{host.print_prefix}>>> {to_command(words)}", err=True)

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


def _show_notes(host: Host, todo: ChangePlan) -> None:
    reported = [
        *([Event(EventKind.EFFECT, detail=DISARMING)] if todo.armed else []),
        *acted(Action.DISARM, *map(visible, todo.armed)),
        *(event for batch in todo.batches for event in _batch_events(batch)),
        *(Event(EventKind.BROKEN, action=Action.UPGRADE, detail=visible(line)) for line in todo.upgrades),
        *(Event(EventKind.BROKEN, detail=visible(line)) for line in todo.faults),
        *(Event(EventKind.UNMANAGED, subject=visible(one.row), menu=one.menu) for one in todo.unmanaged),
        *(Event(EventKind.NOTE, detail=visible(line)) for line in todo.notices),
    ]
    if not emit(host, *reported):
        return
    for line in todo.lines if host.state.config.DIFF else todo.effects:
        host.log(visible(line))
    for line in todo.notes:
        host.log(visible(line))


def _batch_events(batch: ChangeBatch) -> list[Event]:
    effect = Event(EventKind.EFFECT, subject=visible(batch.title), detail=visible(batch.effect))
    return [effect, *map(row_event, batch.changes)]


def row_event(change: RowChange) -> Event:
    """A row of the switch as an event; secrets as a plan may show them."""
    return Event(
        EventKind.CHANGE,
        subject=change.named or None,
        fields=tuple(FieldValue(field.name, field.old_shown, field.new_shown) for field in change.shown_fields),
        menu=change.menu.path,
        action=Action.REMOVE if change.removes else Action.CREATE if change.adds else Action.MODIFY,
    )
