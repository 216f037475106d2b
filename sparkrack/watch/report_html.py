"""The result of `sparkrack watch` with pictures of the last hours, as one HTML page that needs nothing else."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from markdown_it import MarkdownIt
from markupsafe import Markup

from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from core.util.html_page import page_template
from core.util.project_files import WATCH_RUNBOOK
from sparkrack.watch import render
from sparkrack.watch.history import HOURS, Drawn, Fired, History, Window, history
from sparkrack.watch.model import WatchedLeg, WatchReport
from sparkrack.watch.prometheus_api import PrometheusApi

_GRIDLINES = 4
"""At most, over the one at the bottom of a picture."""
_EDGE = 7.0
"""Half the width of the text of an hour, in percent of a picture on a phone."""
_DATED_EDGE = 11.0
"""The same of an hour with its date."""
_BOOT_TEXT = 38.0
"""The width of the text of a boot, in percent of a picture on a phone."""
_THINNEST = 0.4
"""The width in percent of a time that is too short to be seen."""
_SEVERITIES = ("page", "ticket", "info")


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: its place in percent from the left or from the top, and its text."""

    at: float
    text: str
    date: str = ""


@dataclass(frozen=True)
class Bar:
    """A time in percent of the width; `text` says when."""

    left: float
    width: float
    text: str
    severity: str


@dataclass(frozen=True)
class DrawnLine:
    """A line of a picture: its parts as points of an SVG of 1000 by 100, and its range in words."""

    name: str
    parts: tuple[str, ...]
    last: str
    extremes: str


@dataclass(frozen=True)
class DrawnLimit:
    """A limit of a picture: its place in percent from the top."""

    at: float
    value: str
    text: str
    alert: str


@dataclass(frozen=True)
class Picture:
    """One curve with its axes."""

    title: str
    unit: str
    lines: tuple[DrawnLine, ...]
    limits: tuple[DrawnLimit, ...]
    ticks: tuple[Tick, ...]
    shades: tuple[Bar, ...]
    boots: tuple[Tick, ...]
    firing: Mapping[str, str]
    """The severity of each alert about it that fires now."""


@dataclass(frozen=True)
class Event:
    """A row of the times at which something happened: the severity of an alert, or boot."""

    kind: str
    name: str
    about: str
    bars: tuple[Bar, ...]


def write_page(file: Path, report: WatchReport, api: PrometheusApi) -> None:
    """Write the page, readable by its owner only. Raises CommandError."""
    try:
        write_atomic(file, page(report, api))
    except OSError as fault:
        raise CommandError(f"{file}: {fault.strerror}") from None


def page(report: WatchReport, api: PrometheusApi, runbook: Path = WATCH_RUNBOOK) -> str:
    """Render the page. `runbook`: the document with a section for each alert. Raises SilentError."""
    past = history(api, report.made.timestamp())
    pictures = {
        (kind, name): tuple(picture(one, past) for one in past.of(kind, name))
        for kind, name in {(one.curve.of, one.name) for one in past.drawn}
    }
    named = {one.name for one in report.alerts} | {one.alert for one in past.fired}
    named |= {limit.alert for drawn in pictures.values() for one in drawn for limit in one.limits}
    sections = {name: text for name, text in runbook_sections(runbook).items() if name in named}
    return page_template(__file__, moment=moment).render(
        report=report,
        verdict=verdict(report),
        total=totals(report),
        start=datetime.fromtimestamp(past.window.start, UTC),
        hours=HOURS,
        ticks=time_ticks(past.window),
        events=tuple(events(past)),
        pictures=pictures,
        unread=[*(line.plain for line in render.unread_lines(report)), *(f"unknown: {one}" for one in past.unread)],
        silences=[line.plain for line in render.silence_lines(report, quiet=False)],
        sections=sections,
        facts={
            **{one.name: node_facts(report, number) for number, one in enumerate(report.nodes)},
            **{one.name: dict(zip(SWITCH_FACTS, render.switch_cells(one), strict=True)) for one in report.switches},
        },
        unit_facts={
            one.name: dict(zip(render.UNIT_COLUMNS, render.unit_cells(one), strict=True)) for one in report.units
        },
        switch_lines={
            one.name: [
                line.plain for line in render.switch_lines(report.model_copy(update={"switches": (one,)}), quiet=False)
            ]
            for one in report.switches
        },
        leg_words=leg_words,
    )


