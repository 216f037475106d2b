"""`sparkrack init`: the first rack file, from what can be found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sparkrack.cli.discovering import Discovery
from sparkrack.cli.wishes import judged as wished
from sparkrack.cli.wishes import wish_options
from sparkrack.cli.writing import judged, told, written
from sparkrack.discovery.describe import describe
from sparkrack.discovery.page import text
from sparkrack.fleet.load import DEFAULT


@click.command()
@wish_options
def init(**options: Any) -> None:
    """Write the first rack.yaml: what can be found is found, the rest is asked or left as a gap that is told.

    \b
      sparkrack init --node spark1=10.77.0.11 --node spark2=10.77.0.12 --switch 10.77.0.2
      sparkrack init          on a terminal: asks, and looks for machines that are near

    A node that lets the key in tells its vendor and its ports; a switch that lets its user in tells how its cages are
    split and which node hangs where. Nothing is changed on them. A file that is there is shown as a difference first.
    Exit 0: the file is ready. 2: it is written, and has gaps. 1: nothing was written.
    """
    wishes = wished(**options)
    discovery = Discovery(wishes, strict=False)
    sheet = describe(discovery.run(), live=False)
    sheet.heads[()] = ["Written by sparkrack init; yours to edit. sparkrack check judges it without connecting."]
    _, faults = judged(text(sheet), wishes.out)
    written(sheet, wishes.out, discovery.pins, discovery.file, wishes.ssh_port, yes=wishes.yes)
    told("not found", sheet.missing)
    told("not as found", sheet.beyond)
    told("not ready", faults)
    if faults or sheet.missing:
        click.echo(f"{wishes.out} is not ready: mend these lines, then sparkrack check")
        sys.exit(2)
    click.echo(f"{wishes.out} is ready. Next: {_rack(wishes.out)}sparkrack bootstrap, or sparkrack plan if all log in")


def _rack(out: Path) -> str:
    return "" if out == DEFAULT else f"RACK={out} "
