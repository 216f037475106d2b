"""`sparkrack check`: is the file good? Nothing is connected to."""

from __future__ import annotations

from pathlib import Path

import click

from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import load


@click.command()
@rack_option
def check(rack: Path) -> None:
    """Judge rack.yaml without connecting to anything: exit 0, or 1 and one line for each fault."""
    found = load(rack)
    legs = sum(len(found.cabling.legs(name)) for name in found.switches)
    click.echo(
        f"{rack}: {found.rack}: {len(found.nodes)} nodes, {len(found.switches)} switches, "
        f"{len(found.cabling.cables)} cables ({legs} to a switch), {found.topology}"
    )