SWITCH_FACTS = (
    "hottest, °C",
    "fans turning/all",
    "supplies in order/expected",
    "legs with link/all",
    "pauses/s",
    "drops/s",
    "read",
)
"""What `render.switch_cells` gives, in words that need no head of a table."""


def node_facts(report: WatchReport, number: int) -> Mapping[str, str]:
    """Return the last values of a node, as the screen shows them."""
    return dict(zip(render.NODE_COLUMNS, render.node_cells(report.nodes[number], report), strict=True))


def leg_words(leg: WatchedLeg) -> str:
    """Return the state of a leg of a switch."""
    if leg.up is None:
        return "unknown"
    if not leg.up:
        return "no link"
    return f"link at {'?' if leg.gbps is None else f'{leg.gbps:g}'} Gbit/s, FEC {leg.fec or '?'}"


def verdict(report: WatchReport) -> str:
    """Return the worst that the page has to say: page, ticket, unknown or fine."""
    firing = {one.severity for one in report.firing}
    if "page" in firing or any(one.up is False for one in report.machines):
        return "page"
    return "ticket" if firing or report.foreign_silences else "unknown" if report.exit == 1 else "fine"


def totals(report: WatchReport) -> str:
    """Return the counts of nodes and alerts."""
    up = sum(one.up is True for one in report.nodes)
    unknown = sum(one.unknown for one in report.machines)
    return f"{up} of {len(report.nodes)} nodes answer; {render.firing(report)}; {unknown} unknown"


def moment(when: datetime | None) -> str:
    """Return a time with its date, UTC."""
    return f"{when:%Y-%m-%d %H:%M}" if when else "unknown"


