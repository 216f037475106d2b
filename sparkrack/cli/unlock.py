"""`sparkrack unlock`: end the lock of a dead run."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import load
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import rack_option
from sparkrack.engine.ssh_locking import end_lock


@click.command()
@click.argument("run")
@rack_option
def unlock(run: str, rack: Path) -> None:
    """End the lock of RUN, the ID that a refused run names. A restart of the first node ends it, too.

    \b
      sparkrack unlock 20260314T091500-3fa2
      sparkrack unlock unknown                when the lock file cannot be read

    Ask its holder first: two runs at the same time undo one another. Exit 0 when the rack is free now, 1 when another
    run holds it or the holder is unknown.
    """
    click.echo(end_lock(load(rack), run))
    next_step(["sparkrack", "plan"], rack=rack)
