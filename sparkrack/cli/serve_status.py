"""`sparkrack serve status`: the state of the units, as their coordinators report it. Nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from core.model import load
from core.util.command_error import CommandError
from serving.options import select_unit, served_units
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import json_option, quiet_option, rack_option, units
from sparkrack.serving.coordinator import ask_coordinators
from sparkrack.serving.unit_status import build_serve_status, next_command
from sparkrack.status.render_serve_status import show_serve_status
from sparkrack.terminal.progress import show_progress


@click.command()
@click.argument("unit", required=False, metavar="[UNIT]", shell_complete=units)
@rack_option
@json_option
@quiet_option
def status(unit: str | None, rack: Path, as_json: bool, quiet: bool) -> None:
    """Show the state of each unit of rack.yaml, or of UNIT, as its coordinator reports it.

    \b
      sparkrack serve status
      sparkrack serve status qwen --json | jq -r '.units[0].state'

    A unit with `state: up` is as desired while it is ready or busy; one with `state: down` when every rank is stopped.
    A unit whose head or coordinator does not answer is unknown, never down. Restarts are those that count towards the
    budget. Files of a unit that rack.yaml does not declare, such as its previous version, are named; the exit code is
    about `state`. Exit 0 when all are as desired, 2 when one is not, 1 when one is unknown.
    """
    found = load(rack)
    if unit is None and not served_units(found):
        raise CommandError(f"{found.source} has no serving section")
    chosen = [select_unit(found, unit)] if unit else list(served_units(found).values())
    with show_progress(silent=as_json or quiet) as progress:
        answers = ask_coordinators(found, chosen, progress)
    now = build_serve_status(found, chosen, answers)
    if as_json:
        click.echo(now.model_dump_json(by_alias=True, indent=1))
    else:
        show_serve_status(now, whole=unit is not None, quiet=quiet)
    next_step(["sparkrack", *next_command(now)], rack=rack, silent=as_json or quiet)
    sys.exit(now.code)
