"""`sparkrack verify`: is the rack what its file says? Nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.console import Console

from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import Rack, load
from sparkrack.proof import page, text
from sparkrack.proof.origin import origin
from sparkrack.proof.report import report as reported
from sparkrack.proof.run import prove
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
@click.option("--limit", multiple=True, metavar="NAME", help="Only this node or switch; may be given again.")
@click.option("--exclude", multiple=True, metavar="NAME", help="Not this node or switch; may be given again.")
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Only this part; may be given again.")
@click.option("--html", type=_FILE, help="Write a report for people too, one page that needs nothing else.")
@click.option("--junit", type=_FILE, help="Write the outcomes as JUnit XML too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, sparkrack.verify/1; words go to standard error.")
@click.option("--brief", is_flag=True, help="The table and the count only, no line for each failure.")
@click.option("--quiet", is_flag=True, help="Failures and the count only.")
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
    apart = frozenset(_named(found, exclude, "--exclude"))
    machines = [
        name for name in _named(found, limit, "--limit") or [*found.nodes, *found.switches] if name not in apart
    ]
    if not machines:
        raise click.ClickException("--limit and --exclude leave no machine")
    parts = [part for part in PARTS if not only or part in only]
    for file in filter(None, (html, junit)):
        _make_folder(file)  # now: minutes later the proof would be for nothing
    begun = origin(rack)
    outcomes = prove(found, files(parts), machines, junit.absolute() if junit else None, bandwidth, apart)
    report = reported(found, machines, parts, outcomes, begun, all_parts=PARTS, excluded=apart)
    text.show(report, Console(highlight=False, stderr=as_json), brief=brief, quiet=quiet)
    if as_json:
        click.echo(report.to_json())
    if html:
        try:
            page.write(html, page.page(report, _drawing(found)))
        except OSError as fault:
            raise click.ClickException(f"{html}: {fault.strerror}") from None
    sys.exit(report.exit)


def files(parts: Iterable[str] = PARTS) -> list[Path]:
    """The verify file of each part."""
    top = Path(__file__).parent.parent.parent
    return [top / ("switch" if part == "switch" else f"roles/{part}") / "verify.py" for part in parts]


def _named(rack: Rack, names: Sequence[str], option: str) -> list[str]:
    """The machines that an option names, each once; a switch may be called as pyinfra does. Raises ClickException."""
    known = [*rack.nodes, *rack.switches]
    found = [name.removeprefix("@routeros/") for name in names]
    for given, name in zip(names, found, strict=True):
        if name not in known:
            raise click.ClickException(f"{option} {given}: not in the rack; there are {', '.join(known)}")
    return list(dict.fromkeys(found))


def _make_folder(file: Path) -> None:
    try:
        file.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise click.ClickException(f"{file}: no folder for it: {fault.strerror}") from None


def _drawing(rack: Rack) -> page.Drawing:
    try:
        return page.Drawing(svg=render(draw(rack)))
    except DrawingError as fault:
        return page.Drawing(why=str(fault))
