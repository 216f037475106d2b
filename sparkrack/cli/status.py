"""`sparkrack status`: how the rack does right now, on one screen. Nothing is changed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from sparkrack.cli.options import exclude_option, json_option, limit_option, quiet_option
from sparkrack.cli.rackoption import rack_option


@click.command()
@rack_option
@limit_option
@exclude_option
@json_option
@quiet_option
def status(rack: Path, limit: tuple[str, ...], exclude: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Show every node and switch in a line: reachable, versions, memory, links, images; and what happened before.

    \b
      sparkrack status
      sparkrack status --quiet || echo look at it
      sparkrack status --json | jq '.nodes[] | {name, kernel}'

    All are asked at the same time, once, and whoever does not answer within 12 s is shown as unknown. This is a glance:
    `sparkrack drift` compares everything with rack.yaml, `sparkrack verify` proves that it works.
    Exit 0 when all that is shown is as declared, 2 when something is not, 1 when something could not be told.
    """
    from rich.console import Console

    from sparkrack.fleet import load
    from sparkrack.fleet.places import state_folder
    from sparkrack.fleet.selection import SelectionError, select
    from sparkrack.status.ask import ask
    from sparkrack.status.collect import collect
    from sparkrack.status.screen import WIDTH, show

    found = load(rack)
    try:
        machines = select(found, limit, exclude).machines
    except SelectionError as fault:
        raise click.ClickException(str(fault)) from None
    made = datetime.now(UTC)
    now = collect(found, machines, ask(found, machines), state_folder(found.rack), made)
    if as_json:
        click.echo(now.json_text(), nl=False)
    else:
        width = None if sys.stdout.isatty() else WIDTH
        show(now, Console(highlight=False, markup=False, width=width), quiet=quiet)
    sys.exit(now.code)
