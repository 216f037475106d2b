"""Text, Mermaid and SVG of every kind of rack: nothing is left out, and no word of a machine becomes the format's."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from core.model.errors import printable_line
from sparkrack.topology import render_mermaid, render_svg, render_text
from sparkrack.topology.build import draw
from sparkrack.topology.model import Topology
from tests.unit.topology.answers import RACKS, Answers, answers, cards

needs_dot = pytest.mark.skipif(shutil.which(render_svg.PROGRAM) is None, reason="the package graphviz is not installed")


def troubled(reported: Answers) -> None:
    """The first node is silent, the second one has too small an MTU."""
    first, second, *_ = reported.rack.nodes
    reported.silent[first] = "cannot be asked: no route"
    for card in cards(reported, second):
        (card.vlan or card.device).update(mtu=1500)


def pictures(name: str) -> Mapping[str, Topology]:
    reported = answers(RACKS[name])
    well = reported.seen()
    troubled(reported)
    return {
        "declared": draw(RACKS[name]),
        "fine": draw(RACKS[name], well),
        "troubled": draw(RACKS[name], reported.seen()),
    }


ALL = {f"{rack} {kind}": picture for rack in RACKS if rack != "lone" for kind, picture in pictures(rack).items()}


def shown(picture: Topology, width: int = 100) -> str:
    paper = io.StringIO()
    render_text.render(picture, Console(file=paper, width=width, highlight=False))
    return paper.getvalue()


def words_of(element: str) -> str:
    """The text of an SVG, each piece on a line."""
    return "\n".join(" ".join(part.split()) for part in ElementTree.fromstring(element).itertext() if part.strip())  # noqa: S314


FORMATS: Mapping[str, Callable[[Topology], str]] = {
    "text": shown,
    "mermaid": render_mermaid.render,
    "svg": lambda picture: words_of(render_svg.render(picture)),
}
each_format = pytest.mark.parametrize(
    "form", [pytest.param(name, marks=[needs_dot] if name == "svg" else []) for name in FORMATS]
)


def everything(picture: Topology) -> set[str]:
    """What every format must show."""
    nodes = {text for node in picture.nodes for text in (node.name,)}
    ports = {half for node in picture.nodes for port in node.ports for half in port.halves}
    halves = {text for half in ports for text in (half.interface, half.address, str(half.vlan or "MTU"))}
    switches = {text for one in picture.switches for text in (one.name, one.address, f"L2MTU {one.l2mtu}")}
    cages = [cage for switch in picture.switches for cage in switch.cages]
    legs = {leg.interface for cage in cages for leg in cage.legs}
    declared = {f"{cage.split} {cage.medium}" for cage in cages}
    links = {word for edge in picture.edges for word in (f"{edge.wanted.gbps}G", str(edge.wanted.mtu))}
    lanes = {f"{edge.wanted.lanes[0]}-{edge.wanted.lanes[-1]}" for edge in picture.edges if len(edge.wanted.lanes) > 1}
    states = {edge.state for edge in picture.edges} - {"declared"}
    return nodes | halves | switches | legs | declared | links | lanes | states


@each_format
@pytest.mark.parametrize("name", ALL)
def test_everything_is_shown(form: str, name: str) -> None:
    made = FORMATS[form](ALL[name])
    assert [word for word in sorted(everything(ALL[name])) if word not in made] == []


@each_format
def test_a_node_without_a_cable(form: str) -> None:
    made = FORMATS[form](draw(RACKS["lone"], answers(RACKS["lone"]).seen()))
    assert "solo" in made
    assert "no cable" in made


@each_format
def test_findings_are_shown_in_words(form: str) -> None:
    made = " ".join(FORMATS[form](ALL["eight troubled"]).replace("#58;", ":").split())
    assert "unknown: spark1: cannot be asked: no route" in made
    assert "mismatch: spark2 enp1s0f1np1 and enP2p1s0f1np1: MTU 1500, wanted 9000" in made


@pytest.mark.parametrize("name", ALL)
def test_text_fits_into_100_columns(name: str) -> None:
    lines = shown(ALL[name], 400).splitlines()
    table = [line.rstrip() for line in lines if not re.search(r"free:|mismatch: |unknown: ", line)]
    assert max(map(len, table)) <= 100
    assert not [line for line in shown(ALL[name]).splitlines() if len(line) > 100]


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("name", ALL)
def test_names_and_addresses_stay_whole(name: str, width: int) -> None:
    words, picture = shown(ALL[name], width).split(), ALL[name]
    halves = [half for node in picture.nodes for port in node.ports for half in port.halves]
    ends = {end for edge in picture.edges for end in (edge.a, edge.b)}
    assert (ends | {text for half in halves for text in (half.interface, half.address)}) <= set(words)


@pytest.mark.parametrize("name", ALL)
def test_the_states_are_counted(name: str) -> None:
    picture, last = ALL[name], shown(ALL[name]).splitlines()[-1]
    if picture.compared:
        counts = (len([e for e in picture.edges if e.state == state]) for state in ("fine", "mismatch", "unknown"))
        assert last.endswith(": {} fine, {} mismatch, {} unknown".format(*counts))
    else:
        assert last.endswith("as declared, not compared with what is there")


# What a line of a flowchart may be: nothing outside of quotes comes from the rack.
QUOTED = r'"(?:[A-Za-z0-9 ._/,()+-]|#[0-9]+;|<br>)*"'
LINE = re.compile(
    rf"flowchart LR| +subgraph \w+ \[{QUOTED}\]| +end| +\w+\[{QUOTED}\]| +\w+ ---\|{QUOTED}\| \w+"
    r"| +linkStyle \d+ stroke:#[0-9a-f]{6}(,stroke-width:3px|,stroke-dasharray:5 5)?"
)


def test_mermaid_is_made_of_known_lines() -> None:
    for picture in [*ALL.values(), hostile(ALL["eight troubled"])]:
        lines = render_mermaid.render(picture).splitlines()
        assert [line for line in lines if not LINE.fullmatch(line) or "direction " in line] == []
        assert sum("subgraph" in line for line in lines) == lines.count("    end") + lines.count("        end")


@pytest.mark.parametrize("name", ALL)
def test_mermaid_joins_what_is_cabled(name: str) -> None:
    made, picture = render_mermaid.render(ALL[name]), ALL[name]
    labels = dict(re.findall(r"^ +(\w+)\[\"(.*)\"\]$", made, re.MULTILINE))
    joined = re.findall(r"(\w+) ---\|.*\| (\w+)$", made, re.MULTILINE)
    assert len(joined) == len(picture.edges)
    assert len(set(joined)) == len(joined)
    halves = {port.name: port.halves for node in picture.nodes for port in node.ports}
    for (one, other), edge in zip(joined, picture.edges, strict=True):
        near, far = (labels[other], labels[one]) if edge.wanted.lanes else (labels[one], labels[other])
        assert halves[edge.a][0].address in near
        assert (edge.b.split("/")[1] if edge.wanted.lanes else halves[edge.b][0].address) in far


BAD = '"]>&<b>--></svg>]]>`;%%{}\\N\\\n\x1b[31m\x00 end direction TB style:#35; |x| [red]é \u202e'


def hostile(picture: Topology) -> Topology:
    """The same picture, with every word of the rack and of the machines made as bad as can be."""

    def worse(part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            part.pop("state", None)
            return {name: worse(value, name) for name, value in part.items()}
        if isinstance(part, list):
            return [worse(value) for value in part]
        return part + BAD if isinstance(part, str) and key not in ("schema", "topology") else part

    return Topology.model_validate_json(json.dumps(worse(json.loads(picture.json_text()))))


@each_format
@pytest.mark.parametrize("name", ["switch troubled", "ring troubled", "vlans fine"])
def test_hostile_words_stay_words(form: str, name: str) -> None:
    made = FORMATS[form](hostile(ALL[name]))
    assert "\x1b" not in made
    assert "\x00" not in made
    assert made.count(BAD[:8]) > 2 if form != "mermaid" else '"#34;' not in made
    if form == "text":
        assert "[red]" in made
    elif form == "svg":
        assert " ".join(printable_line(BAD).split()) in made
    else:
        assert "#27;" not in made


@needs_dot
def test_hostile_words_change_nothing_else_of_an_svg() -> None:
    def tags(picture: Topology) -> set[str]:
        return {one.tag.rpartition("}")[2] for one in ElementTree.fromstring(render_svg.render(picture)).iter()}  # noqa: S314

    assert (
        tags(hostile(ALL["switch troubled"])) == tags(ALL["switch troubled"]) == {"svg", "g", "path", "polygon", "text"}
    )


@needs_dot
@pytest.mark.parametrize("name", ["eight troubled", "ring declared"])
def test_svg_stands_alone_and_is_always_the_same(name: str) -> None:
    made = render_svg.render(ALL[name])
    assert made.startswith("<svg ")
    assert made.endswith("</svg>\n")
    for word in ("<!", "<?", "href", "url(", "@import", "<script", "<title", "graphviz"):
        assert word not in made, word
    assert set(re.findall(r"https?://[^\"/]+", made)) == {"http://www.w3.org"}
    assert render_svg.render(ALL[name]) == made


@needs_dot
def test_states_differ_by_more_than_colour() -> None:
    made = render_svg.render(ALL["eight troubled"])
    assert "stroke-dasharray" in made
    assert 'stroke-width="2"' in made
    assert "stroke-dasharray" not in render_svg.render(ALL["eight fine"])


def program(folder: Path, text: str) -> str:
    """A program in place of Graphviz's."""
    path = folder / "dot"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Error: syntax error' >&2; echo more >&2; exit 1", "drew nothing: Error: syntax error"),
        ("exit 3", "drew nothing: exit 3"),
        ("echo '<svg>'; exit 1", "drew nothing: exit 1"),
        ("echo hello", "drew nothing: exit 0"),
        ("exec sleep 20", "did not end within 0.2 s"),
    ],
)
def test_a_program_that_fails(script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_svg, "PROGRAM", program(tmp_path, script))
    if "sleep" in script:
        monkeypatch.setattr(render_svg, "LAYOUT_SECONDS", 0.2)
    with pytest.raises(render_svg.DrawingError, match=re.escape(why)):
        render_svg.render(ALL["direct declared"])


@pytest.mark.parametrize("there", [False, True], ids=["missing", "no program"])
def test_no_program(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_svg, "PROGRAM", str(tmp_path / "dot"))
    if there:
        (tmp_path / "dot").write_text("")
    with pytest.raises(
        render_svg.DrawingError, match="cannot be started: Permission" if there else "install .* graphviz"
    ):
        render_svg.render(ALL["direct declared"])
