"""The result of `sparkrack watch` with pictures of the last hours, as one HTML page that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sparkrack.watch.model import WatchReport
from sparkrack.watch.prometheus_api import PrometheusApi, Range
from sparkrack.watch.render import SWITCH_COLUMNS, switch_cells, switch_lines, total

HOURS = 6
POINTS = 240
WIDTH, HEIGHT = 480, 90


@dataclass(frozen=True)
class Picture:
    """One curve: what it shows, its lines as points of an SVG, and its range."""

    title: str
    unit: str
    lines: tuple[str, ...]
    smallest: float
    largest: float
    last: float


CURVES = (
    ("clock of the GPU", "MHz", 'max by (node) (sparkrack_gpu_sm_clock_hertz{node="@"}) / 1e6'),
    ("power of the GPU", "W", 'max by (node) (sparkrack_gpu_power_watts{node="@"})'),
    ("margin of the GPU", "C", 'min by (node) (sparkrack_gpu_tlimit_margin_celsius{node="@"})'),
    ("memory available", "GiB", 'max by (node) (node_memory_MemAvailable_bytes{job="node",node="@"}) / 1024^3'),
    ("stalled by memory", "%", '100 * rate(node_pressure_memory_stalled_seconds_total{job="node",node="@"}[2m])'),
    (
        "fabric, received",
        "Gbit/s",
        'sum by (node) (rate(node_infiniband_port_data_received_bytes_total{node="@"}[2m])) * 8 / 1e9',
    ),
    ("load", "", 'node_load1{job="node",node="@"}'),
)
"""What is drawn of each node; @ is its name."""


def pictures(api: PrometheusApi, node: str, end: float) -> Iterator[Picture]:
    """Yield the curves of a node that have values. Raises PrometheusError."""
    start, step = end - HOURS * 3600, HOURS * 3600 / POINTS
    for title, unit, query in CURVES:
        found = api.query_range(query.replace("@", node), start, end, step)
        if picture := draw(title, unit, found, start, end, step):
            yield picture


def draw(title: str, unit: str, found: Sequence[Range], start: float, end: float, step: float) -> Picture | None:
    """Return the first series as a curve, broken where it has no values; None without any."""
    values = [(at, value) for at, value in (found[0].values if found else ()) if math.isfinite(value)]
    if not values:
        return None
    smallest, largest = min(value for _, value in values), max(value for _, value in values)
    span = (largest - smallest) or 1.0
    lines: list[list[str]] = []
    before = -math.inf
    for at, value in values:
        if at - before > 1.5 * step:
            lines.append([])
        x, y = (at - start) / (end - start) * WIDTH, HEIGHT - (value - smallest) / span * HEIGHT
        lines[-1].append(f"{x:.1f},{y:.1f}")
        before = at
    return Picture(title, unit, tuple(map(" ".join, lines)), smallest, largest, values[-1][1])


def page(report: WatchReport, api: PrometheusApi) -> str:
    """Render the page. Raises PrometheusError."""
    end = report.made.timestamp()
    drawn = {one.name: tuple(pictures(api, one.name, end)) for one in report.nodes}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    return template.render(
        report=report,
        drawn=drawn,
        total=total(report),
        switch_columns=SWITCH_COLUMNS,
        switch_cells=switch_cells,
        switch_lines=[line.plain for line in switch_lines(report, quiet=False)],
        hours=HOURS,
        width=WIDTH,
        height=HEIGHT,
    )
