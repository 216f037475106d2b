"""`sparkrack verify`: check that the rack is in its declared state. Nothing is changed."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from core.model import load
from core.model.errors import reason
from core.model.selection import select
from core.util.atomic_file import make_room, write_atomic
from core.util.command_error import CommandError
from core.util.provenance import origin
from core.verify import report_html, report_text
from core.verify.checked_roles import CHECKED_ROLES, verify_files
from core.verify.outcomes import left_alone
from core.verify.report import report as reported
from core.verify.runner import run_checks
from sparkrack.cli.next_step import next_step
from sparkrack.cli.options import exclude_option, json_option, limit_option, quiet_option, rack_option
from sparkrack.terminal.progress import quiet_is_silent, show_progress
from sparkrack.topology.report_drawing import report_drawing
from switch.verify_client import watch_forwarding

_AFTER = {
    0: (("drift", "timer"), "to look for drift regularly"),
    1: (("status",), "to see which hosts answer"),
    2: (("drift",), "to see what differs"),
}
"""The next step, and its purpose, by exit code."""
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@rack_option
@limit_option
@exclude_option
@click.option("--only", multiple=True, type=click.Choice(CHECKED_ROLES), help="Only this role; may be given again.")
@click.option("--html", type=_FILE, help="Write a report for people too, one page that needs nothing else.")
@click.option("--junit", type=_FILE, help="Write the outcomes as JUnit XML too.")
@json_option
@quiet_option
@click.option("--brief", is_flag=True, help="The table and the count only, no line for each failure.")
@click.option(
    "--bandwidth", is_flag=True, help="Measure each half with ib_write_bw too; loads the fabric during that time."
)
def verify(
    rack: Path,
    limit: tuple[str, ...],
    exclude: tuple[str, ...],
    only: tuple[str, ...],
    html: Path | None,
    junit: Path | None,
    as_json: bool,
    brief: bool,
    quiet: bool,
    bandwidth: bool,
) -> None:
    """Prove nodes, switch and both ends of each leg, by other means than the deploy uses.

    Exit 0: every check passed. 2: something differs from what is declared. 1: something is unknown,
    or nothing was proven. What only hardware can show (link speed as the card sees it) comes from stand-ins in the
    virtual rack.

    \b
      sparkrack verify --html report.html
      sparkrack verify --limit spark2 --only fabric --only switch
      sparkrack verify --exclude spark3 --json | jq '.failures[].reason'
    """
    found = load(rack)
    machines = list(select(found, limit, exclude).machines)
    apart = {*found.nodes, *found.switches} - {*select(found, (), exclude).machines}
    roles = [role for role in CHECKED_ROLES if not only or role in only]
    judged = [role for role in roles if found.keeps(role)]
    # Now: minutes later the proof would be for nothing.
    for file in filter(None, (html, junit)):
        make_room(file)
    begun = origin(rack)
    try:
        paths = verify_files(judged)
        outcomes = []
        if paths:
            kept = junit.absolute() if junit else None
            with show_progress(silent=as_json or (quiet and quiet_is_silent())) as progress:
                outcomes = run_checks(found, paths, machines, kept, bandwidth, apart, progress, watch_forwarding)
    except OSError as fault:  # of our own files; what machines do is an outcome
        raise CommandError(reason(fault)) from None
    left = [role for role in roles if role not in judged]
    outcomes += [left_alone(name, role) for role in left for name in found.nodes if name in machines]
    report = reported(found, machines, roles, outcomes, begun, all_roles=CHECKED_ROLES, excluded=apart)
    report_text.render_report(report, Console(highlight=False, stderr=as_json), brief=brief, quiet=quiet)
    if as_json:
        click.echo(report.to_json())
    if html:
        try:
            with show_progress(silent=as_json or (quiet and quiet_is_silent())) as progress:
                drawing = report_drawing(found, machines, judged, apart, progress)
            write_atomic(html.resolve(), report_html.page(report, drawing), 0o644)
        except OSError as fault:
            raise CommandError(f"{html}: {fault.strerror}") from None
    verb, purpose = _AFTER[report.exit]
    names = {"limit": limit, "exclude": exclude} if report.exit else {}
    next_step(["sparkrack", *verb], purpose, rack=rack, silent=as_json or quiet or brief, **names)
    sys.exit(report.exit)
