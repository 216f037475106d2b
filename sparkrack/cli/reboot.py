"""`sparkrack reboot --rolling`: restart nodes one after the other, each verified before the next one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from core.model import Rack, load
from core.model.running_units import describe_unit
from core.model.selection import SelectionError, select_nodes
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import RootShell, UnreachableError
from core.verify.outcomes import Outcome
from core.verify.runner import run_checks
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import node_patterns, rack_option
from sparkrack.cli.progress import ProgressDisplay, show_progress
from sparkrack.cli.serve_recreate import KEEPER_SECONDS
from sparkrack.cli.serve_run import UnitRun
from sparkrack.cli.verify import CHECKED_ROLES, files
from sparkrack.engine.recorded_run import recorded_run
from sparkrack.engine.ssh_locking import RackLock, hold_lock
from sparkrack.rebuild.workloads import CONTAINERS, parse_workload, query_workloads, running_units, unit_blockers

ANSWER_SECONDS = 30
"""Seconds for an answer of a node."""
POLL_SECONDS = 2.0
"""Seconds between two looks at a node that is away."""
UNIT_CHECKS = frozenset(
    (
        "test_each_unit_is_up_or_down_as_declared",
        "test_a_completion_has_the_known_answer",
        "test_each_rank_is_in_its_slice",
    )
)
"""The checks of role serving that a unit is up. No rank runs right after a boot: the unit was stopped before, or its
keeper holds it, and a reboot of all its nodes is what a unit after an unplanned end of a machine waits for.
"""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


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
    "--timeout", type=click.IntRange(1), default=1800, show_default=True, help="Seconds that a node may take."
)
@click.option("--containers", is_flag=True, help="Restart nodes on which containers run; they end with it.")
@click.option(
    "--stop-units",
    is_flag=True,
    help="Stop the units that run on these nodes first, on all their nodes; start those with wish: up at the end.",
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
    try:
        names = select_nodes(found, limit, "--limit")
    except SelectionError as wrong:
        raise click.ClickException(str(wrong)) from None
    stopped = _stop_units(found, rack, names, stop_units) if found.serving else ()
    fault: str | None = None
    with recorded_run(found, "reboot: Restart the node") as run, show_progress(silent=False) as screen:
        own = run.begin(f"restart of {', '.join(names)}")
        screen.phase("take the lock of the rack")
        with open_shells(found, names, ANSWER_SECONDS) as shells, hold_lock(found, own, screen.warn) as held:
            for done, name in enumerate(names):
                screen.phase(f"restart node {done + 1} of {len(names)}", [name])
                fault = _one(found, name, shells[name], timeout, containers, screen, partial(_check, held, name))
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
    down = [unit for unit in stopped if found.serving and found.serving.units[unit].wish == "down"]
    for unit in down:
        click.echo(f"unit {unit} stays down, as rack.yaml declares it")
    started = [_start_unit(rack, unit) for unit in stopped if unit not in down]
    next_step(["sparkrack", "status"], rack=rack)
    sys.exit(0 if all(started) else 1)


def _stop_units(rack: Rack, file: Path, names: Sequence[str], confirmed: bool) -> tuple[str, ...]:
    """Stop the units that run on these nodes, and return them. Raises ClickException when that is not confirmed, or a
    rank is not confirmed as stopped.
    """
    units = running_units(query_workloads(rack, names, CONTAINERS))
    if lines := unit_blockers(rack, units, stops=confirmed):
        raise click.ClickException("\n".join((*lines, "nothing was restarted")))
    for unit in units:
        click.echo(f"{describe_unit(rack, unit)} is stopped on all its nodes for the restart")
        work = UnitRun(file, unit)
        if not work.attempt(partial(work.locked, "stop", work.stop)):
            raise click.ClickException(f"unit {unit} is not confirmed as stopped; nothing was restarted")
    return tuple(units)


def _start_unit(file: Path, name: str) -> bool:
    """Start a unit, and return whether a completion has proven it."""
    work = UnitRun(file, name)
    return work.attempt(partial(work.locked, "start", work.start(anyway=False, timeout=None, patience=KEEPER_SECONDS)))


def _check(held: RackLock, name: str) -> None:
    """Make sure of the lock before a node restarts; with the head node it goes. Raises ClickException."""
    held.check()
    if name == held.head:
        held.restarts()


def _one(
    rack: Rack,
    name: str,
    shell: RootShell,
    timeout: int,
    containers: bool,
    screen: ProgressDisplay,
    sure: Callable[[], None],
) -> str | None:
    """Restart one node and prove it; what is wrong, or None. `sure` raises when it must not be restarted now."""
    screen.step(name, "read its containers")
    try:
        before, asked = shell.run(BOOT_ID).stdout, shell.run(CONTAINERS)
        running, units = parse_workload(str(asked.stdout))
    except UnreachableError as gone:
        return f"cannot be asked: {gone.why}"
    except ValueError as unknown:
        return f"whether containers run is unknown: {unknown}"
    if asked.rc and not containers:
        return "perhaps containers run; stop them, or pass --containers"
    if units:
        return "; ".join(unit_blockers(rack, {unit: [name] for unit in units}, stops=False))
    if running and not containers:
        return f"{running} containers run; stop them, or pass --containers"
    sure()
    screen.say(f"{name}: restarts")
    screen.step(name, "end its services")
    begin = time.monotonic()
    refused = _restart(shell)
    shell.close()
    if refused:
        return refused
    screen.step(name, f"wait until it answers again, at most {timeout} s")
    while _boot_id(shell) in (None, before):
        if time.monotonic() - begin > timeout:
            return f"did not come back within {timeout} s; look at its console"
        time.sleep(POLL_SECONDS)
    shell.close()
    screen.say(f"{name}: is back after {time.monotonic() - begin:.0f} s")
    checks = files(filter(rack.keeps, CHECKED_ROLES))
    found = run_checks(rack, checks, [name], None, progress=screen)
    outcomes = [one for one in found if not one.skipped and not (one.role == "serving" and _name(one) in UNIT_CHECKS)]
    faults = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in faults:
        screen.say(f"{name}: failed {outcome.role}: {outcome.why}")
    if faults or not outcomes:
        return "is back, and is not as declared" if faults else "is back, and nothing could be proven"
    screen.say(f"{name}: {len(outcomes)} checks passed")
    return None


def _name(outcome: Outcome) -> str:
    """Return the name of the check, from the ID that pytest gives it."""
    return outcome.check.rpartition("::")[2].partition("[")[0]


def _restart(shell: RootShell) -> str | None:
    """Tell the node to restart; why it refuses, or None."""
    try:
        done = shell.run("systemctl reboot")
    except UnreachableError:
        return None  # it was faster than its answer
    return None if done.rc == 0 else f"does not restart: {done.stderr.strip() or f'exit {done.rc}'}"


def _boot_id(shell: RootShell) -> str | None:
    """Return the ID of the node's present boot; None while it does not answer."""
    try:
        return str(shell.run(BOOT_ID).stdout) or None
    except UnreachableError:
        return None
