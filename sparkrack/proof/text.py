"""A report in words, for a terminal or a log."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sparkrack.proof.report import Cell, Report


def show(report: Report, console: Console, *, brief: bool = False, quiet: bool = False) -> None:
    """Print a report. `brief`: the table and the count only. `quiet`: failures and the count only."""
    if not quiet:
        console.print(table(report))
    for line in _lines(report, brief, quiet):
        console.print(line, soft_wrap=True)


def table(report: Report) -> Table:
    """How many checks passed, for each part and machine."""
    # A row for each part: there are more of them than fit side by side, and a rack has at most nine machines.
    made = Table("part", *report.machines, title=f"{report.rack}: checks passed")
    cells = {(cell.machine, cell.part): cell for cell in report.cells}
    for part in report.parts:
        made.add_row(part, *(_cell(cells[machine, part]) for machine in report.machines))
    return made


def count(report: Report) -> str:
    """The last line."""
    unknown = f", {report.unknown} could not be told" if report.unknown else ""
    return f"{report.passed} passed, {report.failed} failed{unknown}"


def _lines(report: Report, brief: bool, quiet: bool) -> Iterator[str]:
    if not quiet:
        yield from (f"left out {one.part}: {escape(one.text)}" for one in report.left_out)
    for one in () if brief else report.failures:
        kind = "[yellow]unknown[/yellow]" if one.unknown else "[red]failed[/red]"
        # Words of no machine in particular name none themselves.
        about = one.part if one.part != "-" else one.machine
        yield f"{kind} {about}: {escape(one.why)}"
    if not quiet:
        yield from (f"note {one.part}: {escape(one.text)}" for one in report.notes)
    yield count(report)
    if not (report.passed or report.failed or report.unknown):
        yield "[red]nothing was proven[/red]"


def _cell(cell: Cell) -> str:
    made = cell.passed + cell.failed + cell.unknown
    if not made:
        return "-"
    colour = "red" if cell.failed else "yellow" if cell.unknown else "green"
    return f"[{colour}]{cell.passed}/{made}[/]"
