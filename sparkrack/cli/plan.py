"""`sparkrack plan`: what a run would change, and what is unknown. Nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from sparkrack.cli.next_step import after_plan, next_step
from sparkrack.cli.options import (
    UNASKED_HELP,
    json_option,
    no_nodes_option,
    quiet_option,
    rack_option,
    selection_options,
)
from sparkrack.engine.render_plan import show_plan
from sparkrack.terminal.progress import quiet_is_silent, show_progress
from sparkrack.terminal.startup_notice import loading


@click.command()
@rack_option
@selection_options
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Keep the plan, for `sparkrack apply`.")
@click.option("--full", is_flag=True, help="Show each machine by itself, and new files whole.")
@no_nodes_option(UNASKED_HELP)
@json_option
@quiet_option
def plan(
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    out: Path | None,
    full: bool,
    no_nodes: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what a run would change: old -> new, files as diffs, restarts with their reason.

    \b
      sparkrack plan --limit spark2 --only fabric
      sparkrack plan --out today.plan && sparkrack apply today.plan

    A long plan begins with a summary. Machines whose changes are alike are shown together: a line that is not the same
    on all of them names its machines. Of a new file 20 lines are shown.

    Every operation is evaluated to its end and nothing is sent that changes anything. What a step that is still to be
    done will make visible (an image list before docker runs) is reported as unknown.
    Exit 0 when nothing would change, 2 when something would or a switch must be upgraded
    (docs/reference/advisories.md), 1 when a machine is unknown, unreachable or refused.
    """
    with loading():
        # Importing pyinfra replaces parts of the standard library, so only the run itself does.
        from sparkrack.engine.evaluated import evaluated, selected

    found, selection = selected(rack, limit, exclude, only)
    with (
        show_progress(silent=as_json or (quiet and quiet_is_silent())) as progress,
        evaluated(found, rack, selection, progress, no_nodes=no_nodes) as run,
    ):
        made = run.plan
    if out:
        try:
            write_atomic(out, made.model_dump_json(by_alias=True, indent=1) + "\n")
        except OSError as fault:
            raise CommandError(f"--out {out}: the plan cannot be kept: {fault.strerror}") from None
    if as_json:
        click.echo(made.model_dump_json(by_alias=True, indent=1))
    else:
        show_plan(made, quiet=quiet, full=full)
    given: dict[str, Any] = {"rack": rack, "limit": limit, "exclude": exclude, "only": only, "silent": as_json or quiet}
    if made.code == 2 and out:
        next_step(["sparkrack", "apply", str(out)], rack=rack, silent=as_json or quiet)
    else:
        after_plan(made, ["sparkrack", {0: "verify", 1: "plan", 2: "apply"}[made.code]], **given)
    sys.exit(made.code or (2 if made.upgrades else 0))
