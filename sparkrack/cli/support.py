"""`sparkrack support`: one archive without secrets, for someone who looks for a fault and has no access to the rack."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import load
from core.model.errors import printable_line
from core.model.selection import SelectionError, select
from core.util.command_error import CommandError
from sparkrack.cli.options import patterns, rack_option
from sparkrack.support.collect import write_support
from sparkrack.terminal.progress import show_progress


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=patterns)
@rack_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="FOLDER",
    help="The folder that gets the archive.  [default: the current folder]",
)
@click.option(
    "--anonymize",
    is_flag=True,
    help="Replace serial numbers, MAC addresses and addresses outside of private networks, the same by the same.",
)
def support(names: tuple[str, ...], rack: Path, out: Path, anonymize: bool) -> None:
    """Write an archive without secrets about nodes and switches: NAME is a host, a glob ('spark*') or a group (nodes,
    switches); all hosts without NAME.

    \b
      sparkrack support
      sparkrack support spark2 switches --out /tmp --anonymize

    sparkrack-support-RACK-DATE.tar.gz has the rack file without its secrets, the last runs with their debug logs,
    status and drift, and of each host its versions, logs, links and the hashes of our files. Passwords, tokens and
    private keys are removed; read it before you send it. Nothing is changed, but a switch writes its export to a file,
    which is removed. Exit 0 when every host answered; 1 when one did not: the archive has the rest.
    """
    found = load(rack)
    try:
        machines = select(found, names).machines
    except SelectionError as fault:
        raise CommandError(str(fault).removeprefix("--limit ")) from None
    with show_progress(silent=False) as progress:
        path, manifest = write_support(found, rack, machines, out, progress, anonymize=anonymize)
    missing = [host for host in manifest.hosts if not host.answered]
    for host in missing:
        click.echo(printable_line(f"{host.name}: {host.reason}"), err=True)
    click.echo(
        f"{len(manifest.hosts) - len(missing)} of {len(manifest.hosts)} hosts answered; read it before you send it"
    )
    click.echo(str(path))
    sys.exit(1 if missing else 0)
