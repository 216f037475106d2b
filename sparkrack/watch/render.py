"""The watch on the screen: a row a node, a unit and a switch, the alerts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from core.model.errors import counted, printable_line
from core.util.tables import narrow_parts, print_sentence, print_whole
from sparkrack.watch.model import (
    ActiveAlert,
    ActiveSilence,
    WatchedNode,
    WatchedSwitch,
    WatchedUnit,
    WatchReport,
)

UNKNOWN, ABSENT = "?", "-"
"""Marks for a value that is unknown, and for one that nothing exports."""
NODE_COLUMNS = ("clock MHz", "power W", "margin C", "busy", "free", "stalled", "links")
UNIT_COLUMNS = ("on", "state", "running", "waiting", "cache")
SWITCH_COLUMNS = ("hottest C", "fans", "PSUs", "legs", "pauses/s", "drops/s", "read")
_STYLES = {"page": "bold red", "ticket": "yellow"}


def show(report: WatchReport, console: Console, *, quiet: bool = False) -> None:
    """Print all of it; only the alerts and the last line, if `quiet`."""
    if not quiet:
        for table in tables(report):
            print_whole(console, table)
            console.print()
    details = [*unread_lines(report), *switch_lines(report, quiet=quiet), *silence_lines(report, quiet=quiet)]
    for line in details:
        print_sentence(console, line)
    if details and not quiet:
        console.print()
    for line in (*_alert_lines(report, quiet), Text(total(report), style="bold")):
        print_sentence(console, line)


@dataclass(frozen=True)
class WatchScreen:
    """The same for a screen that is written again and again. Where it has too few rows for all alerts, each has one,
    and the last row says how many are left out.
    """

    report: WatchReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield what fits on the screen."""
        parts: list[RenderableType] = []
        for table in tables(self.report):
            parts += [*narrow_parts(console, table), Text()]
        lines = (
            unread_lines(self.report),
            switch_lines(self.report, quiet=False),
            silence_lines(self.report, quiet=False),
        )
        if details := [line for some in lines for line in some]:
            parts += [*details, Text()]
        last = Text(total(self.report), style="bold")
        alerts = _alert_lines(self.report, quiet=False)
        free = console.height - len(console.render_lines(Group(*parts, last), options))
        yield from parts
        if len(console.render_lines(Group(*alerts), options)) > free:
            for line in alerts:
                line.no_wrap, line.overflow = True, "ellipsis"
            if len(alerts) > free:
                shown = max(free - 1, 0)
                alerts = [*alerts[:shown], Text(f"and {len(alerts) - shown} more: sparkrack watch --once")]
        yield from alerts
        yield last


def tables(report: WatchReport) -> list[Table]:
    """The tables of nodes, units and switches."""
    nodes = _new_table("node", *NODE_COLUMNS)
    for one in report.nodes:
        nodes.add_row(one.name, *node_cells(one, report))
    units = _new_table("unit", *UNIT_COLUMNS)
    for unit in report.units:
        units.add_row(unit.name, *unit_cells(unit))
    switches = _new_table("switch", *SWITCH_COLUMNS)
    for switch in report.switches:
        switches.add_row(switch.name, *switch_cells(switch))
    return [table for table in (nodes, units, switches) if table.rows]


def _new_table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(name, no_wrap=True)
    return table


def unit_cells(one: WatchedUnit) -> tuple[str, ...]:
    """The row of a unit behind its name."""
    state = UNKNOWN if one.up is None else "up" if one.up else "down"
    lost = UNKNOWN if one.up else ABSENT
    return (
        one.node,
        state,
        _number_text(one.running, lost),
        _number_text(one.waiting, lost),
        _share_text(one.cache, lost),
    )


def node_cells(one: WatchedNode, report: WatchReport) -> tuple[str, ...]:
    """The row of a node behind its name."""
    if not one.up:
        return (UNKNOWN if one.up is None else "silent", *[UNKNOWN] * 6)
    free = UNKNOWN
    if one.memory_available is not None and one.memory_total is not None:
        free = f"{one.memory_available / 2**30:.0f}/{one.memory_total / 2**30:.0f}G"
    values = (one.gpu_clock, one.gpu_power, one.gpu_margin, one.gpu_utilization, one.memory_stalled)
    names = ("gpu_clock", "gpu_power", "gpu_margin", "gpu_utilization", "memory_stalled")
    shown = [
        kind(value, UNKNOWN if report.lacks(f"nodes: {name}") else ABSENT)
        for name, value, kind in zip(
            names, values, (_number_text, _number_text, _number_text, _share_text, _share_text), strict=True
        )
    ]
    links = UNKNOWN if one.links_up is None else str(one.links_up)
    return (
        *shown[:4],
        free,
        shown[4],
        f"{links}/{one.links}",
    )


