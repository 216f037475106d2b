"""The status on the screen: a row a machine, below it what is wrong or unknown, at last what happened before. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.model.errors import counted, printable_line
from core.model.selection import NODE_ROLES
from core.util.tables import print_sentence, print_whole
from sparkrack.status.model import About, LegStatus, LinkStatus, NodeStatus, ServedUnitState, Status, SwitchStatus

WIDTH = 100
"""Columns without a terminal that has its own width."""
UNKNOWN, WRONG = "?", "!"
"""Marks for an unknown value, and for one that differs from the declaration."""
DRIFT = ("declared", "broken", "outlier")
"""The kinds of findings of `sparkrack drift` that are drift."""
_COLUMNS = ("node", "up", "kernel", "driver", "free", "swap", "links G", "images", "reboot", "runs")


def show(status: Status, console: Console, *, quiet: bool = False) -> None:
    """Print all of it; only what is wrong or unknown, and the last line, if `quiet`."""
    if not quiet:
        for table in (_nodes_table(status), _render_switches(status)):
            if table.row_count:
                print_whole(console, table)
                console.print()
    for line in (*_list_findings(status, quiet), *(() if quiet else _earlier_lines(status))):
        print_sentence(console, line)
    print_sentence(console, Text(total(status), style="bold"))


def _nodes_table(status: Status) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, no_wrap=name not in ("links G", "driver"))
    for one in status.nodes:
        cells = {
            About.UPTIME: None if one.uptime is None else span(one.uptime),
            About.KERNEL: one.kernel,
            About.DRIVER: one.driver,
            About.MEMORY: f"{one.memory.available / 2**20:.0f}/{one.memory.total / 2**20:.0f}G" if one.memory else None,
            About.SWAP: None if one.swap is None else "on" if one.swap else "off",
            About.LINKS: _port_text(one.links),
            About.IMAGES: "-" if not one.images.declared else _share_text(one.images.right, one.images.declared),
            About.REBOOT: None if one.reboot is None else "yes" if one.reboot else "no",
            About.CONTAINERS: None if one.containers is None else str(one.containers),
        }
        table.add_row(_name_text(one), *(_cell_text(one, about, text) for about, text in cells.items()))
    return table


def _render_switches(status: Status) -> Table:
    table = Table("switch", "up", "RouterOS", "identity", "legs", "hottest", box=None, padding=(0, 2, 0, 0))
    table.pad_edge = False
    for one in status.switches:
        cells: dict[About, str | None] = {
            About.UPTIME: None if one.uptime is None else span(one.uptime),
            About.VERSION: one.version,
            About.IDENTITY: one.identity,
            About.LEGS: _legs_text(one.legs),
            About.TEMPERATURE: "-" if one.temperature is None else f"{one.temperature:g} C",
        }
        if not one.reachable:
            cells = dict.fromkeys(cells)
        table.add_row(_name_text(one), *(_cell_text(one, about, text) for about, text in cells.items()))
    return table


def _name_text(one: NodeStatus | SwitchStatus) -> Text:
    return Text(one.name, style="red" if one.wrong or one.unknown else "green")


def _cell_text(one: NodeStatus | SwitchStatus, about: About, text: str | None) -> Text:
    if text is None:
        return Text(UNKNOWN, style="red")
    if about is not About.LINKS and any(finding.about == about for finding in one.wrong):
        return Text(f"{text}{WRONG}", style="red")
    return Text(text, style="red" if WRONG in text or UNKNOWN in text else "")


def _share_text(some: int | None, all_: int) -> str | None:
    return None if some is None else f"{some}/{all_}"


def _port_text(links: tuple[LinkStatus, ...]) -> str | None:
    """Both halves of each port: "200/200", "200/down!"; None when nothing is known of any."""
    if not links:
        return "-"
    words = [_link_text(link) for link in links]
    if set(words) == {UNKNOWN}:
        return None
    return " ".join("/".join(words[at : at + 2]) for at in range(0, len(words), 2))


def _link_text(link: LinkStatus) -> str:
    if link.there is False:
        return f"none{WRONG}"
    if link.carrier is False:
        return f"down{WRONG}"
    if link.gbps is None:
        return UNKNOWN
    return f"{link.gbps:g}{'' if link.gbps == link.wanted else WRONG}"


def _legs_text(legs: tuple[LegStatus, ...]) -> str:
    if not legs:
        return "-"
    unknown = any(leg.up is None for leg in legs)
    return f"{sum(leg.up is True for leg in legs)}{UNKNOWN if unknown else ''}/{len(legs)}"


def _list_findings(status: Status, quiet: bool) -> Iterator[Text]:
    """Yield differences, unknown values with their reason, and notes; a common line for all hosts with the same
    message.
    """
    grouped: dict[tuple[str, str], list[str]] = {}
    for one in status.machines:
        lines = [(finding.text, "red") for finding in one.wrong]
        lines += [(f"unknown: {finding.text}", "red") for finding in one.unknown]
        lines += [] if quiet else [(f"note: {note}", "") for note in one.notes]
        for line in lines:
            grouped.setdefault(line, []).append(one.name)
    for (text, style), names in grouped.items():
        yield Text(f"{', '.join(names)}: {text}", style=style)
    for finding in status.unknown:
        yield Text(f"{finding.about}: unknown: {finding.text}", style="red")


def _earlier_lines(status: Status) -> Iterator[Text]:
    if status.units:
        yield Text(f"serves: {', '.join(map(_unit_text, status.units))}")
    yield Text(f"run lock: {_lock_text(status)}")
    yield Text(f"drift: {_drift_text(status)}")
    yield Text(f"last run: {_run_text(status)}")
    if status.blackbox or status.drill:
        yield Text(f"last drill: {_drill_text(status)}")


def _unit_text(one: ServedUnitState) -> str:
    mark = WRONG if one.as_desired is False else ""
    return f"{one.name} {one.state or UNKNOWN}{mark} ({' '.join(one.nodes)})"


def _lock_text(status: Status) -> str:
    if not status.lock.known:
        return UNKNOWN
    holder = status.lock.holder
    if holder is None:
        return "free"
    run = f"run {holder.id} of {holder.operator}, since {holder.since} ({holder.scope})"
    if not holder.expired:
        return run
    heartbeat = f"last heartbeat {span(holder.silence or 0)} ago"
    return f"expired: {run}, {heartbeat}; the next run that changes the rack ends it, or: sparkrack unlock {holder.id}"


def _drift_text(status: Status) -> str:
    drift = status.drift
    if drift is None:
        return UNKNOWN if _is_unknown(status, About.LAST_DRIFT) else "no run yet"
    counts = [f"{drift.counts[kind]} {kind}" for kind in DRIFT if drift.counts.get(kind)]
    result = ", ".join(counts) or "in sync"
    if drift.unknown_hosts:
        result = f"{', '.join([*counts, 'not all known'])} ({', '.join(drift.unknown_hosts)})"
    where = counted(len(drift.hosts), "machine")
    if drift.roles and set(NODE_ROLES) - set(drift.roles):
        where += f", {', '.join(drift.roles)} only"
    return printable_line(f"last run {_age_text(status.made, drift.made)} ({where}): {result}")


def _run_text(status: Status) -> str:
    run = status.run
    if run is None:
        return UNKNOWN if _is_unknown(status, About.LAST_RUN) else "none"
    holder = status.lock.holder
    in_progress = holder is not None and holder.id == run.run and not holder.expired
    result = run.result or ("in progress" if in_progress else "was interrupted")
    return printable_line(f"{run.run} of {run.operator}, {_age_text(status.made, run.began)} ({run.scope}): {result}")


def _drill_text(status: Status) -> str:
    drill = status.drill
    if drill is None:
        return UNKNOWN if _is_unknown(status, About.LAST_DRILL) else "none yet"
    result = "passed" if drill.passed else "failed"
    return printable_line(f"{drill.level} of {drill.node}, {_age_text(status.made, drill.made)}: {result}")


def _is_unknown(status: Status, about: About) -> bool:
    return any(finding.about == about for finding in status.unknown)


def _age_text(now: datetime, then: datetime) -> str:
    return f"{span(int((now - then).total_seconds()))} ago"


def span(seconds: int) -> str:
    """A time span by its two largest units: "3d 4h", "5h 12m", "7m", "20s"."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days > 0:
        return f"{days}d {hours % 24}h"
    if hours > 0:
        return f"{hours}h {minutes % 60}m"
    return f"{minutes}m" if minutes > 0 else f"{max(seconds, 0)}s"


def total(status: Status) -> str:
    """The last line: how many machines, and how they are."""
    machines = status.machines
    unknown = sum(bool(one.unknown) for one in machines)
    wrong = sum(bool(one.wrong) for one in machines)
    reached = sum(one.reachable for one in machines)
    return f"{counted(len(machines), 'machine')}: {reached} reachable, {wrong} not as declared, {unknown} unknown"
