"""A picture as text for a terminal of 100 columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sparkrack.fleet.errors import one_line

from . import words
from .model import Edge, Picture, PortBox, State, SwitchBox

_STYLES: dict[State, str] = {"declared": "", "fine": "green", "mismatch": "bold red", "unknown": "yellow"}


def render(picture: Picture) -> RenderableType:
    """A table with a row for each end of a cable at a node, then what is otherwise. What machines said is shown as it
    is, never as markup."""
    return Group(*_switches(picture), _table(picture), *_findings(picture), _text(words.title(picture)))


def _switches(picture: Picture) -> Iterator[RenderableType]:
    for box in picture.switches:
        yield _text(f"{box.name}: {words.switch(box)}")
        yield from (Padding(_text(line), (0, 0, 0, 2)) for line in _cages(box))


def _cages(box: SwitchBox) -> Iterator[str]:
    for cage in box.cages:
        free = [leg.interface for leg in cage.legs if leg.port is None]
        left = f"; free: {', '.join(free)}" if free else ""
        yield f"cage {cage.name}: {cage.split} {cage.medium}{left}"


def _table(picture: Picture) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    tagged = any(half.vlan for node in picture.nodes for port in node.ports for half in port.halves)
    for name in ("port", "half", "address", *(("VLAN",) if tagged else ()), "to", "speed", "MTU"):
        table.add_column(name, overflow="fold")
    if picture.compared:
        table.add_column("seen", overflow="fold")
    edges = {end: edge for edge in picture.edges for end in (edge.a, edge.b)}
    for node in picture.nodes:
        for port in node.ports:
            table.add_row(*_row(port, edges[port.name], tagged=tagged, compared=picture.compared))
        if not node.ports:
            table.add_row(_text(node.name), _text("no cable"))
    return table


def _row(port: PortBox, edge: Edge, *, tagged: bool, compared: bool) -> list[Text]:
    far = edge.b if edge.a == port.name else edge.a
    cells = [
        _text(port.name),
        _text(*(half.interface for half in port.halves)),
        _text(*(half.address for half in port.halves)),
        *([_text(*(str(half.vlan) for half in port.halves))] if tagged else []),
        _text(far, words.lanes(edge.wanted.lanes)),
        _text(f"{edge.wanted.gbps}G"),
        _text(str(edge.wanted.mtu)),
    ]
    return [*cells, _text(edge.state, style=_STYLES[edge.state])] if compared else cells


def _findings(picture: Picture) -> Iterator[Text]:
    for edge in picture.edges:
        for state, text in () if edge.state == "fine" else words.findings(edge):
            yield _text(f"{edge.a} - {edge.b}: {text}", style=_STYLES[state])


def _text(*lines: str, style: str = "") -> Text:
    """Lines that are neither markup nor controls of the terminal."""
    return Text("\n".join(map(one_line, lines)), style)
