"""docs/reference/topology.md shows what the command draws."""

from __future__ import annotations

import json

from sparkrack.topology import render_mermaid
from sparkrack.topology.build import draw
from sparkrack.topology.model import Edge, Topology
from sparkrack.topology.render_text import plain
from tests import generated
from tests.unit.topology.answers import RACKS, Answers, answers, cards

DOCUMENT = "docs/reference/topology.md"


def in_trouble(reported: Answers) -> None:
    """Two cables are swapped, one node runs with a small MTU, one leg is slow, one node does not answer."""
    legs = {"qsfp56-dd-1-3": "qsfp56-dd-1-5", "qsfp56-dd-1-5": "qsfp56-dd-1-3"}
    reported.heard.update({mac: legs.get(leg, leg) for mac, leg in reported.heard.items()})
    for card in cards(reported, "spark4"):
        card.device["mtu"] = 1500
    slow(reported)
    reported.silent["spark6"] = "cannot be asked: ssh: connect to host 10.77.0.16 port 22: No route to host"


def slow(reported: Answers) -> None:
    reported.monitor["qsfp56-dd-2-1"]["rate"] = "50Gbps"
    for card in cards(reported, "spark5"):
        card.speed = "50000Mb/s"


def test_the_reference() -> None:
    rack = RACKS["eight"]
    generated.check(DOCUMENT, "text", plain(draw(rack)))
    generated.check(DOCUMENT, "mermaid", render_mermaid.render(draw(rack)))
    reported = answers(rack)
    in_trouble(reported)
    generated.check(DOCUMENT, "seen", plain(draw(rack, reported.seen())))
    (edge,) = (one for one in draw(rack, reported.seen()).edges if one.a == "spark5/1")
    generated.check(DOCUMENT, "edge", json.dumps(json.loads(edge.model_dump_json()), indent=1) + "\n")


def test_every_state_and_key_is_explained() -> None:
    text = (generated.REPOSITORY / DOCUMENT).read_text()
    states = ("declared", "fine", "mismatch", "unknown")
    for name in (*Topology.model_fields, *Edge.model_fields, "behind", "state", *states):
        assert name.rstrip("_") in text, name
