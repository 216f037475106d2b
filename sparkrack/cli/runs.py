"""`sparkrack runs`: the runs that this machine has a journal of. Nothing is connected to."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from core.model import load
from core.model.errors import printable
from core.util.paths import state_folder
from sparkrack.cli.options import json_option, rack_option
from sparkrack.status.render_runs import show_run, show_runs
from sparkrack.status.runs import list_runs, read_log, run_detail


@click.command()
@click.argument("run", required=False, metavar="[ID]")
@rack_option
@json_option
@click.option("--log", "as_log", is_flag=True, help="Print the debug log of the run instead.")
def runs(run: str | None, rack: Path, as_json: bool, as_log: bool) -> None:
    """List the runs that this machine has a journal of, the newest first; with ID, show one run step by step.
    `apply`, `bootstrap`, `upgrade driver`, `reboot`, `serve start` and its like, and `switch restore` keep a journal
    and a debug log.

    \b
      sparkrack runs
      sparkrack runs 20260314T091500-3fa2c1d0
      sparkrack runs 20260314T091500-3fa2c1d0 --log
      sparkrack runs --json | jq -r '.runs[] | select(.result != "done") | .run'

    A run without an end is "in progress" while its process is alive, and "interrupted" after that. Times are UTC.
    Exit 0, or 1 when a journal cannot be read.
    """
    if as_log and (run is None or as_json):
        raise click.UsageError("--log is about one run: sparkrack runs ID --log, without --json")

    name = load(rack).rack
    console = Console(highlight=False, markup=False)
    if run is None:
        listed = list_runs(name, state_folder(name))
        if as_json:
            click.echo(listed.model_dump_json(by_alias=True, indent=1))
        else:
            show_runs(listed, console)
        sys.exit(1 if listed.unreadable else 0)
    detail = run_detail(name, state_folder(name), run)
    if as_log:
        for line in read_log(detail).splitlines():
            click.echo(printable(line))
    elif as_json:
        click.echo(detail.model_dump_json(by_alias=True, indent=1))
    else:
        show_run(detail, console)
