"""`sparkrack unlock`: end the lock of a run that is gone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet.errors import one_line


@click.command()
@click.argument("run")
@rack_option
def unlock(run: str, rack: Path) -> None:
    """End the lock of RUN, the ID that a refused run names. A restart of the first node ends it, too.

    \b
      sparkrack unlock 20260314T091500-3fa2
      sparkrack unlock unknown                when the lock file cannot be read

    Ask whoever holds it first: two runs at the same time undo one another. Exit 0 when nobody holds the rack now, 1
    when somebody else does or it could not be told.
    """
    from sparkrack.cli.holding import SECONDS, said
    from sparkrack.fleet import load
    from sparkrack.ops import lock
    from sparkrack.proof.machines import ssh_config
    from sparkrack.proof.shell import RootShell, UnreachableError

    found = load(rack)
    head = next(iter(found.nodes))
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(found), errors="surrogateescape")
        shell = RootShell(head, config, SECONDS)
        try:
            code, text = said(shell, lock.look())
            other = lock.told(text)
            if code == 0 and other.id == run:
                code, text = said(shell, lock.release(lock.content(text)))
            elif code == 0:
                code = lock.HELD
        except UnreachableError as fault:
            raise click.ClickException(str(fault)) from None
        finally:
            shell.close()
    if code == lock.GONE:
        click.echo("no run holds the rack")
    elif code == lock.HELD:
        raise click.ClickException(f"{lock.told(text)} holds the rack, not {run}")
    elif code:
        raise click.ClickException(f"{head}: {one_line(text) or f'exit {code}'}")
    else:
        click.echo(f"ended the lock of {other}")
