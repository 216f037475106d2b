"""The autopsy on the screen: verdict, its signs, what to do, sources and timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from core.model.errors import printable_line
from sparkrack.autopsy.evidence import SourceState
from sparkrack.autopsy.model import AutopsyReport
from sparkrack.autopsy.verdict import Cause

MOST_LINES = 40
"""Entries of the timeline on the screen: the last ones before the end, and those after it."""
RUNBOOK = "docs/runbooks/autopsy.md"


def lines(report: AutopsyReport) -> Iterator[str]:
    """Yield the lines of the report."""
    yield from map(printable_line, _report_lines(report))


def _report_lines(report: AutopsyReport) -> Iterator[str]:
    if entries := report.timeline[-MOST_LINES:]:
        width = max(len(entry.source) for entry in entries)
        left_out = len(report.timeline) - len(entries)
        yield f"timeline (UTC{f'; {left_out} earlier entries: --json' if left_out else ''}):"
        for entry in entries:
            at = f"{entry.at:%Y-%m-%d %H:%M:%S}.{entry.at.microsecond // 100000}"
            yield f"  {at}  {entry.source:{width}}  {entry.text}"
    yield "sources:"
    for one in report.sources:
        skew = (
            "" if one.skew is None else f"; its clock is {abs(one.skew):.1f} s {'ahead' if one.skew >= 0 else 'behind'}"
        )
        mark = "" if one.state is SourceState.READ else f"{one.state}: "
        yield f"  {one.name}: {mark}{one.detail}{skew}"
    for sign in report.signs:
        yield f"{'proof' if sign.proof else 'hint'} ({sign.source}): {sign.text}"
    for sign in report.against:
        yield f"against: {sign.cause} ({sign.source}): {sign.text}"
    for remark in report.remarks:
        yield f"remark: {remark}"
    if report.last_sign:
        boot = f" of boot {report.boot}" if report.boot else ""
        yield f"last sign of life{boot}: {report.last_sign:%Y-%m-%d %H:%M:%S} UTC ({report.last_source})"
    for unit in report.units:
        reason = f"reboot {', '.join(unit.nodes)} before it starts again, all of them"
        yield f"unit {unit.unit} spans {', '.join(unit.nodes)}: {reason}"
    yield summary(report)


def summary(report: AutopsyReport) -> str:
    """Return the last line: the verdict and its reason."""
    sure = f" ({report.confidence} confidence)" if report.confidence else ""
    look = "" if report.verdict is Cause.PLANNED else f"; {RUNBOOK}"
    return printable_line(f"{report.node}: {report.verdict}{sure}: {report.reason}{look}")
