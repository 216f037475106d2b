"""`sparkrack reboot --rolling`: restart nodes one after the other, each verified before the next one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from core.model import Rack, load
from core.model.selection import select_nodes
from core.ssh.node_shells import open_shells
from core.util.command_error import CommandError
from serving.options import served_units
from serving.running_engines import describe_unit
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import node_patterns, rack_option
from sparkrack.cli.progress import show_progress
from sparkrack.cli.serve_recreate import COORDINATOR_SECONDS
from sparkrack.cli.serve_run import UnitRun
from sparkrack.cli.verify import CHECKED_ROLES, files
from sparkrack.engine.recorded_run import recorded_run
from sparkrack.engine.ssh_locking import RackLock, hold_lock
from sparkrack.rebuild.restart import RESTART_SECONDS, NodeRestart
from sparkrack.rebuild.workloads import CONTAINERS, query_workloads, running_units, unit_blockers
from sparkrack.watch.silences import silenced, silences_of_nodes

ANSWER_SECONDS = 30
"""Seconds for an answer of a node."""
PROVE_SECONDS = 900
"""Seconds for which alerts of a node that is back are silent at most, until it is proven."""


@click.command()
@rack_option
@click.option("--rolling", is_flag=True, required=True, help="One node at a time; there is no other way.")
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
@click.option("--containers", is_flag=True, help="Restart nodes on which containers run; they end with it.")
@click.option(
    "--stop-units",
    is_flag=True,
    help="Stop the units that run on these nodes first, on all their nodes; start those with state: up at the end.",
)
def reboot(
    rack: Path,
    rolling: bool,  # noqa: ARG001
    limit: tuple[str, ...],
    timeout: int,
    containers: bool,
    stop_units: bool,
) -> None:
    """Restart the nodes in the order of their rank: wait for each, prove it, go on.

    The first one that does not come back, or is not as declared then, ends it; the others are not touched. A restart
    that brings new firmware may take a quarter of an hour. No other run may change the rack during the reboot. With
    a unit up it refuses, unless --stop-units is given; whether units are up is not judged after a restart.
    """
    found = load(rack)
    names = select_nodes(found, limit, "--limit")
    stopped = _stop_units(found, rack, names, stop_units) if served_units(found) else ()
    fault, checks = None, files(filter(found.keeps, CHECKED_ROLES))
    with recorded_run(found, "reboot: Restart the node") as run, show_progress(silent=False) as screen:
        own = run.begin(f"restart of {', '.join(names)}")
        screen.phase("take the lock of the rack")
        with open_shells(found, names, ANSWER_SECONDS) as shells, hold_lock(found, own, screen.warn) as held:
            for done, name in enumerate(names):
                screen.phase(f"restart node {done + 1} of {len(names)}", [name])
                one = NodeRestart(found, name, shells[name], checks, screen, screen.say)
                silences = silences_of_nodes(found, [name])
                with silenced(found, own.id, f"restart of {name}", silences, timeout + PROVE_SECONDS, screen.warn):
                    fault = one.run(timeout, partial(_check, held, name), containers=containers)
                if fault:
                    run.fail(name, fault)
                    screen.warn(f"{name}: {fault}")
                    left = ", ".join(names[done + 1 :]) or "none"
                    screen.say(f"{done} of {len(names)} nodes restarted and proven; not touched: {left}")
                    break
                if name == held.head:
                    screen.phase("take the lock of the rack again")
                    held.take()
    if fault:
        for unit in stopped:
            click.echo(f"unit {unit} is down; `sparkrack serve start {unit}` starts it", err=True)
        next_step(["sparkrack", "verify"], rack=rack, limit=[name])
        sys.exit(1)
    click.echo(f"{len(names)} of {len(names)} nodes restarted and proven")
    down = [unit for unit in stopped if served_units(found)[unit].state == "down"]
    for unit in down:
        click.echo(f"unit {unit} stays down, as rack.yaml declares it")
    started = [_start_unit(rack, unit) for unit in stopped if unit not in down]
    next_step(["sparkrack", "status"], rack=rack)
    sys.exit(0 if all(started) else 1)


def _stop_units(rack: Rack, file: Path, names: Sequence[str], confirmed: bool) -> tuple[str, ...]:
    """Stop the units that run on these nodes, and return them. Raises CommandError when that is not confirmed, or a
    rank is not confirmed as stopped.
    """
    units = running_units(query_workloads(rack, names, CONTAINERS))
    if lines := unit_blockers(rack, units, stops=confirmed):
        raise CommandError("\n".join((*lines, "nothing was restarted")))
    for unit in units:
        click.echo(f"{describe_unit(rack, unit)} is stopped on all its nodes for the restart")
        work = UnitRun(file, unit)
        if not work.attempt(partial(work.locked, "stop", work.stop)):
            raise CommandError(f"unit {unit} is not confirmed as stopped; nothing was restarted")
    return tuple(units)


def _start_unit(file: Path, name: str) -> bool:
    """Start a unit, and return whether a completion has proven it."""
    work = UnitRun(file, name)
    return work.attempt(
        partial(work.locked, "start", work.start(anyway=False, timeout=None, patience=COORDINATOR_SECONDS))
    )


def _check(held: RackLock, name: str) -> None:
    """Make sure of the lock before a node restarts; with the head node it goes. Raises CommandError."""
    held.check()
    if name == held.head:
        held.restarts()