def switch_cells(one: WatchedSwitch) -> tuple[str, ...]:
    """The row of a switch behind its name."""
    without = UNKNOWN if one.declared else ABSENT
    linked = [leg.up for leg in one.legs]
    return (
        _number_text(one.temperature, without),
        _part_of_whole(one.fans_turning, one.fans, without),
        _part_of_whole(one.psus_ok, one.psus_expected, without),
        _part_of_whole(None if None in linked else sum(map(bool, linked)), len(linked), without),
        _number_text(one.pauses, without),
        _number_text(one.drops, without),
        without if one.age is None else f"{one.age:.0f} s ago",
    )


def _part_of_whole(count: int | None, all_of_them: int | None, without: str) -> str:
    """What is in order of what there is."""
    first, second = (without if one is None else str(one) for one in (count, all_of_them))
    return without if first == second == without else f"{first}/{second}"


def unread_lines(report: WatchReport) -> Iterator[Text]:
    """Yield what Prometheus could not answer: a line for each reason."""
    for reason in dict.fromkeys(one.reason for one in report.unread):
        parts = ", ".join(one.part for one in report.unread if one.reason == reason)
        yield Text(printable_line(f"unknown: {parts}: {reason}"), style="bold red")


def switch_lines(report: WatchReport, *, quiet: bool) -> Iterator[Text]:
    """Yield what a row has no room for: why values are missing, legs without a link, rate and FEC of the others. Only
    what is unknown or silent, if `quiet`.
    """
    for one in report.switches:
        if one.reason:
            if one.declared or not quiet:
                state = "silent: " if one.up is False else "unknown: " if one.declared else ""
                style = "bold red" if one.declared else "dim"
                yield Text(printable_line(f"{one.name}: {state}{one.reason}"), style=style)
            continue
        if one.unread:
            yield Text(printable_line(f"{one.name}: cannot be read: {', '.join(one.unread)}"), style="bold red")
        if quiet:
            continue
        if down := [f"{leg.leg} to {leg.to}" for leg in one.legs if leg.up is False]:
            yield Text(printable_line(f"{one.name}: no link: {', '.join(down)}"), style="bold red")
        kinds = Counter(_link_kind(leg.gbps, leg.fec) for leg in one.legs if leg.up)
        if kinds:
            linked = ", ".join(f"{count} at {kind}" for kind, count in sorted(kinds.items()))
            yield Text(printable_line(f"{one.name}: legs with a link: {linked}"))


def silence_lines(report: WatchReport, *, quiet: bool) -> Iterator[Text]:
    """Yield what keeps alerts from their receivers, first what no run made; nothing else, if `quiet`."""
    for one in report.foreign_silences:
        yield Text(f"not of a run: {_silence_line(one)}", style="bold red")
    if not quiet:
        yield from (Text(_silence_line(one), style="dim") for one in report.silences or () if one.of_run)


def _silence_line(one: ActiveSilence) -> str:
    until = f"{one.until:%Y-%m-%d %H:%M} UTC" if one.until else UNKNOWN
    return printable_line(f"alerts with {one.matchers} are silenced until {until} by {one.by}: {one.comment}")


def _link_kind(gbps: float | None, fec: str | None) -> str:
    return f"{UNKNOWN if gbps is None else f'{gbps:g}'}G with FEC {fec or UNKNOWN}"


def _number_text(value: float | None, without: str) -> str:
    return without if value is None else f"{value:.0f}"


def _share_text(value: float | None, without: str) -> str:
    return without if value is None else f"{value * 100:.0f}%"


def _alert_lines(report: WatchReport, quiet: bool) -> list[Text]:
    return [
        Text(_alert_line(one), style=_STYLES.get(one.severity, "") if one.state == "firing" else "dim")
        for one in report.alerts
        if one.state == "firing" or not quiet
    ]


def _alert_line(one: ActiveAlert) -> str:
    since = f" since {one.since:%H:%M:%S} UTC" if one.since else ""
    soon = "" if one.state == "firing" else " (pending)"
    return printable_line(f"{one.severity} {one.name}{soon}{since}: {one.summary}; {one.runbook}")


def total(report: WatchReport) -> str:
    """The last line."""
    up = sum(one.up is True for one in report.nodes)
    unknown = sum(one.unknown for one in report.machines)
    by_hand = len(report.foreign_silences)
    silenced = f", {counted(by_hand, 'silence')} not of a run" if by_hand else ""
    return (
        f"{report.made:%H:%M:%S} UTC, {report.rack} by {report.server}: {up} of {len(report.nodes)} nodes answer, "
        f"{firing(report)}, {unknown} unknown{silenced}"
    )


def firing(report: WatchReport) -> str:
    """Return how many alerts of each severity fire, and how many are pending."""
    if report.lacks("alerts"):
        return f"{UNKNOWN} alerts fire"
    count = Counter(one.severity if one.state == "firing" else "pending" for one in report.alerts)
    severities = ", ".join(counted(count[name], name) for name in ("page", "ticket", "info"))
    return f"{severities} fire" + (f", {count['pending']} pending" if count["pending"] else "")
