"""`sparkrack plan`: what a run would change, and what cannot be told. Nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sparkrack.cli.options import json_option, quiet_option, selection_options
from sparkrack.cli.rackoption import rack_option


@click.command()
@rack_option
@selection_options
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Keep the plan, for `sparkrack apply`.")
@json_option
@quiet_option
def plan(
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what a run would change, machine by machine: old -> new, files as diffs, restarts with their reason.

    \b
      sparkrack plan --limit spark2 --only fabric
      sparkrack plan --out today.plan && sparkrack apply today.plan

    Every operation is evaluated to its end and nothing is sent that changes anything. What a step that is still to be
    done will make visible (an image list before docker runs) cannot be told and says so.
    Exit 0 when nothing would change, 2 when something would, 1 when a machine is unknown, unreachable or refused.
    """
    from sparkrack.cli.session import evaluated, selected
    from sparkrack.cli.show import show_plan
    from sparkrack.run.files import keep

    found, selection = selected(rack, limit, exclude, only)
    with evaluated(found, rack, selection) as run:
        made = run.plan
    if out:
        try:
            keep(out, made.model_dump_json(by_alias=True, indent=1) + "\n")
        except OSError as fault:
            raise click.ClickException(f"--out {out}: the plan cannot be kept: {fault.strerror}") from None
    if as_json:
        click.echo(made.model_dump_json(by_alias=True, indent=1))
    else:
        show_plan(made, quiet=quiet)
    sys.exit(made.code)
