"""`sparkrack unlock`: end the lock of a run that is gone."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from sparkrack.cli.rackoption import rack_option


@click.command()
@click.argument("run")
@rack_option
def unlock(run: str, rack: Path) -> None:
    """End the lock of RUN, the ID that a refused run names. A restart of the first node ends it, too.

    Ask whoever holds it first: two runs at the same time undo one another. Exit 0 when nobody holds the rack now, 1
    when somebody else does or it could not be told.
    """
    from sparkrack.fleet import load
    from sparkrack.ops import lock
    from sparkrack.proof.machines import ssh_config
    from sparkrack.proof.shell import RootShell, UnreachableError

    found = load(rack)
    head = next(iter(found.nodes))
    with TemporaryDirectory(prefix="sparkrack-") as folder:
        config = Path(folder) / "ssh_config"
        config.write_text(ssh_config(found))
        shell = RootShell(head, config, 30)
        try:
            before = shell.run(f"cat {lock.PATH} 2>/dev/null || [ ! -e {lock.PATH} ]")
            done = shell.run(lock.release(run))
        except UnreachableError as fault:
            raise click.ClickException(str(fault)) from None
        finally:
            shell.close()
    if done.rc == lock.HELD:
        raise click.ClickException(f"{lock.holder(str(done.stdout))} holds the rack, not {run}")
    if done.rc or before.rc:
        raise click.ClickException(f"{head}: {done.stderr.strip() or before.stderr.strip() or f'exit {done.rc}'}")
    if before.stdout.strip():
        click.echo(f"ended the lock of {lock.holder(str(before.stdout))}")
    else:
        click.echo("no run holds the rack")
