"""`sparkrack runs`: the runs that this machine has a journal of. Nothing is connected to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from core.model import load
from core.model.errors import printable, printable_line
from core.util.paths import state_folder
from sparkrack.cli.options import json_option, rack_option
from sparkrack.cli.render_plan import MARKS
from sparkrack.status.render import span
from sparkrack.status.runs import RunDetail, RunList, RunOperation, RunSummary, list_runs, read_log, run_detail


@click.command()
@click.argument("run", required=False, metavar="[ID]")
@rack_option
@json_option
@click.option("--log", "as_log", is_flag=True, help="Print the debug log of the run instead.")
def runs(run: str | None, rack: Path, as_json: bool, as_log: bool) -> None:
    """List the runs that this machine has a journal of, the newest first; with ID, show one run step by step.
    `apply`, `bootstrap`, `driver release`, `reboot`, `serve start` and its like, and `switch restore` keep a journal
    and a debug log.

    \b
      sparkrack runs
      sparkrack runs 20260314T091500-3fa2c1d0
      sparkrack runs 20260314T091500-3fa2c1d0 --log
      sparkrack runs --json | jq -r '.runs[] | select(.result != "done") | .run'

    A run without an end is "in progress" while its process is alive, and "interrupted" after that. Times are UTC.
    Exit 0, or 1 when a journal cannot be read.
    """
    if as_log and (run is None or as_json):
        raise click.UsageError("--log is about one run: sparkrack runs ID --log, without --json")

    name = load(rack).rack
    found: RunDetail | RunList
    if run is not None:
        found = detail = run_detail(name, state_folder(name), run)
        if as_log:
            for line in read_log(detail).splitlines():
                click.echo(printable(line))
            return
        lines, code = _detail(detail), 0
    else:
        found = listed = list_runs(name, state_folder(name))
        lines, code = _table(listed), 1 if listed.unreadable else 0
    if as_json:
        click.echo(found.model_dump_json(by_alias=True, indent=1))
    else:
        for line in lines:
            click.echo(line)
    sys.exit(code)


def _table(found: RunList) -> Iterator[str]:
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


def _detail(run: RunDetail) -> Iterator[str]:
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
