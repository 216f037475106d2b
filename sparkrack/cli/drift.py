"""`sparkrack drift`: differences between the rack and its file. Nothing is changed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from click.core import ParameterSource

from core.model import rack_path
from core.util.command_error import CommandError
from sparkrack.cli.drift_timer import prom_option, timer
from sparkrack.cli.next_step import after_plan
from sparkrack.cli.options import json_option, quiet_option, rack_option, selection_options
from sparkrack.drift import history
from sparkrack.drift.compare import compare_runs as came_and_went
from sparkrack.drift.findings import Drift, FindingKind, drift_of
from sparkrack.drift.markdown import markdown
from sparkrack.drift.render import show_drift
from sparkrack.terminal.progress import show_progress, warn
from sparkrack.terminal.startup_notice import loading
from sparkrack.watch.metrics_delivery import deliver_drift, keep_results


@click.group(invoke_without_command=True)
@rack_option
@selection_options
@click.option("--since", metavar="WHEN", help="What came and went since a run, an age (2d) or a time (2026-11-20).")
@click.option("--no-history", is_flag=True, help="Do not keep this run, and deliver no metrics.")
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown instead, for a comment in CI.")
@prom_option
@quiet_option
@click.pass_context
def drift(
    context: click.Context,
    rack: Path | None,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    since: str | None,
    no_history: bool,
    as_json: bool,
    as_markdown: bool,
    prom: Path | None,
    quiet: bool,
) -> None:
    """Show where the rack differs from its file: values that differ, what is configured correctly but does not work,
    nodes unlike the others; and what is there and not declared, which is not drift.

    \b
      sparkrack drift --limit spark2 --only fabric
      sparkrack drift --since 2d
      sparkrack drift --json --prom metrics/sparkrack.prom
      sparkrack drift timer --every 1h

    Nothing is written on nodes or switch, but for one thing: where rack.yaml has a section watch, the metrics of a run
    of the whole rack go to its server. Each run is kept on this machine, for --since.
    Exit 0 in sync, 2 for drift, 1 when anything is unknown.
    """
    if context.invoked_subcommand:
        _refuse_options_before(context)
        return
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown both go to the standard output: choose one")
    with loading():
        # Importing pyinfra replaces parts of the standard library, so only the run itself does.
        from sparkrack.engine.evaluated import evaluated, selected

    rack = rack or rack_path()
    found, selection = selected(rack, limit, exclude, only)
    # Checked first: a typing error must not wait for the rack.
    earlier = history.candidates(found.rack, since, datetime.now(UTC)) if since else []
    with show_progress(silent=as_json or quiet) as progress, evaluated(found, rack, selection, progress) as run:
        plan = run.plan
        made = drift_of(plan)
    if not made.hosts:
        raise CommandError("--limit, --exclude and --only leave no role of any machine to look at")
    if since:
        name, then = history.select_run(earlier, made, lambda line: click.echo(line, err=True))
        made = made.model_copy(update={"since": came_and_went(then, made, name)})
    kept = keep_results(found, made, prom, warn, history=not no_history)
    if not (no_history or limit or exclude or only):
        deliver_drift(found, made, warn)
    _print_drift(made, as_json=as_json, as_markdown=as_markdown, quiet=quiet)
    after_plan(
        plan,
        [
            "sparkrack",
            {0: "verify", 1: "drift", 2: "plan" if made.counts[FindingKind.DECLARED] else "verify"}[made.code],
        ],
        rack=rack,
        limit=limit,
        exclude=exclude,
        only=only,
        silent=as_json or as_markdown or quiet,
    )
    sys.exit(made.code if kept else 1)


def _refuse_options_before(context: click.Context) -> None:
    for name in context.params:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"options of `drift {context.invoked_subcommand}` stand behind it")


def _print_drift(made: Drift, *, as_json: bool, as_markdown: bool, quiet: bool) -> None:
    if as_json:
        click.echo(made.model_dump_json(by_alias=True, indent=1))
    elif as_markdown:
        click.echo(markdown(made), nl=False)
    else:
        show_drift(made, quiet=quiet)


drift.add_command(timer)
