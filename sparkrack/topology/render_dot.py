"""A picture in DOT, the language of Graphviz. Pure."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from core.model.errors import printable_line
from sparkrack.topology import labels
from sparkrack.topology.model import CageBox, Edge, NodeBox, PortBox, State, SwitchBox, Topology

_WIDEST = 26
"""Signs in a line of a link's label."""
_LEG_WIDTH = 122
"""Points; as wide as a node with the text beside its cable, so that cables go straight down."""
_LEFT = 'ALIGN="LEFT" BALIGN="LEFT"'
"""Left alignment everywhere: the viewer's font may differ from the one of the layout, and only the left edge of a text
keeps its place.
"""


@dataclass(frozen=True)
class Palette:
    """Colours of a picture. `ink` and `pale` are texts; `paper`, `node`, `switch`, `cage`, `cell` are grounds; `states`
    are the lines and texts of links. Each text has a contrast of at least 4.5 on each ground.
    """

    ink: str
    pale: str
    paper: str
    node: str
    switch: str
    cage: str
    cell: str
    states: Mapping[State, str]


LIGHT = Palette(
    ink="#1f2933",
    pale="#52606d",
    paper="#ffffff",
    node="#eef2f7",
    switch="#e3e8ef",
    cage="#f7f9fb",
    cell="#ffffff",
    states=labels.COLOURS,
)
DARK = Palette(
    ink="#e6ebf0",
    pale="#a9b5c1",
    paper="#1b2128",
    node="#262e37",
    switch="#2b343e",
    cage="#222930",
    cell="#12161b",
    states={"declared": "#b8c4d0", "fine": "#7fd99a", "mismatch": "#ff9c9c", "unknown": "#f3c46b"},
)


def source(picture: Topology, palette: Palette = LIGHT) -> str:
    """The graph. No word of the rack or of a machine can become DOT's own."""
    return "".join(f"{line}\n" for line in _graph_lines(picture, palette))


def _graph_lines(picture: Topology, palette: Palette) -> Iterator[str]:
    # A switch is above its nodes; without one, nodes are side by side and cables leave at their sides.
    direction = "TB" if picture.switches else "LR"
    yield "graph {"
    yield f"graph [rankdir={direction}, nodesep=0.25, ranksep=0.5, pad=0.2, fontname=Helvetica]"
    yield f"graph [bgcolor={_dot_id(palette.paper)}]"
    yield f"graph [labelloc=t, fontsize=13, fontcolor={_dot_id(palette.ink)}, label={_dot_id(labels.title(picture))}]"
    yield f"node [shape=plain, fontname=Helvetica, fontsize=10, fontcolor={_dot_id(palette.ink)}]"
    yield "edge [fontname=Helvetica, fontsize=9]"
    ends: dict[str, str] = {}
    for at, switch in enumerate(picture.switches):
        for of, cage in enumerate(switch.cages):
            ends |= {leg.name: f"s{at}:c{of}l{number}:s" for number, leg in enumerate(cage.legs)}
        yield f"s{at} [label=<{_switch_table(switch, palette)}>]"
    for at, node in enumerate(picture.nodes):
        side = ":n" if picture.switches else ""
        ends |= {port.name: f"n{at}:p{port.number}{side}" for port in node.ports}
        yield f"n{at} [label=<{_node_table(node, palette)}>]"
    for edge in picture.edges:
        first, second = (edge.b, edge.a) if edge.wanted.lanes else (edge.a, edge.b)
        yield f"{ends[first]} -- {ends[second]} [{_edge_style(edge, palette)}, label=<{_edge_label(edge, palette)}>]"
    yield "}"


def _edge_style(edge: Edge, palette: Palette) -> str:
    style = {"mismatch": "bold", "unknown": "dashed"}.get(edge.state, "solid")
    return (
        f"color={_dot_id(palette.states[edge.state])}, style={style}, penwidth={2 if edge.state == 'mismatch' else 1.4}"
    )


def _edge_label(edge: Edge, palette: Palette) -> str:
    declared = [_html_row(_colour_text(text, palette.ink), _LEFT) for text in labels.wanted(edge)]
    found = [
        _html_row(f"<B>{_colour_text(line, palette.states[state])}</B>", _LEFT)
        for state, text in labels.findings(edge)
        for line in textwrap.wrap(text, _WIDEST, break_long_words=True) or [""]
    ]
    return _html_table([*declared, *found], 'BORDER="0" CELLBORDER="0" CELLSPACING="3" CELLPADDING="0"')


