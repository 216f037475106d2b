"""Runs of this machine as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from core.model.errors import printable_line
from sparkrack.engine.render_plan import MARKS
from sparkrack.status.render import span
from sparkrack.status.runs import RunDetail, RunList, RunOperation, RunSummary


def runs_table(found: RunList) -> Iterator[str]:
    rows = [("run", "began", "result", "duration", "operator", "scope")]
    rows += [
        (one.run, _time(one.began), one.result, _duration(one), one.operator, printable_line(one.scope))
        for one in found.runs
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if found.runs:
        for row in rows:
            yield "  ".join(map(str.ljust, map(printable_line, row), widths)).rstrip()
    for lost in found.unreadable:
        yield printable_line(f"{lost.file}: {lost.reason}")
    yield f"{len(found.runs)} run{'' if len(found.runs) == 1 else 's'}, {len(found.unreadable)} unreadable"


def run_lines(run: RunDetail) -> Iterator[str]:
    one = run.run
    duration = "" if one.seconds is None else f" after {_duration(one)}"
    yield printable_line(f"{one.run} of {one.operator}, {_time(one.began)} ({one.scope}): {one.result}{duration}")
    yield printable_line(f"file {run.file}; revision {run.revision or 'none'}; plan {run.plan or 'none'}")
    for step in run.steps:
        yield from _step(step)
    changed = sum(step.result == "changed" for step in run.steps)
    failed = f"; failed on {', '.join(run.failed)}" if run.failed else ""
    yield printable_line(f"{len(run.steps)} operations, {changed} changed{failed}; journal: {run.journal}")
    yield printable_line(f"log: {run.log or 'none'}")


def _step(step: RunOperation) -> Iterator[str]:

    result = "did not end" if step.seconds is None else f"{step.result}, {step.seconds:.1f} s"
    where = f"{step.host}: {step.role or 'role unknown'}: {step.operation or 'operation unknown'}"
    yield printable_line(f"{where}: {result}")
    for reported in step.messages:
        yield printable_line(f"  {MARKS[reported.kind][0]}{reported.message}")
    for error in step.errors:
        yield printable_line(f"  error: {error}")


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _duration(run: RunSummary) -> str:

    return "-" if run.seconds is None else span(int(run.seconds))
