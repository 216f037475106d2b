"""The watch on the screen: a row a node, a row a unit, the alerts. Pure."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from core.model.errors import printable_line
from core.util.tables import print_whole
from sparkrack.watch.model import ActiveAlert, WatchedNode, WatchReport

UNKNOWN, ABSENT = "?", "-"
"""Marks for a value that is unknown, and for one that nothing exports."""
_STYLES = {"page": "bold red", "ticket": "yellow"}


def show(report: WatchReport, console: Console, *, quiet: bool = False) -> None:
    """Print all of it; only the alerts and the last line, if `quiet`."""
    if not quiet:
        for table in tables(report):
            print_whole(console, table)
            console.print()
    for line in (*_alerts(report, quiet), Text(total(report), style="bold")):
        console.print(line, soft_wrap=True)


def screen(report: WatchReport) -> RenderableType:
    """The same for a screen that is written again and again."""
    parts: list[RenderableType] = []
    for table in tables(report):
        parts += [table, Text()]
    return Group(*parts, *_alerts(report, quiet=False), Text(total(report), style="bold"))


def tables(report: WatchReport) -> list[Table]:
    """The tables of nodes and units."""
    nodes = _table("node", "clock MHz", "power W", "margin C", "busy", "free", "stalled", "links")
    for one in report.nodes:
        nodes.add_row(one.name, *_cells(one))
    if not report.units:
        return [nodes]
    units = _table("unit", "on", "state", "running", "waiting", "cache")
    for unit in report.units:
        state = UNKNOWN if unit.up is None else "up" if unit.up else "down"
        lost = UNKNOWN if unit.up else ABSENT
        values = (_number(unit.running, lost), _number(unit.waiting, lost), _share(unit.cache, lost))
        units.add_row(unit.name, unit.node, state, *values)
    return [nodes, units]


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def _cells(one: WatchedNode) -> tuple[str, ...]:
    if not one.up:
        return (UNKNOWN if one.up is None else "silent", *[UNKNOWN] * 6)
    free = UNKNOWN
    if one.memory_available is not None and one.memory_total is not None:
        free = f"{one.memory_available / 2**30:.0f}/{one.memory_total / 2**30:.0f}G"
    links = UNKNOWN if one.links_up is None else str(one.links_up)
    return (
        _number(one.gpu_clock, ABSENT),
        _number(one.gpu_power, ABSENT),
        _number(one.gpu_margin, ABSENT),
        _share(one.gpu_utilization, ABSENT),
        free,
        _share(one.memory_stalled, ABSENT),
        f"{links}/{one.links}",
    )


def _number(value: float | None, without: str) -> str:
    return without if value is None else f"{value:.0f}"


def _share(value: float | None, without: str) -> str:
    return without if value is None else f"{value * 100:.0f}%"


def _alerts(report: WatchReport, quiet: bool) -> list[Text]:
    return [
        Text(_line(one), style=_STYLES.get(one.severity, "") if one.state == "firing" else "dim")
        for one in report.alerts
        if one.state == "firing" or not quiet
    ]


def _line(one: ActiveAlert) -> str:
    since = f" since {one.since:%H:%M:%S} UTC" if one.since else ""
    soon = "" if one.state == "firing" else " (pending)"
    return printable_line(f"{one.severity} {one.name}{soon}{since}: {one.summary}; {one.runbook}")


def total(report: WatchReport) -> str:
    """The last line."""
    up = sum(one.up is True for one in report.nodes)
    unknown = sum(one.unknown for one in report.nodes)
    return (
        f"{report.made:%H:%M:%S} UTC, {report.rack} by {report.server}: {up} of {len(report.nodes)} nodes answer, "
        f"{len(report.firing)} alerts fire, {unknown} unknown"
    )