def _switch_table(box: SwitchBox, palette: Palette) -> str:
    cages = "".join(f"<TD>{_cage_table(at, cage, palette)}</TD>" for at, cage in enumerate(box.cages)) or "<TD></TD>"
    name = f"<B>{_escaped_text(box.name)}</B>  {_colour_text(labels.switch(box), palette.pale)}"
    head = f'<TD {_LEFT} COLSPAN="{max(1, len(box.cages))}">{name}</TD>'
    shape = (
        f'BORDER="1" COLOR="{palette.pale}" STYLE="ROUNDED" BGCOLOR="{palette.switch}" CELLBORDER="0" CELLSPACING="4"'
    )
    return _html_table([f"<TR>{head}</TR>", f"<TR>{cages}</TR>"], shape)


def _cage_table(at: int, box: CageBox, palette: Palette) -> str:
    legs = "".join(
        f'<TD PORT="c{at}l{number}" BORDER="1" COLOR="{palette.pale}"'
        f' BGCOLOR="{palette.cell if leg.port else palette.switch}" {_LEFT}'
        f' WIDTH="{_LEG_WIDTH if leg.port else 0}">{_escaped_text(leg.interface)}<BR/>'
        f"{_colour_text(labels.lanes(leg.lanes) + ('' if leg.port else ', free'), palette.pale)}</TD>"
        for number, leg in enumerate(box.legs)
    )
    name = f"cage {_escaped_text(box.name)}  {_colour_text(f'{box.split} {box.medium}', palette.pale)}"
    head = f'<TD {_LEFT} COLSPAN="{len(box.legs)}">{name}</TD>'
    shape = f'BORDER="0" BGCOLOR="{palette.cage}" CELLBORDER="0" CELLSPACING="3" CELLPADDING="4"'
    return _html_table([f"<TR>{head}</TR>", f"<TR>{legs}</TR>"], shape)


def _node_table(box: NodeBox, palette: Palette) -> str:
    ports = [f"<TR>{_port_cell(port, palette)}</TR>" for port in box.ports] or [_html_row("no cable")]
    lines = "".join(f"<BR/>{_colour_text(text, palette.pale)}" for text in (box.vendor, box.address) if text)
    name = _html_row(f"<B>{_escaped_text(box.name)}</B>{lines}", _LEFT)
    shape = f'BORDER="1" COLOR="{palette.pale}" STYLE="ROUNDED" BGCOLOR="{palette.node}" CELLBORDER="0" CELLSPACING="4"'
    return _html_table([*ports, name], shape)


def _port_cell(box: PortBox, palette: Palette) -> str:
    halves = "<BR/>".join(
        "<BR/>".join(
            (
                _escaped_text(half.interface),
                *_vlan_text(half.vlan, half.device, palette),
                f"<B>{_escaped_text(half.address)}</B>",
            )
        )
        for half in box.halves
    )
    return (
        f'<TD PORT="p{box.number}" BORDER="1" COLOR="{palette.pale}" BGCOLOR="{palette.cell}" CELLPADDING="4" {_LEFT}>'
        f"{_colour_text(f'port {box.number}', palette.pale)}<BR/>{halves}</TD>"
    )


def _vlan_text(vlan: int | None, device: str, palette: Palette) -> Iterable[str]:
    return () if vlan is None else (_colour_text(f"{device}, VLAN {vlan}", palette.pale),)


def _html_table(rows: Iterable[str], shape: str) -> str:
    return f"<TABLE {shape}>{''.join(rows)}</TABLE>"


def _html_row(cell: str, shape: str = "") -> str:
    return f"<TR><TD {shape}>{cell}</TD></TR>"


def _colour_text(text: str, colour: str) -> str:
    return f'<FONT COLOR="{colour}">{_escaped_text(text)}</FONT>' if text else ""


def _escaped_text(text: str) -> str:
    return html.escape(printable_line(text))


def _dot_id(text: str) -> str:
    """A string of DOT: a backslash would begin an escape, an ampersand the name of a sign."""
    return '"' + _escaped_text(text).replace("\\", "\\\\") + '"'
