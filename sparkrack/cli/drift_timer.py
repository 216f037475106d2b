"""`sparkrack drift timer`: look for drift regularly."""

from __future__ import annotations

import getpass
import shlex
import sys
from pathlib import Path

import click

from core.model import load
from sparkrack.cli.next_step import next_step, print_next
from sparkrack.cli.options import rack_option
from sparkrack.drift.history import span
from sparkrack.drift.systemd_timer import SystemdTimer, state_folder_of, units, write_units


def _check_prom_file(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    if path and path.suffix != ".prom":
        raise click.BadParameter("node_exporter reads only files that end in .prom")
    return path


prom_option = click.option(
    "--prom",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_check_prom_file,
    help="Write metrics too, for the textfile collector of node_exporter; a file that ends in .prom.",
)


def _check_interval(_context: click.Context, _parameter: click.Parameter, text: str) -> str:

    try:
        often = span(text)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from None
    if not often:
        raise click.BadParameter("once a minute is the most")
    return text


@click.command()
@rack_option
@click.option("--every", default="1h", show_default=True, callback=_check_interval, help="How often: 30m, 1h, 1d.")
@prom_option
@click.option("--user", default=getpass.getuser, show_default="you", help="Who looks; may log in to the nodes.")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Write the units here.")
def timer(rack: Path, every: str, prom: Path | None, user: str, into: Path | None) -> None:
    """Print the systemd service and timer that look for drift, or write them into a folder. Nothing is started.

    \b
      sparkrack drift timer --every 30m
      sparkrack drift timer --into units && sudo install -m 0644 units/* /etc/systemd/system

    The service runs as an ordinary user that needs a key without passphrase. Drift does not fail it, an error does.
    """
    about = SystemdTimer(
        rack=load(rack).rack,
        program=Path(sys.executable).with_name("sparkrack"),
        file=rack.absolute(),
        user=user,
        every=every,
        state=state_folder_of(user),
        prom=prom.absolute() if prom else None,
    )
    made = units(about)
    if sys.platform != "linux":
        click.echo(f"systemd, which starts these, runs on Linux only, and this is {sys.platform}", err=True)
    if not into:
        click.echo("\n".join(f"# /etc/systemd/system/{name}\n{text}" for name, text in made.items()), nl=False)
        next_step(["sparkrack", "drift", "timer", "--every", every, "--into", "."], "to write them", rack=rack)
        return
    for path in write_units(into, made):
        click.echo(f"{path}: written")
    files = " ".join(shlex.quote(str(into / name)) for name in made)
    unit = next(name for name in made if name.endswith(".timer"))
    print_next(f"sudo install -m 0644 {files} /etc/systemd/system && sudo systemctl enable --now {shlex.quote(unit)}")