def runbook_sections(path: Path) -> dict[str, Markup]:
    """Return the section of each alert in a runbook; none where the program was installed without its documents.

    What a link leads to stands behind its words: the page has no other document.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return {}

    def in_words(link: re.Match[str]) -> str:
        return f"{link[1]} (`{posixpath.normpath(posixpath.join('docs/runbooks', link[2]))}`)"

    text = re.sub(r"\[([^\]]+)\]\(([^)#:]+\.md)(?:#[^)]*)?\)", in_words, text)
    parts = re.split(r"^## (\w+)\n", text, flags=re.MULTILINE)[1:]
    reader = MarkdownIt("commonmark", {"html": False})
    return {name: Markup(reader.render(body)) for name, body in zip(parts[::2], parts[1::2], strict=True)}  # noqa: S704


def picture(drawn: Drawn, past: History) -> Picture:
    """Return a curve with its axes, the boots of its node, and the times at which its alerts fired."""
    values = [value for _, series in drawn.series for _, value in series] + [value for _, value in drawn.limits]
    ticks = value_ticks(min(0.0, *values), max(0.0, *values))
    bottom, top = ticks[0], ticks[-1]

    def height(value: float) -> float:
        return round((top - value) / (top - bottom) * 100, 2)

    fired = [one for one in past.fired if one.alert in drawn.curve.shaded and one.is_of(drawn.curve.of, drawn.name)]
    return Picture(
        drawn.curve.title,
        drawn.curve.unit,
        tuple(_drawn_line(name, series, past.window, height) for name, series in drawn.series),
        tuple(DrawnLimit(height(value), number(value), limit.text, limit.alert) for limit, value in drawn.limits),
        tuple(Tick(height(value), number(value)) for value in ticks),
        tuple(bar for one in fired for bar in bars(one, past.window)),
        tuple(_boot_marks(drawn, past)),
        {one.alert: one.severity for one in fired if one.spans[-1][1] >= past.window.end - past.window.step},
    )


def _boot_marks(drawn: Drawn, past: History) -> Iterator[Tick]:
    """Yield the boots of a node; one soon after another has no text, which would stand on that of the other."""
    named = -math.inf
    for boot in past.boots:
        if (drawn.curve.of, drawn.name) == ("node", boot.node):
            at = percent(boot.at, past.window)
            text = clock(boot.at, past.window) if at - named > _BOOT_TEXT else ""
            named = at if text else named
            yield Tick(at, text)


def _drawn_line(
    name: str, series: tuple[tuple[float, float], ...], window: Window, height: Callable[[float], float]
) -> DrawnLine:
    """Return a line, broken where it has no values."""
    parts: list[list[str]] = []
    before = -math.inf
    for at, value in series:
        if at - before > 1.5 * window.step:
            parts.append([])
        parts[-1].append(f"{percent(at, window) * 10:.1f},{height(value):g}")
        before = at
    # A single value is a point, which a line of no length with round ends shows.
    drawn = tuple(" ".join(part if len(part) > 1 else part * 2) for part in parts)
    low, high = min(series, key=lambda one: one[1]), max(series, key=lambda one: one[1])
    words = ", ".join(
        f"{word} {number(one[1])} at {clock(one[0], window)}" for word, one in (("lowest", low), ("highest", high))
    )
    last = series[-1]
    old = "" if last[0] > window.end - 1.5 * window.step else f", last at {clock(last[0], window)}"
    return DrawnLine(name, drawn, number(last[1]) + old, words if low[1] != high[1] else "all the time")


def events(past: History) -> Iterator[Event]:
    """Yield the boots and the alerts of the last hours: those of severity page first."""
    nodes = dict.fromkeys(boot.node for boot in past.boots)
    for node in nodes:
        at = [boot.at for boot in past.boots if boot.node == node]
        yield Event(
            "boot",
            "booted",
            node,
            tuple(Bar(percent(one, past.window), 0, f"{clock(one, past.window)}", "boot") for one in at),
        )

    def rank(one: Fired) -> tuple[int, float, str]:
        order = _SEVERITIES.index(one.severity) if one.severity in _SEVERITIES else len(_SEVERITIES)
        return (order, one.spans[0][0], one.alert)

    rows: dict[tuple[str, str, str], list[Bar]] = {}
    for one in sorted(past.fired, key=rank):
        rows.setdefault((one.severity, one.alert, one.about), []).extend(bars(one, past.window))
    for (severity, alert, about), drawn in rows.items():
        yield Event(severity, alert, about, tuple(drawn))


def bars(fired: Fired, window: Window) -> Iterator[Bar]:
    """Yield the times at which an alert fired."""
    for start, end in fired.spans:
        left = percent(start, window)
        now = end >= window.end - window.step
        text = f"{clock(start, window)} to {'now' if now else clock(end, window)}"
        width = round(max(percent(end, window) - left, _THINNEST), 2)
        yield Bar(min(left, 100 - width), width, text, fired.severity)


def percent(at: float, window: Window) -> float:
    """Return the place of a time on the time axis."""
    return round((at - window.start) / (window.end - window.start) * 100, 2)


def clock(at: float, window: Window) -> str:
    """Return a time, with its date where that is not the last one of the axis."""
    when, end = (datetime.fromtimestamp(one, UTC) for one in (at, window.end))
    return f"{when:%H:%M}" if when.date() == end.date() else f"{when:%d %b %H:%M}"


def time_ticks(window: Window) -> tuple[Tick, ...]:
    """Return a mark for each full hour. That of a new day has its date, and the first one with room for it, which the
    hour before a new day has not. A mark near an edge has no text, or no date: it would stand outside of the picture.
    """
    made: list[Tick] = []
    when = datetime.fromtimestamp(window.start, UTC).replace(minute=0, second=0, microsecond=0)
    while (when := when + timedelta(hours=1)).timestamp() <= window.end:
        at = percent(when.timestamp(), window)
        text = f"{when:%H:%M}" if _EDGE < at < 100 - _EDGE else ""
        first = not any(tick.date for tick in made) and when.hour != 23
        dated = _DATED_EDGE < at < 100 - _DATED_EDGE and (when.hour == 0 or first)
        made.append(Tick(at, text, f"{when:%d %b}" if dated else ""))
    return tuple(made)


def value_ticks(smallest: float, largest: float) -> tuple[float, ...]:
    """Return the marks of a value axis: round numbers, the first at or below the smallest value, the last at or above
    the largest.
    """
    if smallest == largest:
        largest += 1.0
    span = largest - smallest
    size = 10.0 ** math.floor(math.log10(span / _GRIDLINES))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if span / (size * factor) <= _GRIDLINES)
    first = math.floor(smallest / step)
    last = max(math.ceil(largest / step), first + 1)
    return tuple(round(index * step, 9) for index in range(first, last + 1))


def number(value: float) -> str:
    """Return a value with three figures, and all figures of a larger whole number."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"
