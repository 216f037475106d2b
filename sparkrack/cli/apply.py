"""`sparkrack apply`: bring the rack to its declared state, under a lock, with a journal."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sparkrack.cli.options import json_option, quiet_option, selection_options
from sparkrack.cli.rackoption import rack_option


@click.command()
@click.argument("plan", required=False, type=click.Path(path_type=Path, readable=False, dir_okay=False, exists=True))
@rack_option
@selection_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@quiet_option
def apply(
    plan: Path | None,
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    yes: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Bring the rack to its declared state. PLAN: what `sparkrack plan --out` kept; then that is done, or nothing.

    \b
      sparkrack apply                  shows the plan and asks
      sparkrack apply -y --only memory
      sparkrack apply today.plan       refuses if anything has moved since

    One run at a time: who changes the rack is written down on its first node until the run ends. An operation that can
    cut a machine off is tried on the first one that it changes, alone, and the first failure ends the run for all.
    Ctrl-C lets the operation at hand end; a second one ends it at once. What was done is kept as NDJSON in
    ~/.local/state/sparkrack/RACK/runs.
    Exit 0 when everything is done or nothing was to do, else 1; what was not reached is as it was.
    """
    from sparkrack.cli.applying import Applying, approved

    if plan and (limit or exclude or only):
        raise click.UsageError("PLAN says which machines and roles; leave --limit, --exclude and --only away")
    kept = approved(plan) if plan else None
    terminal = bool(sys.stdin and sys.stdin.isatty())
    if kept is None and not yes and not terminal:
        raise click.ClickException("there is no terminal to ask on; say -y, or name a plan")
    applying = Applying(rack, quiet=quiet, as_json=as_json)
    ask = not yes and not kept
    sys.exit(applying.run(kept, limit, exclude, only, ask=ask, terminal=terminal and not yes))
