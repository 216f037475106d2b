"""What is drawn of a rack, its JSON, and what a limit leaves."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from sparkrack.topology.build import draw
from sparkrack.topology.model import DesiredLink, Edge, SeenLink, State, Topology
from tests.unit.model.racks import JOINED, loaded, node, switch
from tests.unit.topology.answers import RACKS, answers

TWO_SWITCHES = loaded(
    "rack: both\naccess: {user: ops, key: k, known_hosts: h}\nnodes:\n"
    + node("a", 0, {1: "up/qsfp56-1-1"})
    + node("b", 1, {1: "down/sfp56-2"})
    + "switches:\n"
    + switch("up", 0, {"qsfp56-1": "2x100G", "qsfp56-2": "1x200G"})
    + switch("down", 1, {"sfp56-2": "1x50G"})
    + JOINED
)


@pytest.mark.parametrize(
    ("limit", "nodes", "cages", "edges"),
    [
        ((), "a b", "qsfp56-1 qsfp56-2 sfp56-2", ["a/1", "b/1"]),
        (("a",), "a", "qsfp56-1", ["a/1"]),
        (("up",), "a", "qsfp56-1 qsfp56-2", ["a/1"]),
        (("b", "down"), "b", "sfp56-2", ["b/1"]),
    ],
)
def test_a_limit(limit: tuple[str, ...], nodes: str, cages: str, edges: list[str]) -> None:
    picture = draw(TWO_SWITCHES, None, limit)
    assert [one.name for one in picture.nodes] == nodes.split()
    assert [cage.name for one in picture.switches for cage in one.cages] == cages.split()
    assert all(one.cages for one in picture.switches)
    assert [edge.a for edge in picture.edges] == edges


def test_a_limit_of_a_ring_leaves_both_ends() -> None:
    picture = draw(RACKS["ring"], None, ["spark1"])
    assert [(edge.a, edge.b) for edge in picture.edges] == [("spark1/0", "spark2/1"), ("spark1/1", "spark3/0")]
    ports = {one.name: [port.name for port in one.ports] for one in picture.nodes}
    assert ports == {"spark1": ["spark1/0", "spark1/1"], "spark2": ["spark2/1"], "spark3": ["spark3/0"]}


def test_free_legs_are_drawn() -> None:
    (box,) = draw(RACKS["switch"]).switches
    assert [(leg.interface, leg.port) for leg in box.cages[0].legs] == [
        ("qsfp56-dd-1-1", "spark1/1"),
        ("qsfp56-dd-1-3", "spark2/1"),
        ("qsfp56-dd-1-5", None),
        ("qsfp56-dd-1-7", None),
    ]


@pytest.mark.parametrize("name", RACKS)
def test_every_end_of_an_edge_is_drawn(name: str) -> None:
    picture = draw(RACKS[name])
    ends = {port.name for one in picture.nodes for port in one.ports}
    ends |= {leg.name for one in picture.switches for cage in one.cages for leg in cage.legs if leg.port}
    assert {end for edge in picture.edges for end in (edge.a, edge.b)} == ends


def test_json() -> None:
    picture = draw(RACKS["vlans"], answers(RACKS["vlans"]).seen())
    data = json.loads(picture.json_text())
    assert list(data) == ["schema", "rack", "topology", "compared", "nodes", "switches", "edges"]
    assert data["schema"] == "sparkrack.topology/1"
    edge = data["edges"][1]
    assert (edge["a"], edge["b"], edge["state"]) == ("spark2/0", "crs812/qsfp56-1-3", "fine")
    assert edge["wanted"] == {"gbps": 50, "lanes": [3, 4], "mtu": 9000}
    assert edge["seen"]["leg"] == {"status": "link-ok", "gbps": 50.0, "mtu": 9000, "l2mtu": 9500}
    assert edge["seen"]["behind"] == ["qsfp56-1-3"]
    assert edge["seen"]["halves"][1] == {
        "name": "spark2/enP2p1s0f0np0",
        "carrier": True,
        "gbps": 50.0,
        "mtu": 9000,
        "addresses": ["192.168.101.2/24"],
    }
    half = data["nodes"][1]["ports"][0]["halves"][1]
    assert half == {"interface": "enP2p1s0f0np0", "device": "fabric1", "address": "192.168.101.2/24", "vlan": 1101}


@pytest.mark.parametrize(
    ("seen", "mismatches", "unknown", "state"),
    [
        (False, (), (), "declared"),
        (True, (), (), "fine"),
        (True, (), ("x",), "unknown"),
        (False, (), ("x",), "unknown"),
        (True, ("y",), ("x",), "mismatch"),
        (True, ("y",), (), "mismatch"),
    ],
)
def test_the_state_of_an_edge(seen: bool, mismatches: tuple[str, ...], unknown: tuple[str, ...], state: State) -> None:
    there = SeenLink(halves=(), leg=None, behind=None) if seen else None
    wanted = DesiredLink(gbps=100, lanes=(), mtu=9000)
    edge = Edge(a="a/1", b="b/1", wanted=wanted, seen=there, mismatches=mismatches, unknown=unknown)
    assert edge.state == state


def test_a_picture_does_not_change() -> None:
    picture: Topology = draw(RACKS["ring"])
    with pytest.raises(ValidationError):
        picture.rack = "other"  # type: ignore[misc]
