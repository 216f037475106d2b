"""`sparkrack reboot --rolling`: restart nodes one after the other, each proven before the next one goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sparkrack.cli.holding import holding
from sparkrack.cli.machines import nodes
from sparkrack.cli.rackoption import rack_option
from sparkrack.cli.verify import PARTS, files
from sparkrack.fleet import Rack, load
from sparkrack.proof.machines import ssh_config
from sparkrack.proof.run import prove
from sparkrack.proof.shell import RootShell, UnreachableError
from sparkrack.rebuild.service import CONTAINERS

PAUSE = 2.0
"""Seconds between two looks at a node that is away."""
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


@click.command()
@rack_option
@click.option("--rolling", is_flag=True, required=True, help="One node at a time; there is no other way.")
@click.option(
    "--limit", multiple=True, metavar="NODE", shell_complete=nodes, help="Only this node; may be given again."
)
@click.option(
    "--timeout", type=click.IntRange(1), default=1800, show_default=True, help="Seconds that a node may take."
)
@click.option("--containers", is_flag=True, help="Restart nodes on which containers run; they end with it.")
def reboot(rack: Path, rolling: bool, limit: tuple[str, ...], timeout: int, containers: bool) -> None:  # noqa: ARG001
    """Restart the nodes in the order of their rank: wait for each, prove it, go on.

    The first one that does not come back, or is not as declared then, ends it; the others are not touched. A restart
    that brings new firmware may take a quarter of an hour. No other run may change the rack meanwhile.
    """
    found = load(rack)
    unknown = [name for name in limit if name not in found.nodes]
    if unknown:
        raise click.ClickException(f"--limit {unknown[0]}: not a node; there are {', '.join(found.nodes)}")
    names = [name for name in found.nodes if not limit or name in limit]
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(found), errors="surrogateescape")
        with holding(found, config, f"restart of {', '.join(names)}") as held:
            for done, name in enumerate(names):
                held.check()
                if name == held.head:
                    held.restarts()
                fault = _one(found, name, RootShell(name, config, 30), timeout, containers, click.echo)
                if fault:
                    click.echo(f"{name}: {fault}", err=True)
                    left = ", ".join(names[done + 1 :]) or "none"
                    click.echo(f"{done} of {len(names)} nodes restarted and proven; not touched: {left}")
                    sys.exit(1)
                if name == held.head:
                    held.take()
    click.echo(f"{len(names)} of {len(names)} nodes restarted and proven")


def _one(
    rack: Rack, name: str, shell: RootShell, timeout: int, containers: bool, say: Callable[[str], None]
) -> str | None:
    """Restart one node and prove it; what is wrong, or None."""
    try:
        before, running = shell.run(BOOT_ID).stdout, shell.run(CONTAINERS).stdout.strip()
    except UnreachableError as gone:
        return f"cannot be asked: {gone.why}"
    if not containers and running != "0":
        return f"{running or 'perhaps'} containers run; stop them, or say --containers"
    say(f"{name}: restarts")
    begin = time.monotonic()
    refused = _restart(shell)
    shell.close()
    if refused:
        return refused
    while _boot_id(shell) in (None, before):
        if time.monotonic() - begin > timeout:
            return f"did not come back within {timeout} s; look at its console"
        time.sleep(PAUSE)
    shell.close()
    say(f"{name}: is back after {time.monotonic() - begin:.0f} s")
    outcomes = [
        outcome for outcome in prove(rack, files(filter(rack.keeps, PARTS)), [name], None) if not outcome.left_out
    ]
    faults = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in faults:
        say(f"{name}: failed {outcome.role}: {outcome.why}")
    if faults or not outcomes:
        return "is back, and is not as declared" if faults else "is back, and nothing could be proven"
    say(f"{name}: {len(outcomes)} checks passed")
    return None


def _restart(shell: RootShell) -> str | None:
    """Tell the node to restart; why it refuses, or None."""
    try:
        done = shell.run("systemctl reboot")
    except UnreachableError:
        return None  # it was faster than its answer
    return None if done.rc == 0 else f"does not restart: {done.stderr.strip() or f'exit {done.rc}'}"


def _boot_id(shell: RootShell) -> str | None:
    """What names the node's present boot; None while it cannot be asked."""
    try:
        return str(shell.run(BOOT_ID).stdout) or None
    except UnreachableError:
        return None
