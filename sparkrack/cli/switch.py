"""`sparkrack switch`: manual changes of a switch."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from core.model import Rack, Switch, load
from core.model.declared_secrets import secret_problems
from core.ops.run_lock import Holder
from core.routeros.change_plan import ChangePlan, secrets_of
from core.routeros.menus import ROUTERBOARD
from core.routeros.reading import SwitchReading
from core.routeros.rollback_timer import PREFIX
from core.routeros.session import SessionConnection, open_connection
from core.routeros.values import visible
from core.ssh.node_shells import WITNESS_SECONDS, NodeShells, open_shells
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import no_lock_option, no_nodes_option, rack_option, switch_argument, switches
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.running_units import refuse_running_units
from sparkrack.cli.switch_password import password
from sparkrack.cli.switch_upgrade import upgrade
from sparkrack.engine.recorded_run import recorded_run
from sparkrack.watch.silences import silenced, silences_of_switches
from switch import backup
from switch.executor import FAULTS, TransactionOutcome, disarmed, execute
from switch.link_witness import Witness, witness
from switch.restore import BackupTarget
from switch.served_units import nodes_behind
from switch.transaction import Transaction
from switch.wait_for_links import SETTLE_SECONDS

DIFFERS = 2
"""Exit code of --dry when the switch is not as in the backup."""
WRITE_SECONDS = 600
"""Seconds for all that a restore writes, beside its waits for links."""


@click.group()
def switch() -> None:
    """Work on the switch of the rack."""


switch.add_command(password)
switch.add_command(upgrade)


def _first(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The first word may be a switch; names of backups are not completed."""
    return [] if ctx.params.get("words") else switches(ctx, param, incomplete)


@switch.command()
@click.argument("words", nargs=-1, metavar="[SWITCH] [BACKUP]", shell_complete=_first)
@rack_option
@click.option("--last", is_flag=True, help="The backup that the last deploy kept.")
@click.option("--list", "listed", is_flag=True, help="Only show which backups there are.")
@click.option("--dry", is_flag=True, help="Only show what would be written. Exit 2 when anything would.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--settle",
    type=click.FloatRange(1, 600),
    default=SETTLE_SECONDS,
    show_default=True,
    help="Seconds a link may take to come up.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait for links: a node is off, or its cable out.")
@no_nodes_option("Do not ask the nodes whether units run there, nor whether they see their links.")
@no_lock_option
def restore(
    words: tuple[str, ...],
    rack: Path,
    last: bool,
    listed: bool,
    dry: bool,
    yes: bool,
    settle: float,
    no_wait: bool,
    no_nodes: bool,
    no_lock: bool,
) -> None:
    """Put a kept backup of a switch back: the rows that differ, without a reboot.

    Each deploy that changes the switch keeps a backup first; so does this. It is guarded like a deploy: safe mode, a
    rollback timer on the switch, one cage after the other; and it holds the lock of the rack, as `sparkrack apply`
    does. It is refused while a unit of several nodes runs on a node that it would cut off.
    Exit 0 when the switch is as in the backup, else 1.
    """
    found = load(rack)
    chosen, name = _chosen(found, words)
    place = backup.folder(found.rack, chosen.name)
    if listed:
        _list(place)
        if backup.names(place):
            next_step([*_restore(chosen), "--last", "--dry"], rack=rack)
        else:
            next_step(["sparkrack", "plan"], rack=rack, limit=[chosen.name])
        return
    with recorded_run(found, "switch: Put a backup back") as run, show_progress(silent=False) as screen:
        try:
            name, kept = _kept(place, name, last=last)
            screen.phase("read the switch", [chosen.name])
            with open_connection(chosen, lambda text: screen.say(f"{chosen.name}: {text}")) as line:
                goal = BackupTarget(found, chosen, kept, wait=not no_wait)
                before = goal.read(lambda sentence: line.talk(*sentence))
                todo = goal.plan(before)
                _show(chosen, todo, screen)
                if todo.empty:
                    with screen.hidden():
                        next_step(["sparkrack", "verify", "--only", "switch"], rack=rack)
                    return
                if dry:
                    with screen.hidden():
                        next_step([*_restore(chosen), name], rack=rack)
                    sys.exit(DIFFERS)
                if unusable := tuple(secret_problems(found, secrets_of(todo))):
                    raise click.ClickException("\n".join((*unusable, "nothing was changed")))
                if not yes and not sys.stdin.isatty():
                    raise click.ClickException(f"{chosen.name}: there is no terminal for a prompt; pass -y")
                if not yes:
                    with screen.hidden():
                        click.confirm(f"{chosen.name}: put this back?", abort=True)
                own = run.begin(f"restore of {chosen.name} to {name}")
                screen.phase("take the lock of the rack")
                with _lock(goal, own, screen, no_lock=no_lock) as line.stopped:
                    if not no_nodes:
                        refuse_running_units(found, chosen, nodes_behind(found, chosen, before, todo))
                    screen.phase("restore the switch", [chosen.name])
                    silences, seconds = silences_of_switches(found, [chosen.name]), _seconds(todo, settle)
                    with silenced(found, own.id, f"restore of {chosen.name}", silences, seconds, screen.warn):
                        ended = _carry_out(line, goal, before, todo, settle, screen, ask=not no_nodes)
                    if not ended.done:
                        run.fail(chosen.name, visible(ended.text))
                    for text in ended.text.splitlines():
                        screen.say(f"{chosen.name}: {visible(text)}", err=not ended.done)
        except FAULTS as fault:
            run.fail(chosen.name, visible(str(fault)))
            raise click.ClickException(f"{chosen.name}: {visible(str(fault))}") from None
    if ended.done:
        next_step(["sparkrack", "verify", "--only", "switch"], rack=rack)
    else:
        next_step([*_restore(chosen), name, "--dry"], rack=rack)
    sys.exit(0 if ended.done else 1)


