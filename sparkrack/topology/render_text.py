"""A picture as text for a terminal of 100 columns. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from core.model.errors import printable_line
from core.util.tables import print_whole
from sparkrack.topology import labels
from sparkrack.topology.model import Edge, PortBox, State, SwitchBox, Topology

_STYLES: dict[State, str] = {"declared": "", "fine": "green", "mismatch": "bold red", "unknown": "yellow"}


def render(picture: Topology, console: Console, *, quiet: bool = False) -> None:
    """Print a table with a row for each end of a cable at a node, then the findings; only the findings and the last
    line if `quiet`. Text from hosts is shown literally, never as markup. Names and addresses stay whole on a console of
    any width.
    """
    if not quiet:
        for line in _render_switches(picture):
            console.print(line)
        print_whole(console, _edge_table(picture))
    for line in (*_render_findings(picture), _printable_text(labels.title(picture))):
        console.print(line)


def _render_switches(picture: Topology) -> Iterator[RenderableType]:
    for box in picture.switches:
        yield _printable_text(f"{box.name}: {labels.switch(box)}")
        yield from (Padding(_printable_text(line), (0, 0, 0, 2)) for line in _cage_lines(box))


def _cage_lines(box: SwitchBox) -> Iterator[str]:
    for cage in box.cages:
        free = [leg.interface for leg in cage.legs if leg.port is None]
        left = f"; free: {', '.join(free)}" if free else ""
        yield f"cage {cage.name}: {cage.split} {cage.medium}{left}"


def _edge_table(picture: Topology) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    tagged = any(half.vlan for node in picture.nodes for port in node.ports for half in port.halves)
    for name in ("port", "half", "address", *(("VLAN",) if tagged else ()), "to", "speed", "MTU"):
        table.add_column(name, no_wrap=True)
    if picture.compared:
        table.add_column("seen", no_wrap=True)
    edges = {end: edge for edge in picture.edges for end in (edge.a, edge.b)}
    for node in picture.nodes:
        for port in node.ports:
            table.add_row(*_edge_row(port, edges[port.name], tagged=tagged, compared=picture.compared))
        if not node.ports:
            table.add_row(_printable_text(node.name), _printable_text("no cable"))
    return table


def _edge_row(port: PortBox, edge: Edge, *, tagged: bool, compared: bool) -> list[Text]:
    far = edge.b if edge.a == port.name else edge.a
    cells = [
        _printable_text(port.name),
        _printable_text(*(half.interface for half in port.halves)),
        _printable_text(*(half.address for half in port.halves)),
        *([_printable_text(*(str(half.vlan) for half in port.halves))] if tagged else []),
        _printable_text(far, labels.lanes(edge.wanted.lanes)),
        _printable_text(f"{edge.wanted.gbps}G"),
        _printable_text(str(edge.wanted.mtu)),
    ]
    return [*cells, _printable_text(edge.state, style=_STYLES[edge.state])] if compared else cells


def _render_findings(picture: Topology) -> Iterator[Text]:
    for edge in picture.edges:
        for state, text in () if edge.state == "fine" else labels.findings(edge):
            yield _printable_text(f"{edge.a} - {edge.b}: {text}", style=_STYLES[state])


def _printable_text(*lines: str, style: str = "") -> Text:
    """Lines that are neither markup nor controls of the terminal."""
    return Text("\n".join(map(printable_line, lines)), style)


WIDTH = 100
"""Columns of a text that is written to a file."""


def plain(picture: Topology) -> str:
    """The text of a picture without colours, at most WIDTH columns wide."""
    paper = io.StringIO()
    render(picture, Console(file=paper, width=WIDTH, highlight=False, color_system=None))
    return "".join(f"{line.rstrip()}\n" for line in paper.getvalue().splitlines())
