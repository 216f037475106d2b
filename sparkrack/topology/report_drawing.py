"""The rack as it is drawn in the report of a verification."""

from __future__ import annotations

from dataclasses import replace

from core.model import Rack
from core.model.errors import reason
from core.util.progress import ProgressObserver
from core.verify import report_html
from sparkrack.topology import labels
from sparkrack.topology.build import draw
from sparkrack.topology.collect import collect_observations
from sparkrack.topology.model import Edge
from sparkrack.topology.render_dot import DARK
from sparkrack.topology.render_svg import DrawingError, render

LINK_ROLES = {"fabric", "switch"}
"""The roles whose checks are about links; without them a verification does not observe the links."""


def report_drawing(
    rack: Rack, machines: list[str], roles: list[str], excluded: set[str], progress: ProgressObserver
) -> report_html.Drawing:
    """Draw the checked part of the rack, with its actual links if the roles that bring the links up were checked."""
    limit = () if set(machines) == {*rack.nodes, *rack.switches} else machines
    observed, missing = None, "this run checked neither the fabric nor the switch"
    if LINK_ROLES & set(roles):
        try:
            observed, missing = collect_observations(rack, limit, excluded, progress), ""
        except OSError as fault:
            missing = f"the observation ended with an error: {reason(fault)}"
    picture = draw(rack, observed, limit)
    words = report_html.Drawing(links=tuple(map(_drawn_link, picture.edges)), not_compared=missing)
    try:
        return replace(words, svg=render(picture), dark=render(picture, DARK))
    except DrawingError as fault:
        return replace(words, why=str(fault))


def _drawn_link(edge: Edge) -> report_html.DrawnLink:
    texts = tuple(text for state, text in labels.findings(edge) if state != "fine")
    desired, actual = (", ".join(words) for words in (labels.wanted(edge), labels.actual(edge)))
    return report_html.DrawnLink((edge.a, edge.b), desired, actual, edge.state, texts)
