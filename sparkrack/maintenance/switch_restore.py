"""Sequence of `sparkrack switch restore`: put a kept backup of a switch back."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from core.model import Rack, Switch
from core.model.declared_secrets import secret_problems
from core.ops.run_lock import Holder
from core.routeros.change_plan import ChangePlan, secrets_of
from core.routeros.menus import ROUTERBOARD
from core.routeros.reading import SwitchReading
from core.routeros.rollback_timer import PREFIX
from core.routeros.session import SessionConnection, open_connection
from core.routeros.values import visible
from core.ssh.node_shells import WITNESS_SECONDS, NodeShells, open_shells
from core.util.command_error import CommandError
from core.util.screen import Screen, ask_before_change
from sparkrack.engine.recorded_run import RecordedRun, recorded_run
from sparkrack.engine.silences import silenced, silences_of_switches
from sparkrack.engine.ssh_locking import lock_if_reachable
from sparkrack.maintenance.running_units_refusal import refuse_running_units
from switch import backup
from switch.executor import FAULTS, TransactionOutcome, disarmed, execute
from switch.link_witness import Witness, witness
from switch.restore_target import BackupTarget
from switch.served_units import nodes_behind
from switch.transaction import Transaction

WRITE_SECONDS = 600
"""Seconds for all that a restore writes, beside its waits for links."""


@dataclass(frozen=True)
class RestoreOptions:
    """`settle`: seconds that a link may take to come up. `wait`: whether links are waited for. `dry`: only show what
    would be written. `yes`: do not ask. `no_nodes`: ask no node whether units run, nor about links. `no_lock`: go on
    without the lock if the head node is unreachable.
    """

    settle: float
    wait: bool
    dry: bool
    yes: bool
    no_nodes: bool
    no_lock: bool


class RestoreResult(Enum):
    """Result of a restore."""

    IN_SYNC = auto()
    """The switch is as in the backup; nothing was written."""
    DIFFERS = auto()
    """It is not, and nothing was to be written."""
    DONE = auto()
    FAILED = auto()


def restore_first(rack: Rack, switch: Switch, options: RestoreOptions, screen: Screen, *, err: bool) -> RestoreResult:
    """Put the oldest backup of a switch back: how it was before the first run of this machine. Without a backup it is
    reported as unknown, to stderr with `err`, and kept. Raises CommandError.
    """
    place = backup.folder(rack.rack, switch.name)
    first = backup.oldest(place)
    if first is None:
        screen.say(f"{switch.name}: unknown: kept; no run of this machine has changed it ({place})", err=err)
        return RestoreResult.IN_SYNC
    return restore_switch(rack, switch, first, options, screen)[1]


def restore_switch(
    rack: Rack, switch: Switch, name: str | None, options: RestoreOptions, screen: Screen
) -> tuple[str, RestoreResult]:
    """Put a backup back, the newest when `name` is None; return its name, and the result. Raises CommandError."""
    place = backup.folder(rack.rack, switch.name)
    with recorded_run(rack, "switch: Put a backup back") as run:
        try:
            name, kept = _kept_backup(place, name)
            screen.phase("read the switch", [switch.name])
            with open_connection(switch, lambda text: screen.say(f"{switch.name}: {text}")) as line:
                goal = BackupTarget(rack, switch, kept, wait=options.wait)
                return name, _restore_switch(line, goal, name, options, run, screen)
        except FAULTS as fault:
            run.fail(switch.name, visible(str(fault)))
            raise CommandError(f"{switch.name}: {visible(str(fault))}") from None


def _restore_switch(
    line: SessionConnection, goal: BackupTarget, name: str, options: RestoreOptions, run: RecordedRun, screen: Screen
) -> RestoreResult:
    """Read, show, ask, carry out."""
    rack, switch = goal.rack, goal.switch
    before = goal.read(lambda sentence: line.talk(*sentence))
    todo = goal.plan(before)
    _show_restore(switch, todo, screen)
    if todo.empty:
        return RestoreResult.IN_SYNC
    if options.dry:
        return RestoreResult.DIFFERS
    if unusable := tuple(secret_problems(rack, secrets_of(todo))):
        raise CommandError("\n".join((*unusable, "nothing was changed")))
    if not options.yes:
        ask_before_change(screen, switch.name, "put this back?")
    own = run.begin(f"restore of {switch.name} to {name}")
    screen.phase("take the lock of the rack")
    with _hold_lock(goal, own, screen, no_lock=options.no_lock) as line.stopped:
        if not options.no_nodes:
            refuse_running_units(rack, switch, nodes_behind(rack, switch, before, todo))
        screen.phase("restore the switch", [switch.name])
        silences, seconds = (
            silences_of_switches(rack, [switch.name]),
            WRITE_SECONDS + len(todo.batches) * options.settle,
        )
        with silenced(rack, own.id, f"restore of {switch.name}", silences, seconds, screen.warn):
            ended = _carry_out(line, goal, before, todo, options.settle, screen, ask=not options.no_nodes)
        if not ended.done:
            run.fail(switch.name, visible(ended.text))
        for text in ended.text.splitlines():
            screen.say(f"{switch.name}: {visible(text)}", err=not ended.done)
    return RestoreResult.DONE if ended.done else RestoreResult.FAILED


def list_backups(place: Path) -> Iterator[str]:
    """Return a line for each backup in a folder."""
    for name in backup.names(place):
        try:
            kept = backup.load(place / name / "rows.json")
        except FAULTS as fault:
            yield f"{name}  {fault}"
            continue
        unit = (kept.tables.get(ROUTERBOARD.path) or ({},))[0]
        version = ".".join(map(str, kept.release[:3]))
        yield f"{name}  RouterOS {version}  {unit.get('model', '?')} {unit.get('serial-number', '?')}"


def _kept_backup(place: Path, name: str | None) -> tuple[str, SwitchReading]:
    """The backup of that name, or the newest, with its name. Raises CommandError."""
    known = backup.names(place)
    chosen = name or backup.newest(place)
    if chosen is None or chosen not in known:
        there = f"{len(known)} there, see --list" if known else "none was kept yet"
        raise CommandError(f"no backup {name or ''} in {place} ({there})".replace("  ", " "))
    return chosen, backup.load(place / chosen / "rows.json")


@contextmanager
def _hold_lock(goal: BackupTarget, own: Holder, screen: Screen, *, no_lock: bool) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack. The switch may be the reason that the node with the lock is unreachable: so an option
    allows to continue without it.
    """

    def alone(why: str) -> None:
        if not no_lock:
            raise CommandError(f"{why}; nothing was changed. If no other run is active: --no-lock")
        screen.warn(f"{goal.switch.name}: {why}; going on without it")

    with lock_if_reachable(goal.rack, own, alone, screen.warn) as lost:
        yield lost


