"""`sparkrack init`: the first rack file, from what can be found."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from sparkrack.cli.discovery_command import discovery_options, given_options, print_list
from sparkrack.cli.next_step import next_step
from sparkrack.discovery.first_rack_file import write_first
from sparkrack.terminal.progress import ProgressDisplay, show_progress


@click.command()
@discovery_options
@click.option("--no-reader", is_flag=True, help="Declare no read-only user of the switch for verify.")
@click.option("--no-management", is_flag=True, help="Do not limit the services of the switch to your subnet.")
def init(no_reader: bool, no_management: bool, **given: Any) -> None:
    """Write the first rack.yaml: what cannot be discovered is asked, or left as a gap that is listed.

    \b
      sparkrack init --node spark1=10.77.0.11 --node spark2=10.77.0.12 --switch 10.77.0.2
      sparkrack init          on a terminal: asks, and looks for machines that are near

    A node that accepts the key reports its vendor and its ports; on a terminal, a password that is asked for once and
    not kept reads the nodes that refuse the key. A switch that accepts its user reports how its cages
    are split and which node is connected to which leg. Nothing is changed on them. An existing file is
    shown as a difference first.
    For a switch, the file declares a read-only user, whose password is generated into a file beside it, and limits the
    services of the switch to the subnet from which this machine reaches it.
    Exit 0: the file is ready. 2: it is written, and has gaps. 1: nothing was written.
    """
    options = given_options(**given)
    screen = ProgressDisplay(silent=True)
    made = write_first(
        options, screen, partial(show_progress, silent=False), reader=not no_reader, management=not no_management
    )
    print_list("not found", made.sheet.missing)
    print_list("not as found", made.sheet.unrepresentable)
    print_list("not ready", made.faults)
    if made.gaps:
        click.echo(f"{options.out} is not ready: fix these lines")
        next_step(["sparkrack", "check"], "when they are fixed", rack=options.out)
        sys.exit(2)
    click.echo(f"{options.out} is ready")
    next_step(["sparkrack", "up"], "from this file to a verified rack", rack=options.out)
