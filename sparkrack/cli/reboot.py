"""`sparkrack reboot`: restart nodes one after the other, each verified before the next one."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from core.model import load
from core.model.selection import select_nodes
from core.verify.checked_roles import CHECKED_ROLES, verify_files
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import node_patterns, rack_option
from sparkrack.maintenance.rolling_reboot import reboot_nodes, restart_order, start_stopped, stop_unit, stop_units
from sparkrack.rebuild.restart import RESTART_SECONDS
from sparkrack.terminal.progress import show_progress
from sparkrack.terminal.prompts import ask_before


@click.command()
@rack_option
@click.option(
    "--limit",
    multiple=True,
    metavar="NODE",
    shell_complete=node_patterns,
    help="Only this node, or these by a glob ('spark*') or the group nodes; may be given again.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1),
    default=RESTART_SECONDS,
    show_default=True,
    help="Seconds that a node may take.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--containers", is_flag=True, help="Restart nodes on which containers run; they end with it.")
@click.option(
    "--stop-units",
    "stop",
    is_flag=True,
    help="Stop the units that run on these nodes first, on all their nodes; start those with state: up at the end.",
)
def reboot(
    rack: Path,
    limit: tuple[str, ...],
    timeout: int,
    yes: bool,
    containers: bool,
    stop: bool,
) -> None:
    """Restart the nodes one after the other, in the order of their rank: wait for each, prove it, go on.

    The first one that does not come back, or is not as declared then, ends it; the others are not touched. A restart
    that brings new firmware may take a quarter of an hour. No other run may change the rack during the reboot. With
    a unit up it refuses, unless --stop-units is given; whether units are up is not judged after a restart.
    """
    found = load(rack)
    names = select_nodes(found, limit, "--limit")
    order, this_machine = restart_order(found, names)
    if this_machine:
        click.echo(
            f"{this_machine} is this machine: it is the last to restart, this command ends with it, and units that "
            f"were stopped stay down. When it is up again: sparkrack verify --limit {this_machine}"
        )
    if not yes:
        ask_before(f"Restart {', '.join(order)}, one after the other?", "-y restarts them without a question")
    screens = partial(show_progress, silent=False)
    stopped = stop_units(found, order, partial(stop_unit, rack, screens), click.echo, confirmed=stop)
    checks = verify_files(filter(found.keeps, CHECKED_ROLES))
    with screens() as screen:
        fault = reboot_nodes(
            found, order, checks, screen, timeout=timeout, containers=containers, this_machine=this_machine
        )
    if fault:
        for unit in stopped:
            click.echo(f"unit {unit} is down; `sparkrack serve start {unit}` starts it", err=True)
        next_step(["sparkrack", "verify"], rack=rack, limit=[fault.node])
        sys.exit(1)
    click.echo(f"{len(order)} of {len(order)} nodes restarted and proven")
    started = start_stopped(found, rack, stopped, screens, click.echo)
    next_step(["sparkrack", "status"], rack=rack)
    sys.exit(0 if started else 1)
