"""`sparkrack watch`: the rack as its Prometheus has it, on a screen that renews itself. Nothing is changed."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path

import click
from rich.console import Console

from core.model import load
from core.model.selection import select
from core.util.command_error import CommandError
from roles.watch.options import WatchOptions
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import exclude_option, json_option, limit_option, quiet_option, rack_option
from sparkrack.status.render import WIDTH
from sparkrack.watch.collect import collect
from sparkrack.watch.dashboards import files as dashboard_files
from sparkrack.watch.live_screen import show_live
from sparkrack.watch.model import WatchReport
from sparkrack.watch.render import show
from sparkrack.watch.report_html import write_page
from sparkrack.watch.server_access import open_apis, prometheus_url, server_files, write_files


@click.command()
@rack_option
@limit_option
@exclude_option
@click.option("--once", is_flag=True, help="Show it once instead of a screen that renews itself.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a page with curves of the last hours, which needs nothing else.",
)
@click.option("--url", metavar="URL", help="Ask this Prometheus, as behind a forwarded port: http://127.0.0.1:9090.")
@click.option(
    "--files",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Ask nothing; write the configuration for a server outside of the rack.",
)
@click.option(
    "--dashboards",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Ask nothing; write dashboards and provisioning files for a Grafana.",
)
@json_option
@quiet_option
def watch(
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    once: bool,
    html: Path | None,
    url: str | None,
    files: Path | None,
    dashboards: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show every node, unit and switch in a line, and the alerts: clock, power, memory, links, queue, temperature.

    \b
      sparkrack watch
      sparkrack watch --once --quiet || echo look at it
      sparkrack watch --html watch.html

    The values are those that Prometheus on the server of the section `watch` has, which is asked over ssh: it listens
    on loopback there. --url asks another address, and no Alertmanager for silences. Without a terminal, or on one
    that cannot be redrawn (TERM=dumb), it is shown once. A dash is a value that nothing exports, a question mark one
    that is unknown.
    Exit 0 when no alert fires, 2 when one does, a machine is silent, or alerts are silenced by what is not a run; 1
    when something is unknown or Prometheus does not answer.
    """
    ignored = limit or exclude or once or html or as_json or quiet or (files and url)
    if (files or dashboards) and ignored:
        raise click.UsageError(
            "--files and --dashboards write files and ask nothing; only --url with --dashboards goes with them"
        )
    found = load(rack)
    machines = select(found, limit, exclude).machines
    if found.declared(WatchOptions) is None:
        raise CommandError(f"{rack} has no section watch; docs/roles/watch.md has an example")
    if files or dashboards:
        configuration = write_files(files, server_files(found)) if files else ()
        drawn = write_files(dashboards, dashboard_files(url or prometheus_url(found))) if dashboards else ()
        for path in chain(configuration, drawn):
            click.echo(str(path))
        return
    names = tuple(name for name in (*found.nodes, *found.switches) if name in machines)
    renewable = sys.stdout.isatty() and not Console().is_dumb_terminal
    live = renewable and not (once or as_json or quiet or html)
    with open_apis(found, url) as apis:
        report = show_live(found, names, apis) if live else collect(found, names, apis.prometheus, apis.alertmanager)
        if report is None:
            sys.exit(1)
        if html:
            write_page(html, report, apis.prometheus)
    if not live:
        _show_report(report, as_json=as_json, quiet=quiet)
    _print_next_step(report, rack, silent=as_json or quiet)
    sys.exit(report.exit)


def _show_report(report: WatchReport, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        click.echo(report.to_json())
        return
    width = None if sys.stdout.isatty() else WIDTH
    show(report, Console(highlight=False, markup=False, width=width), quiet=quiet)


def _print_next_step(report: WatchReport, rack: Path, *, silent: bool) -> None:
    """Print the next step: prove the watch where something is unknown, look at the rack where an alert fires."""
    if report.exit == 1:
        next_step(["sparkrack", "verify", "--only", "watch"], rack=rack, silent=silent)
    elif report.exit == 2:
        next_step(["sparkrack", "status"], rack=rack, silent=silent)
