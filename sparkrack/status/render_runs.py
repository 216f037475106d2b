"""Runs of this machine as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.model.errors import printable_line
from core.util.tables import print_sentence, print_whole
from sparkrack.engine.render_plan import MARKS
from sparkrack.status.render import span
from sparkrack.status.runs import RunDetail, RunList, RunOperation, RunSummary


def show_runs(found: RunList, console: Console) -> None:
    """Print the runs as a table, and how many there are."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("run", "began", "result", "duration", "operator", "scope"):
        table.add_column(title, no_wrap=True)
    for one in found.runs:
        cells = (one.run, _time_text(one.began), one.result, _format_duration(one), one.operator, one.scope)
        table.add_row(*(Text(printable_line(cell)) for cell in cells))
    if found.runs:
        print_whole(console, table)
    for lost in found.unreadable:
        print_sentence(console, printable_line(f"{lost.file}: {lost.reason}"))
    count = len(found.runs)
    print_sentence(console, f"{count} run{'' if count == 1 else 's'}, {len(found.unreadable)} unreadable")


def show_run(run: RunDetail, console: Console) -> None:
    """Print one run step by step."""
    for line in _run_lines(run):
        print_sentence(console, line)


def _run_lines(run: RunDetail) -> Iterator[str]:
    one = run.run
    duration = "" if one.seconds is None else f" after {_format_duration(one)}"
    yield printable_line(f"{one.run} of {one.operator}, {_time_text(one.began)} ({one.scope}): {one.result}{duration}")
    yield printable_line(f"file {run.file}; revision {run.revision or 'none'}; plan {run.plan or 'none'}")
    for step in run.steps:
        yield from _operation_lines(step)
    changed = sum(step.result == "changed" for step in run.steps)
    failed = f"; failed on {', '.join(run.failed)}" if run.failed else ""
    yield printable_line(f"{len(run.steps)} operations, {changed} changed{failed}; journal: {run.journal}")
    yield printable_line(f"log: {run.log or 'none'}")


def _operation_lines(step: RunOperation) -> Iterator[str]:

    result = "did not end" if step.seconds is None else f"{step.result}, {step.seconds:.1f} s"
    where = f"{step.host}: {step.role or 'role unknown'}: {step.operation or 'operation unknown'}"
    yield printable_line(f"{where}: {result}")
    for reported in step.messages:
        yield printable_line(f"  {MARKS[reported.kind][0]}{reported.message}")
    for error in step.errors:
        yield printable_line(f"  error: {error}")


def _time_text(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _format_duration(run: RunSummary) -> str:

    return "-" if run.seconds is None else span(int(run.seconds))
