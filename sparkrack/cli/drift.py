"""`sparkrack drift`: is the rack still what its file says? Nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from sparkrack.cli.drift_timer import prom_option, timer
from sparkrack.cli.options import json_option, quiet_option, selection_options
from sparkrack.cli.rackoption import rack_option

if TYPE_CHECKING:
    from sparkrack.run.drift import Drift


@click.group(invoke_without_command=True)
@rack_option
@selection_options
@click.option("--since", metavar="WHEN", help="What came and went since a run, an age (2d) or a time (2026-11-20).")
@click.option("--no-history", is_flag=True, help="Do not keep this run.")
@json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown instead, for a comment in CI.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML too.")
@prom_option
@quiet_option
@click.pass_context
def drift(
    context: click.Context,
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    since: str | None,
    no_history: bool,
    as_json: bool,
    as_markdown: bool,
    junit: Path | None,
    prom: Path | None,
    quiet: bool,
) -> None:
    """Show where the rack is not what its file says: values that differ, what is configured right and does not work,
    nodes unlike the others; and what is there and not declared, which is no drift.

    \b
      sparkrack drift --limit spark2 --only fabric
      sparkrack drift --since 2d
      sparkrack drift --json --junit drift.xml --prom metrics/sparkrack.prom
      sparkrack drift timer --every 1h

    Nothing is written on nodes or switch. Each run is kept on this machine, for --since.
    Exit 0 in sync, 2 for drift, 1 when anything could not be told.
    """
    if context.invoked_subcommand:
        _alone(context)
        return
    if as_json and as_markdown:
        raise click.UsageError("--json and --markdown both go to the standard output: choose one")
    from sparkrack.cli.session import evaluated, selected
    from sparkrack.run import history
    from sparkrack.run.drift import of
    from sparkrack.run.since import since as came_and_went

    found, selection = selected(rack, limit, exclude, only)
    try:
        # Asked first: who mistypes it shall not wait for the rack.
        earlier = history.candidates(found.rack, since, datetime.now(UTC)) if since else []
        with evaluated(found, rack, selection) as run:
            made = of(run.plan)
        if not made.machines:
            raise click.ClickException("--limit, --exclude and --only leave no role of any machine to look at")
        if since:
            name, then = history.pick(earlier, made, lambda line: click.echo(line, err=True))
            made = made.model_copy(update={"since": came_and_went(then, made, name)})
    except history.HistoryError as fault:
        raise click.ClickException(str(fault)) from None
    writes: dict[str, Callable[[], object]] = {} if no_history else {"this run": lambda: history.keep(made)}
    failed = _written(writes | _files(made, junit, prom))
    _print(made, as_json=as_json, as_markdown=as_markdown, quiet=quiet)
    sys.exit(1 if failed else made.code)


def _alone(context: click.Context) -> None:
    for name in context.params:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"options of `drift {context.invoked_subcommand}` stand behind it")


def _files(made: Drift, junit: Path | None, prom: Path | None) -> dict[str, Callable[[], object]]:
    """What writes each of the files that were asked for. Others read them: a collector, a CI job."""
    from sparkrack.run import files

    writes: dict[str, Callable[[], object]] = {}
    if junit:
        from sparkrack.drift.junit import junit as as_junit

        writes[str(junit)] = lambda: files.keep(junit, as_junit(made), 0o644)
    if prom:
        from sparkrack.drift.prometheus import prometheus

        writes[str(prom)] = lambda: files.keep(prom, prometheus(made), 0o644)
    return writes


def _written(writes: Mapping[str, Callable[[], object]]) -> bool:
    """Whether any of them failed, which is told. What was found is printed all the same."""
    failed = False
    for what, write in writes.items():
        try:
            write()
        except OSError as fault:
            click.echo(f"Error: {what} could not be kept: {fault}", err=True)
            failed = True
    return failed


def _print(made: Drift, *, as_json: bool, as_markdown: bool, quiet: bool) -> None:
    if as_json:
        click.echo(made.model_dump_json(by_alias=True, indent=1))
    elif as_markdown:
        from sparkrack.drift.markdown import markdown

        click.echo(markdown(made), nl=False)
    else:
        from sparkrack.cli.show_drift import show_drift

        show_drift(made, quiet=quiet)


drift.add_command(timer)
