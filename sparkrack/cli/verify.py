"""`sparkrack verify`: is the rack what its file says? Nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console

from sparkrack.cli.options import exclude_option, json_option, limit_option, quiet_option
from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import Rack, load
from sparkrack.fleet.errors import reason
from sparkrack.fleet.selection import SelectionError, select
from sparkrack.proof import page, text
from sparkrack.proof.origin import origin
from sparkrack.proof.outcome import left_alone
from sparkrack.proof.report import report as reported
from sparkrack.proof.run import prove
from sparkrack.run.files import keep
from sparkrack.topology.picture import draw
from sparkrack.topology.svg import DrawingError, render

PARTS = (
    *("preflight", "access", "driver", "memory", "docker", "lossless", "fabric", "rdma", "images"),
    "switch",
)
"""What there is to prove, in the order of the table's rows."""

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@rack_option
@limit_option
@exclude_option
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Only this part; may be given again.")
@click.option("--html", type=_FILE, help="Write a report for people too, one page that needs nothing else.")
@click.option("--junit", type=_FILE, help="Write the outcomes as JUnit XML too.")
@json_option
@quiet_option
@click.option("--brief", is_flag=True, help="The table and the count only, no line for each failure.")
@click.option("--bandwidth", is_flag=True, help="Measure each half with ib_write_bw too; fills the fabric meanwhile.")
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

    Exit 0: everything is proven. 2: something is proven to be otherwise than declared. 1: something could not be told,
    or nothing was proven. What only hardware can show (link speed as the card sees it) comes from stand-ins in the
    virtual rack.

    \b
      sparkrack verify --html report.html
      sparkrack verify --limit spark2 --only fabric --only switch
      sparkrack verify --exclude spark3 --json | jq '.failures[].why'
    """
    found = load(rack)
    try:
        machines = list(select(found, limit, exclude).machines)
        apart = {*found.nodes, *found.switches} - {*select(found, (), exclude).machines}
    except SelectionError as fault:
        raise click.ClickException(str(fault)) from None
    parts = [part for part in PARTS if not only or part in only]
    judged = [part for part in parts if found.keeps(part)]
    # Now: minutes later the proof would be for nothing.
    for file in filter(None, (html, junit)):
        _make_room(file)
    begun = origin(rack)
    try:
        paths = files(judged)
        outcomes = prove(found, paths, machines, junit.absolute() if junit else None, bandwidth, apart) if paths else []
    except OSError as fault:  # of our own files; what machines do is an outcome
        raise click.ClickException(reason(fault)) from None
    left = [part for part in parts if part not in judged]
    outcomes += [left_alone(name, part) for part in left for name in found.nodes if name in machines]
    report = reported(found, machines, parts, outcomes, begun, all_parts=PARTS, excluded=apart)
    text.show(report, Console(highlight=False, stderr=as_json), brief=brief, quiet=quiet)
    if as_json:
        click.echo(report.to_json())
    if html:
        try:
            keep(html.resolve(), page.page(report, _drawing(found)), 0o644)
        except OSError as fault:
            raise click.ClickException(f"{html}: {fault.strerror}") from None
    sys.exit(report.exit)


def files(parts: Iterable[str] = PARTS) -> list[Path]:
    """The verify file of each part."""
    top = Path(__file__).parent.parent.parent
    return [top / ("switch" if part == "switch" else f"roles/{part}") / "verify.py" for part in parts]


def _make_room(file: Path) -> None:
    """See to it that a file can stand there. Raises ClickException."""
    try:
        file.resolve().parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise click.ClickException(f"{file}: no folder for it: {fault.strerror}") from None
    if file.exists() and not file.is_file():
        raise click.ClickException(f"{file}: is no file, and would be replaced by one")


def _drawing(rack: Rack) -> page.Drawing:
    try:
        return page.Drawing(svg=render(draw(rack)))
    except DrawingError as fault:
        return page.Drawing(why=str(fault))
