"""`sparkrack switch`: manual changes of a switch."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import Rack, Switch, load
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import no_lock_option, no_nodes_option, rack_option, switch_argument, switches
from sparkrack.cli.switch_password import password
from sparkrack.maintenance.switch_restore import RestoreOptions, RestoreResult, list_backups, restore_switch
from sparkrack.terminal.progress import show_progress
from switch import backup
from switch.wait_for_links import SETTLE_SECONDS

DIFFERS = 2
"""Exit code of --dry when the switch is not as in the backup."""


@click.group()
def switch() -> None:
    """Work on the switch of the rack."""


switch.add_command(password)


def _complete_first_word(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The first word may be a switch; names of backups are not completed."""
    return [] if ctx.params.get("words") else switches(ctx, param, incomplete)


@switch.command()
@click.argument("words", nargs=-1, metavar="[SWITCH] [BACKUP]", shell_complete=_complete_first_word)
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
    chosen, name = _chosen_switch(found, words)
    place = backup.folder(found.rack, chosen.name)
    if listed:
        lines = list(list_backups(place))
        for text in lines or [f"no backup in {place}"]:
            click.echo(text)
        if lines:
            next_step([*_restore_command(chosen), "--last", "--dry"], rack=rack)
        else:
            next_step(["sparkrack", "plan"], rack=rack, limit=[chosen.name])
        return
    if last == (name is not None):
        raise click.UsageError("name one backup, or pass --last; --list shows them")
    options = RestoreOptions(settle=settle, wait=not no_wait, dry=dry, yes=yes, no_nodes=no_nodes, no_lock=no_lock)
    with show_progress(silent=False) as screen:
        name, result = restore_switch(found, chosen, name, options, screen)
    if result in (RestoreResult.IN_SYNC, RestoreResult.DONE):
        next_step(["sparkrack", "verify", "--only", "switch"], rack=rack)
    elif result is RestoreResult.DIFFERS:
        next_step([*_restore_command(chosen), name], rack=rack)
    else:
        next_step([*_restore_command(chosen), name, "--dry"], rack=rack)
    sys.exit({RestoreResult.DIFFERS: DIFFERS, RestoreResult.FAILED: 1}.get(result, 0))


def _restore_command(chosen: Switch) -> tuple[str, ...]:
    return ("sparkrack", "switch", "restore", chosen.name)


def _chosen_switch(rack: Rack, words: tuple[str, ...]) -> tuple[Switch, str | None]:
    """The switch, and the name of a backup; one word is a switch when the rack has one of that name."""
    if len(words) > 2:
        raise click.UsageError(f"{words[2]} is one word too many")
    if len(words) == 1 and words[0] not in rack.switches:
        return switch_argument(rack, None), words[0]
    return switch_argument(rack, words[0] if words else None), words[1] if len(words) == 2 else None
