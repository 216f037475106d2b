"""`sparkrack apply`: bring the rack to its declared state, under a lock, with a journal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sparkrack.cli.next_step import after_plan, next_step
from sparkrack.cli.options import (
    UNASKED_HELP,
    json_option,
    no_lock_option,
    no_nodes_option,
    quiet_option,
    rack_option,
    selection_options,
)
from sparkrack.terminal.apply_screen import ApplyTerminal
from sparkrack.terminal.prompts import has_terminal, require_terminal
from sparkrack.terminal.startup_notice import loading


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path, readable=False, dir_okay=False, exists=True))
@rack_option
@selection_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@no_nodes_option(UNASKED_HELP)
@no_lock_option
@json_option
@quiet_option
def apply(
    plan: Path | None,
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    yes: bool,
    no_nodes: bool,
    no_lock: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Bring the rack to its declared state. PLAN: what `sparkrack plan --out` kept; then that is done, or nothing.

    \b
      sparkrack apply                  shows the plan and asks
      sparkrack apply -y --only memory
      sparkrack apply today.plan       refuses if anything has moved since

    One run at a time: the first node holds the lock of the rack until the run ends. A run that selects switches only
    may go on without the lock while that node is down: --no-lock. An operation that can
    cut a machine off is tried on the first one that it changes, alone, and the first failure ends the run for all.
    Ctrl-C lets the current operation end; a second one ends it at once. What was done is kept as NDJSON in
    ~/.local/state/sparkrack/RACK/runs.
    Exit 0 when everything is done or nothing was to do, else 1; what was not reached is as it was.
    """
    if plan and (limit or exclude or only):
        raise click.UsageError("PLAN names the machines and roles; omit --limit, --exclude and --only")
    with loading():
        # Importing pyinfra replaces parts of the standard library, so only the run itself does.
        from sparkrack.engine.evaluated import selected
        from sparkrack.maintenance.apply_run import ApplyRun, approved

    kept = approved(plan, rack) if plan else None
    if kept:
        limit, only = tuple(machine.name for machine in kept.hosts), kept.roles
    if not (kept or yes):
        require_terminal("pass -y, or name a plan")
    found, selection = selected(rack, limit, exclude, only)
    if no_lock and (nodes := [name for name in selection.machines if name in found.nodes]):
        raise click.UsageError(
            f"--no-lock is for a run that selects switches only, and this one selects {', '.join(nodes)} as well; "
            "add --limit switches"
        )
    given: dict[str, Any] = {"rack": rack, "limit": limit, "exclude": exclude, "only": only, "silent": quiet or as_json}
    screen = ApplyTerminal(
        quiet=quiet, as_json=as_json, show_next=lambda made: after_plan(made, ["sparkrack", "apply"], **given)
    )
    work = ApplyRun(
        found, rack, selection, screen, no_nodes=no_nodes, no_lock=no_lock, terminal=has_terminal() and not yes
    )
    done = work.run(kept, ask=not yes and not kept)
    screen.report(done)
    next_step(["sparkrack", "plan" if done.code else "verify"], **given)
    sys.exit(done.code)
