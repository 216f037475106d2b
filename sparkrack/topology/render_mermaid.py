"""A picture as a Mermaid flowchart, which GitHub shows in Markdown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from core.model.errors import printable_line
from sparkrack.topology import labels
from sparkrack.topology.model import Topology

_SPECIAL = re.compile(r"[^A-Za-z0-9 ._/,()+-]|d(?=irection )")
"""Signs that may mean something. Mermaid's lexer takes any line with "direction LR" for a statement, quoted or not."""


def render(picture: Topology) -> str:
    """The flowchart, with a line end. No word of the rack or of a machine can become Mermaid's own."""
    return "".join(f"{line}\n" for line in _graph_lines(picture))


def _graph_lines(picture: Topology) -> Iterator[str]:
    # From left to right: eight nodes below one another stay readable in a page, side by side they do not.
    yield "flowchart LR"
    ends: dict[str, str] = {}
    for at, switch in enumerate(picture.switches):
        yield f"    subgraph s{at} [{_quoted_label(switch.name, labels.switch(switch))}]"
        for of, cage in enumerate(switch.cages):
            yield f"        subgraph s{at}c{of} [{_quoted_label(f'{cage.name}, {cage.split} {cage.medium}')}]"
            for number, leg in enumerate(cage.legs):
                ends[leg.name] = f"s{at}c{of}l{number}"
                free = () if leg.port else ("free",)
                yield f"            {ends[leg.name]}[{_quoted_label(leg.interface, labels.lanes(leg.lanes), *free)}]"
            yield "        end"
        yield "    end"
    for at, node in enumerate(picture.nodes):
        yield f"    subgraph n{at} [{_quoted_label(f'{node.name}, {labels.node(node)}')}]"
        for port in node.ports:
            ends[port.name] = f"n{at}p{port.number}"
            halves = chain.from_iterable((labels.half(half), half.address) for half in port.halves)
            yield f"        {ends[port.name]}[{_quoted_label(f'port {port.number}', *halves)}]"
        if not node.ports:
            yield f"        n{at}x[{_quoted_label('no cable')}]"
        yield "    end"
    for edge in picture.edges:
        # The end of lower rank is on the left of a cable between nodes, the switch on the left of its own cables.
        ordered = (edge.b, edge.a) if edge.wanted.lanes else (edge.a, edge.b)
        lines = [", ".join(labels.wanted(edge)), *(text for _, text in labels.findings(edge))]
        yield f"    {ends[ordered[0]]} ---|{_quoted_label(*lines)}| {ends[ordered[1]]}"
    for at, edge in enumerate(picture.edges):
        if edge.state == "declared":
            continue  # keeps the colour of the page's theme, light or dark
        dashes = {"mismatch": ",stroke-width:3px", "unknown": ",stroke-dasharray:5 5"}.get(edge.state, "")
        yield f"    linkStyle {at} stroke:{labels.COLOURS[edge.state]}{dashes}"


def _quoted_label(*lines: str) -> str:
    """Lines of a label, in quotes. Mermaid writes a sign as its number between # and ;."""
    return (
        '"' + "<br>".join(_SPECIAL.sub(lambda sign: f"#{ord(sign[0])};", printable_line(line)) for line in lines) + '"'
    )
