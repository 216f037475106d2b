"""`sparkrack drill`: end a node's boot on purpose, and prove that the black box sees it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import load
from core.util.command_error import CommandError
from sparkrack.autopsy.drill import EFFECTS
from sparkrack.autopsy.drill_run import run_drill
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import nodes, rack_option
from sparkrack.status.drills import DrillLevel
from sparkrack.terminal.progress import show_progress, warn
from sparkrack.watch.metrics_delivery import deliver_drills


@click.command()
@click.argument("node", metavar="NODE", shell_complete=nodes)
@rack_option
@click.option(
    "--level",
    type=click.Choice([str(level) for level in DrillLevel]),
    required=True,
    help="What happens to the node.",
)
@click.option("--yes-really", "confirmed", metavar="NODE", help="Confirm that this node may end now; not for mark.")
@click.option(
    "--timeout", type=click.IntRange(1), default=1800, show_default=True, help="Seconds that the node may take."
)
def drill(node: str, rack: Path, level: str, confirmed: str | None, timeout: int) -> None:
    """End the boot of NODE on purpose, wait for the next one, and let `sparkrack autopsy` judge the end.

    \b
      mark    a line to the kernel log and the journal, and where it arrives; nothing ends
      freeze  systemd stops: the watchdog has to reset the node
      panic   the kernel panics: its record has to be found
      reset   a restart without a shutdown: it has to be seen as such

    It refuses while a container or a unit runs on the node, or another run holds the rack. The result is stored on this
    machine, where `sparkrack status` has its age, and its metrics on the server of the section `watch`.
    Exit 0 when the chain worked, 2 when it did not, 1 when it was refused or failed: the output says what was done.
    """
    found = load(rack)
    if node not in found.nodes:
        raise CommandError(f"{node}: not a node; there are {', '.join(found.nodes)}")
    kind = DrillLevel(level)
    if kind is not DrillLevel.MARK and confirmed != node:
        what = f"--level {kind} on {node} {EFFECTS[kind]}"
        raise CommandError(f"{what}; pass --yes-really {node} to do it. Nothing was done")
    with show_progress(silent=False) as screen:
        result, unkept = run_drill(found, node, kind, timeout, screen)
    click.echo(f"{node}: drill {level} {'passed' if result.passed else 'failed'}: {result.reason}")
    if unkept:
        raise CommandError(f"the result of the drill could not be kept: {unkept}")
    deliver_drills(found, [result], warn)
    then = ["status"] if kind is DrillLevel.MARK or result.verdict is None else ["autopsy", node]
    next_step(["sparkrack", *then], rack=rack)
    sys.exit(0 if result.passed else 2)
