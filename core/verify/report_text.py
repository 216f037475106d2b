"""A report in words, for a terminal or a log."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from core.util.tables import print_sentence, print_whole
from core.verify.report import Cell, Report


def render_report(report: Report, console: Console, *, brief: bool = False, quiet: bool = False) -> None:
    """Print a report. `brief`: the table and the count only. `quiet`: failures and the count only."""
    if not quiet:
        print_whole(console, table(report))
    for line in _report_lines(report, brief, quiet):
        print_sentence(console, Text.from_markup(line, emoji=False))


def table(report: Report) -> Table:
    """How many checks passed, for each role and machine."""
    # A row for each role: there are more of them than fit side by side, and a rack has at most nine machines.
    made = Table("role", *report.hosts, title=f"{report.rack}: checks passed")
    cells = {(cell.host, cell.role): cell for cell in report.cells}
    for role in report.roles:
        made.add_row(role, *(_cell_text(cells[machine, role]) for machine in report.hosts))
    return made


def count(report: Report) -> str:
    """Return the last line."""
    unknown = f", {report.unknown} unknown" if report.unknown else ""
    return f"{report.passed} passed, {report.failed} failed{unknown}"


def _report_lines(report: Report, brief: bool, quiet: bool) -> Iterator[str]:
    if not quiet:
        yield from (f"skipped {one.role}: {escape(one.text)}" for one in report.skipped)
    for one in () if brief else report.failures:
        kind = "[yellow]unknown[/yellow]" if one.unknown else "[red]failed[/red]"
        # Words of no machine in particular name none themselves.
        about = one.role if one.role != "-" else one.host
        yield f"{kind} {about}: {escape(one.reason)}"
    if not quiet:
        yield from (f"note {one.role}: {escape(one.text)}" for one in report.notes)
    yield count(report)
    if not (report.passed or report.failed or report.unknown):
        yield "[red]nothing was proven[/red]"


def _cell_text(cell: Cell) -> str:
    made = cell.passed + cell.failed + cell.unknown
    if not made:
        return "-"
    colour = "red" if cell.failed else "yellow" if cell.unknown else "green"
    return f"[{colour}]{cell.passed}/{made}[/]"
