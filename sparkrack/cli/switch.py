"""`sparkrack switch`: what is done to a switch besides bringing it to its declared state."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sparkrack.cli.asking import Nodes
from sparkrack.cli.machines import switches
from sparkrack.cli.pick import the_switch
from sparkrack.cli.rackoption import rack_option
from sparkrack.cli.switch_password import password
from sparkrack.fleet import Rack, Switch, load
from switch import backup
from switch.batch import Plan
from switch.conduct import FAULTS, Ended, conduct, disarmed
from switch.deadman import PREFIX
from switch.dial import dialled
from switch.line import SessionLine
from switch.menus import ROUTERBOARD
from switch.reading import Reading
from switch.restore import Restored
from switch.settling import SETTLE_SECONDS
from switch.transaction import Transaction
from switch.values import visible
from switch.witness import Witness, witness

DIFFERS = 2
"""Exit code of --dry when the switch is not as in the backup."""


@click.group()
def switch() -> None:
    """Work on the switch of the rack."""


switch.add_command(password)


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
@click.option("--no-nodes", is_flag=True, help="Do not ask the nodes whether they see their links, too.")
@click.option("--no-lock", is_flag=True, help="Go on if the first node, which keeps the lock, cannot be reached.")
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
    dead man on the switch, one cage after the other; and it holds the lock of the rack, as `sparkrack apply` does.
    Exit 0 when the switch is as in the backup, else 1.
    """
    found = load(rack)
    chosen, name = _chosen(found, words)
    place = backup.folder(found.rack, chosen.name)
    if listed:
        _list(place)
        return
    try:
        name, kept = _kept(place, name, last=last)
        with dialled(chosen, lambda text: click.echo(f"{chosen.name}: {text}")) as line:
            goal = Restored(found, chosen, kept, wait=not no_wait)
            before = goal.read(lambda sentence: line.talk(*sentence))
            todo = goal.plan(before)
            _show(chosen, todo)
            if todo.empty:
                return
            if dry:
                sys.exit(DIFFERS)
            if not yes and not sys.stdin.isatty():
                raise click.ClickException(f"{chosen.name}: there is no terminal to ask on; say -y")
            if not yes:
                click.confirm(f"{chosen.name}: put this back?", abort=True)
            with _lock(goal, name, no_lock=no_lock):
                ended = _carry_out(line, goal, before, todo, settle, ask=not no_nodes)
                for text in ended.text.splitlines():
                    click.echo(f"{chosen.name}: {visible(text)}", err=not ended.done)
    except FAULTS as fault:
        raise click.ClickException(f"{chosen.name}: {visible(str(fault))}") from None
    sys.exit(0 if ended.done else 1)


def _chosen(rack: Rack, words: tuple[str, ...]) -> tuple[Switch, str | None]:
    """The switch, and the name of a backup; one word is a switch when the rack has one of that name."""
    if len(words) > 2:
        raise click.UsageError(f"{words[2]} is one word too many")
    if len(words) == 1 and words[0] not in rack.switches:
        return the_switch(rack, None), words[0]
    return the_switch(rack, words[0] if words else None), words[1] if len(words) == 2 else None


def _kept(place: Path, name: str | None, *, last: bool) -> tuple[str, Reading]:
    """The backup that is meant, with its name."""
    if last == (name is not None):
        raise click.UsageError("name one backup, or say --last; --list shows them")
    known = backup.names(place)
    chosen = backup.newest(place) if last else name
    if chosen is None or chosen not in known:
        there = f"{len(known)} there, see --list" if known else "none was kept yet"
        raise click.ClickException(f"no backup {name or ''} in {place} ({there})".replace("  ", " "))
    return chosen, backup.load(place / chosen / "rows.json")


@contextmanager
def _lock(goal: Restored, name: str, *, no_lock: bool) -> Iterator[None]:
    """Hold the lock of the rack. The switch may be why the node that keeps it cannot be reached: so there is a way
    without it, for whoever asks for that."""
    from sparkrack.cli.holding import holding_if_there

    def alone(why: str) -> None:
        if not no_lock:
            raise click.ClickException(f"{why}; nothing was changed. If nobody else is at work: --no-lock")
        click.echo(f"{goal.switch.name}: {why}; going on without it", err=True)

    with holding_if_there(goal.rack, f"restore of {goal.switch.name} to {name}", alone):
        yield


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


def _show(chosen: Switch, todo: Plan) -> None:
    for text in (*todo.lines, *todo.notes):
        click.echo(f"{chosen.name}: {visible(text)}")
    if todo.empty:
        click.echo(f"{chosen.name}: nothing to do, the switch is as in the backup")


def _carry_out(line: SessionLine, goal: Restored, before: Reading, todo: Plan, settle: float, *, ask: bool) -> Ended:
    chosen = goal.switch
    if not todo.batches:
        return disarmed(goal, line, todo.armed)
    keeper = backup.Keeper(backup.folder(goal.rack.rack, chosen.name), chosen.backups, chosen.password.resolve)
    name = f"{PREFIX}{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(2)}{backup.RESTORING}"
    nodes = dict.fromkeys(link.port.node for batch in todo.batches for link in batch.settles)
    with TemporaryDirectory(prefix="sparkrack-") as folder, ExitStack() as ending:
        asked = ending.enter_context(closing(Nodes(goal.rack, Path(folder), nodes))) if ask and nodes else None
        asking: Witness | None = witness(asked) if asked else None
        transaction = Transaction(
            *(name, goal, before, todo),
            settle=settle,
            keep=lambda line: line.say(f"backup kept in {keeper.keep(line, name)}"),
            witness=asking,
        )
        return conduct(transaction, line)
