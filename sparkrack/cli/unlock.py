"""`sparkrack unlock`: end the lock of a dead run."""

from __future__ import annotations

from pathlib import Path

import click

from core.model import load
from core.model.errors import printable_line
from core.ops import run_lock
from core.ssh.node_shells import open_shells
from core.ssh.root_shell import UnreachableError
from core.util.command_error import CommandError
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import rack_option
from sparkrack.engine.ssh_locking import ANSWER_SECONDS, run_script


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
    found = load(rack)
    head = next(iter(found.nodes))
    with open_shells(found, [head], ANSWER_SECONDS) as shells:
        try:
            code, text = run_script(shells[head], run_lock.read_script())
            other = run_lock.describe_holder(text)
            if code == 0 and other.id == run:
                code, text = run_script(shells[head], run_lock.release(run_lock.content(text)))
            elif code == 0:
                code = run_lock.HELD
        except UnreachableError as fault:
            raise CommandError(str(fault)) from None
    if code == run_lock.GONE:
        click.echo("no run holds the rack")
    elif code == run_lock.HELD:
        raise CommandError(f"{run_lock.describe_holder(text)} holds the rack, not {run}")
    elif code:
        raise CommandError(f"{head}: {printable_line(text) or f'exit {code}'}")
    else:
        click.echo(f"ended the lock of {other}")
    next_step(["sparkrack", "plan"], rack=rack)
