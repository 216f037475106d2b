"""`sparkrack check`: is the file good? Nothing is connected to."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from core.model.errors import counted
from sparkrack.check.check_rack_file import check_rack_file
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import json_option, quiet_option, rack_option

_TOPOLOGIES = {
    "direct": "node to node, in pairs",
    "ring": "node to node, in a ring",
    "switch": "through a switch",
}


@click.command()
@rack_option
@json_option
@quiet_option
def check(rack: Path, as_json: bool, quiet: bool) -> None:
    """Judge rack.yaml without connecting to anything: exit 0, or 1 and one line for each fault.

    What is not written and applies by default is shown in one line, with where it comes from.
    A secret's file that does not exist is a warning: `sparkrack plan` refuses if a run needs it. So is a key that
    does not exist, a driver that no key holds, what cannot be
    known of a unit of `serving` before its model is recorded, a fit that is accepted by hand, what leaves the nodes
    unencrypted, alerts without a heartbeat, and what is known against the release of a switch
    (docs/reference/advisories.md).

    \b
      sparkrack check --rack lab.yaml
    """
    checked = check_rack_file(rack)
    found = checked.found
    if checked.error and not as_json:
        raise checked.error
    if as_json:
        click.echo(found.model_dump_json(by_alias=True, indent=1))
    elif not quiet:
        click.echo(
            f"{rack}: OK: {found.rack} has {counted(found.nodes, 'node')}, "
            f"{counted(found.switches, 'switch', 'switches')} and {counted(found.cables, 'cable')} "
            f"({found.legs} to a switch), topology: {_TOPOLOGIES[found.topology or 'direct']}"
        )
        if found.defaults:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
            line = f"not written: {', '.join(found.defaults)}"
            click.echo(click.wrap_text(line, width, subsequent_indent="  "))
    if not as_json:
        for line in checked.warnings:
            click.echo(f"warning: {line}", err=True)
    if checked.rack:
        verb, purpose = ("up", "from this file to a verified rack") if checked.new else ("plan", "")
        next_step(["sparkrack", verb], purpose, rack=rack, silent=as_json or quiet)
    sys.exit(0 if found.good else 1)