def _show_restore(chosen: Switch, todo: ChangePlan, screen: Screen) -> None:
    for text in (*todo.lines, *todo.notes):
        screen.say(f"{chosen.name}: {visible(text)}")
    if todo.empty:
        screen.say(f"{chosen.name}: nothing to do, the switch is as in the backup")


def _carry_out(
    line: SessionConnection,
    goal: BackupTarget,
    before: SwitchReading,
    todo: ChangePlan,
    settle: float,
    screen: Screen,
    *,
    ask: bool,
) -> TransactionOutcome:
    chosen = goal.switch
    if not todo.batches:
        return disarmed(goal, line, todo.armed)
    keeper = backup.Keeper(backup.folder(goal.rack.rack, chosen.name), chosen.backups, chosen.password.resolve)
    name = f"{PREFIX}{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}{backup.RESTORING}"
    nodes = dict.fromkeys(link.port.node for batch in todo.batches for link in batch.settles)
    with ExitStack() as ending:
        asking: Witness | None = None
        if ask and nodes:
            asking = witness(NodeShells(ending.enter_context(open_shells(goal.rack, nodes, WITNESS_SECONDS))))
        transaction = Transaction(
            *(name, goal, before, todo),
            settle=settle,
            keep=lambda line: line.say(f"backup kept in {keeper.keep(line, name)}"),
            witness=asking,
        )
        return execute(transaction, line, lambda step: screen.step(chosen.name, visible(step.title)))
