"""A picture in DOT, the language of Graphviz. Pure."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Iterator

from sparkrack.fleet.errors import one_line

from . import words
from .model import CageBox, Edge, NodeBox, Picture, PortBox, SwitchBox

_WIDEST = 26
"""Signs in a line of a link's label."""
_LEG_WIDTH = 122
"""Points; as wide as a node with what stands beside its cable, so that cables go straight down."""
_INK, _PALE = "#1f2933", "#52606d"
_LEFT = 'ALIGN="LEFT" BALIGN="LEFT"'
"""Everywhere: whoever shows the picture may have another font than the one it was laid out with, and only the left
edge of a text stays where it was put."""
_NODE, _SWITCH, _CAGE, _CELL = "#eef2f7", "#e3e8ef", "#f7f9fb", "#ffffff"


def source(picture: Picture) -> str:
    """The graph. No word of the rack or of a machine can become DOT's own."""
    return "".join(f"{line}\n" for line in _lines(picture))


def _lines(picture: Picture) -> Iterator[str]:
    # A switch stands above its nodes; without one, nodes stand side by side and cables leave at their sides.
    direction = "TB" if picture.switches else "LR"
    yield "graph {"
    yield f"graph [rankdir={direction}, nodesep=0.25, ranksep=0.5, pad=0.2, bgcolor=white, fontname=Helvetica]"
    yield f"graph [labelloc=t, fontsize=13, fontcolor={_quoted(_INK)}, label={_quoted(words.title(picture))}]"
    yield f"node [shape=plain, fontname=Helvetica, fontsize=10, fontcolor={_quoted(_INK)}]"
    yield "edge [fontname=Helvetica, fontsize=9]"
    ends: dict[str, str] = {}
    for at, switch in enumerate(picture.switches):
        for of, cage in enumerate(switch.cages):
            ends |= {leg.name: f"s{at}:c{of}l{number}:s" for number, leg in enumerate(cage.legs)}
        yield f"s{at} [label=<{_switch(switch)}>]"
    for at, node in enumerate(picture.nodes):
        side = ":n" if picture.switches else ""
        ends |= {port.name: f"n{at}:p{port.number}{side}" for port in node.ports}
        yield f"n{at} [label=<{_node(node)}>]"
    for edge in picture.edges:
        first, second = (edge.b, edge.a) if edge.wanted.lanes else (edge.a, edge.b)
        yield f"{ends[first]} -- {ends[second]} [{_style(edge)}, label=<{_label(edge)}>]"
    yield "}"


def _style(edge: Edge) -> str:
    style = {"mismatch": "bold", "unknown": "dashed"}.get(edge.state, "solid")
    return (
        f"color={_quoted(words.COLOURS[edge.state])}, style={style}, penwidth={2 if edge.state == 'mismatch' else 1.4}"
    )


def _label(edge: Edge) -> str:
    declared = [_row(_font(text, _INK), _LEFT) for text in words.wanted(edge)]
    found = [
        _row(f"<B>{_font(line, words.COLOURS[state])}</B>", _LEFT)
        for state, text in words.findings(edge)
        for line in textwrap.wrap(text, _WIDEST, break_long_words=True) or [""]
    ]
    return _table([*declared, *found], 'BORDER="0" CELLBORDER="0" CELLSPACING="3" CELLPADDING="0"')


def _switch(box: SwitchBox) -> str:
    cages = "".join(f"<TD>{_cage(at, cage)}</TD>" for at, cage in enumerate(box.cages)) or "<TD></TD>"
    name = f"<B>{_text(box.name)}</B>  {_font(words.switch(box), _PALE)}"
    head = f'<TD {_LEFT} COLSPAN="{max(1, len(box.cages))}">{name}</TD>'
    shape = f'BORDER="1" COLOR="{_PALE}" STYLE="ROUNDED" BGCOLOR="{_SWITCH}" CELLBORDER="0" CELLSPACING="4"'
    return _table([f"<TR>{head}</TR>", f"<TR>{cages}</TR>"], shape)


def _cage(at: int, box: CageBox) -> str:
    legs = "".join(
        f'<TD PORT="c{at}l{number}" BORDER="1" COLOR="{_PALE}" BGCOLOR="{_CELL if leg.port else _SWITCH}" {_LEFT}'
        f' WIDTH="{_LEG_WIDTH if leg.port else 0}">'
        f"{_text(leg.interface)}<BR/>{_font(words.lanes(leg.lanes) + ('' if leg.port else ', free'), _PALE)}</TD>"
        for number, leg in enumerate(box.legs)
    )
    name = f"cage {_text(box.name)}  {_font(f'{box.split} {box.medium}', _PALE)}"
    head = f'<TD {_LEFT} COLSPAN="{len(box.legs)}">{name}</TD>'
    shape = f'BORDER="0" BGCOLOR="{_CAGE}" CELLBORDER="0" CELLSPACING="3" CELLPADDING="4"'
    return _table([f"<TR>{head}</TR>", f"<TR>{legs}</TR>"], shape)


def _node(box: NodeBox) -> str:
    ports = [f"<TR>{_port(port)}</TR>" for port in box.ports] or [_row("no cable")]
    name = _row(f"<B>{_text(box.name)}</B><BR/>{_font(box.vendor, _PALE)}<BR/>{_font(box.address, _PALE)}", _LEFT)
    shape = f'BORDER="1" COLOR="{_PALE}" STYLE="ROUNDED" BGCOLOR="{_NODE}" CELLBORDER="0" CELLSPACING="4"'
    return _table([*ports, name], shape)


def _port(box: PortBox) -> str:
    halves = "<BR/>".join(
        "<BR/>".join((_text(half.interface), *_vlan(half.vlan, half.device), f"<B>{_text(half.address)}</B>"))
        for half in box.halves
    )
    return (
        f'<TD PORT="p{box.number}" BORDER="1" COLOR="{_PALE}" BGCOLOR="{_CELL}" CELLPADDING="4" {_LEFT}>'
        f"{_font(f'port {box.number}', _PALE)}<BR/>{halves}</TD>"
    )


def _vlan(vlan: int | None, device: str) -> Iterable[str]:
    return () if vlan is None else (_font(f"{device}, VLAN {vlan}", _PALE),)


def _table(rows: Iterable[str], shape: str) -> str:
    return f"<TABLE {shape}>{''.join(rows)}</TABLE>"


def _row(cell: str, shape: str = "") -> str:
    return f"<TR><TD {shape}>{cell}</TD></TR>"


def _font(text: str, colour: str) -> str:
    return f'<FONT COLOR="{colour}">{_text(text)}</FONT>' if text else ""


def _text(text: str) -> str:
    return html.escape(one_line(text))


def _quoted(text: str) -> str:
    """A string of DOT: a backslash would begin an escape, an ampersand the name of a sign."""
    return '"' + _text(text).replace("\\", "\\\\") + '"'
