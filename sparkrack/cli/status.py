"""`sparkrack status`: how the rack does right now, on one screen. Nothing is changed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from core.model import load
from core.model.selection import select
from core.util.paths import state_folder
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import exclude_option, json_option, limit_option, quiet_option, rack_option
from sparkrack.status.build import build_status
from sparkrack.status.collect_answers import NoAnswer, collect_answers
from sparkrack.status.first_contact import first_contact
from sparkrack.status.render import WIDTH, show
from sparkrack.terminal.progress import show_progress


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

    All are asked at the same time, once, and a machine that does not answer within 12 s is shown as unknown. This is
    a glance: `sparkrack drift` compares everything with rack.yaml, `sparkrack verify` checks that it works.
    Exit 0 when all that is shown is as declared, 2 when something is not, 1 when something is unknown.
    """
    found = load(rack)
    machines = select(found, limit, exclude).machines
    made = datetime.now(UTC)
    with show_progress(silent=as_json or quiet) as progress:
        answers = collect_answers(found, machines, progress)
    now = build_status(found, machines, answers, state_folder(found.rack), made)
    if as_json:
        click.echo(now.json_text(), nl=False)
    else:
        width = None if sys.stdout.isatty() else WIDTH
        show(now, Console(highlight=False, markup=False, width=width), quiet=quiet)
    if words := first_contact(found, answers):
        next_step(["sparkrack", *words], "for the first contact", rack=rack, silent=as_json or quiet)
    elif all(isinstance(answer, NoAnswer) for answer in answers.values()):
        silent = as_json or quiet
        next_step(
            ["sparkrack", "status"], "when a host answers", rack=rack, limit=limit, exclude=exclude, silent=silent
        )
    else:
        next_step(["sparkrack", "drift"], rack=rack, limit=limit, exclude=exclude, silent=as_json or quiet)
    sys.exit(now.code)
