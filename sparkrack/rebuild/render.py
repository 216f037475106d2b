"""The report of a rebuild as text."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkrack.rebuild.model import RebuildReport


def show(report: RebuildReport, console: Console) -> None:
    """Print the report: phases and times."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("phase")
    table.add_column("result")
    table.add_column("seconds", justify="right")
    table.add_column("tries", justify="right")
    for one in report.phases:
        style = {"done": "green", "failed": "red", "interrupted": "red"}.get(one.result, "dim")
        table.add_row(one.phase, Text(one.result, style=style), f"{one.seconds:.1f}", str(one.tries))
    console.print(table)
    if report.restarted:
        console.print(f"restarted: {', '.join(report.restarted)}")
    console.print(f"journal: {report.journal}")
    if report.again:
        console.print(report.result, style="bold red")
    else:
        seconds = sum(phase.seconds for phase in report.phases)  # those of an interrupted rebuild, too
        console.print(f"done: {', '.join(report.machines)} in {seconds:.0f} s", style="bold")