def _seconds(todo: ChangePlan, settle: float) -> float:
    """Return how long a restore may take."""
    return WRITE_SECONDS + len(todo.batches) * settle


def _restore(chosen: Switch) -> tuple[str, ...]:
    return ("sparkrack", "switch", "restore", chosen.name)


def _chosen(rack: Rack, words: tuple[str, ...]) -> tuple[Switch, str | None]:
    """The switch, and the name of a backup; one word is a switch when the rack has one of that name."""
    if len(words) > 2:
        raise click.UsageError(f"{words[2]} is one word too many")
    if len(words) == 1 and words[0] not in rack.switches:
        return switch_argument(rack, None), words[0]
    return switch_argument(rack, words[0] if words else None), words[1] if len(words) == 2 else None


def _kept(place: Path, name: str | None, *, last: bool) -> tuple[str, SwitchReading]:
    """The backup that is meant, with its name."""
    if last == (name is not None):
        raise click.UsageError("name one backup, or pass --last; --list shows them")
    known = backup.names(place)
    chosen = backup.newest(place) if last else name
    if chosen is None or chosen not in known:
        there = f"{len(known)} there, see --list" if known else "none was kept yet"
        raise click.ClickException(f"no backup {name or ''} in {place} ({there})".replace("  ", " "))
    return chosen, backup.load(place / chosen / "rows.json")


@contextmanager
def _lock(goal: BackupTarget, own: Holder, screen: ProgressDisplay, *, no_lock: bool) -> Iterator[Callable[[], str]]:
    """Hold the lock of the rack. The switch may be the reason that the node with the lock is unreachable: so an option
    allows to continue without it.
    """
    from sparkrack.engine.ssh_locking import lock_if_reachable

    def alone(why: str) -> None:
        if not no_lock:
            raise click.ClickException(f"{why}; nothing was changed. If no other run is active: --no-lock")
        screen.warn(f"{goal.switch.name}: {why}; going on without it")

    with lock_if_reachable(goal.rack, own, alone, screen.warn) as lost:
        yield lost


def _list(place: Path) -> None:
    for name in backup.names(place):
        try:
            kept = backup.load(place / name / "rows.json")
        except FAULTS as fault:
            click.echo(f"{name}  {fault}")
            continue
        unit = (kept.tables.get(ROUTERBOARD.path) or ({},))[0]
        version = ".".join(map(str, kept.release[:3]))
        click.echo(f"{name}  RouterOS {version}  {unit.get('model', '?')} {unit.get('serial-number', '?')}")
    if not backup.names(place):
        click.echo(f"no backup in {place}")


def _show(chosen: Switch, todo: ChangePlan, screen: ProgressDisplay) -> None:
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
    screen: ProgressDisplay,
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
