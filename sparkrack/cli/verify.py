"""`sparkrack verify`: is the rack what its file says? Nothing is changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sparkrack.cli.rackoption import rack_option
from sparkrack.fleet import Rack, load
from sparkrack.proof.outcome import Outcome
from sparkrack.proof.run import prove

PARTS = (
    *("preflight", "access", "driver", "memory", "docker", "lossless", "fabric", "rdma", "images"),
    "switch",
)
"""What there is to prove, in the order of the table's columns."""


@click.command()
@rack_option
@click.option("--limit", multiple=True, metavar="NAME", help="Only this node or switch; may be given again.")
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="Only this part; may be given again.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write the outcomes as JUnit XML too.")
@click.option("--brief", is_flag=True, help="The table and the count only, no line for each failure.")
@click.option("--bandwidth", is_flag=True, help="Measure each half with ib_write_bw too; fills the fabric meanwhile.")
def verify(
    rack: Path, limit: tuple[str, ...], only: tuple[str, ...], junit: Path | None, brief: bool, bandwidth: bool
) -> None:
    """Prove nodes, switch and both ends of each leg, by other means than the deploy uses.

    Exit 0 when everything is proven, 1 when anything is not. What only hardware can show (link speed as the card
    sees it) comes from stand-ins in the virtual rack.
    """
    found = load(rack)
    known = [*found.nodes, *found.switches]
    unknown = [name for name in limit if name not in known]
    if unknown:
        raise click.ClickException(f"--limit {unknown[0]}: not in the rack; there are {', '.join(known)}")
    machines = list(limit or known)
    parts = [part for part in PARTS if not only or part in only]
    outcomes = prove(found, files(parts), machines, junit.absolute() if junit else None, bandwidth)
    _show(found, machines, parts, outcomes, brief)
    made = [outcome for outcome in outcomes if not outcome.left_out]
    sys.exit(0 if made and all(outcome.passed for outcome in made) else 1)


def files(parts: Iterable[str] = PARTS) -> list[Path]:
    """The verify file of each part."""
    top = Path(__file__).parent.parent.parent
    return [top / ("switch" if part == "switch" else f"roles/{part}") / "verify.py" for part in parts]


def _show(rack: Rack, machines: list[str], parts: list[str], outcomes: list[Outcome], brief: bool) -> None:
    # A row for each part: there are more of them than fit side by side, and a rack has at most nine machines.
    table = Table("part", *machines, title=f"{rack.rack}: checks passed")
    for part in parts:
        table.add_row(part, *(_cell(outcomes, machine, part) for machine in machines))
    console = Console(highlight=False)
    console.print(table)
    for role, why in dict.fromkeys((outcome.role, outcome.why) for outcome in outcomes if outcome.left_out):
        console.print(f"left out {role}: {why}", soft_wrap=True)
    outcomes = [outcome for outcome in outcomes if not outcome.left_out]
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in [] if brief else failed:
        console.print(f"[red]failed[/red] {outcome.role}: {outcome.why}", soft_wrap=True)
    for role, note in dict.fromkeys((outcome.role, note) for outcome in outcomes for note in outcome.notes):
        console.print(f"note {role}: {note}", soft_wrap=True)
    console.print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    if not outcomes:
        console.print("[red]nothing was proven[/red]")


def _cell(outcomes: list[Outcome], machine: str, part: str) -> str:
    made = (outcome for outcome in outcomes if not outcome.left_out)
    mine = [outcome for outcome in made if (outcome.machine, outcome.role) == (machine, part)]
    if not mine:
        return "-"
    passed = sum(outcome.passed for outcome in mine)
    return f"[{'green' if passed == len(mine) else 'red'}]{passed}/{len(mine)}[/]"
