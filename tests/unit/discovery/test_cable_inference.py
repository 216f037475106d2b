"""Where a cable ends, by what machines hear; what they do not tell is not guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.model import Half
from sparkrack.discovery.describe import describe
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.switch_facts import Neighbour, SwitchFacts
from tests.unit.discovery.worlds import World, mac, world
from tests.unit.model.racks import DIRECT, SWITCH, loaded
from tests.unit.switch.rows import reading, row

FIRST = [Half("spark1", 1, index) for index in (0, 1)]
SECOND = [Half("spark2", 1, index) for index in (0, 1)]


@pytest.fixture
def found() -> World:
    return world(loaded(SWITCH))


def missing(found: World) -> str:
    return "\n".join(str(gap) for gap in found.sheet().missing)


def test_a_node_that_no_switch_hears_has_a_gap(found: World) -> None:
    found.hosts["crs812"] = {mac(half): "qsfp56-dd-1-1" for half in FIRST}
    assert missing(found) == "nodes.spark2.ports: no machine reports where its cable ends"


def test_swapped_cables_are_described_as_they_are(found: World) -> None:
    places = {mac(half): "qsfp56-dd-1-3" for half in FIRST} | {mac(half): "qsfp56-dd-1-1" for half in SECOND}
    found.hosts["crs812"] = places
    assert {name: dict(node.ports) for name, node in found.adopted().nodes.items()} == {
        "spark1": {1: "crs812/qsfp56-dd-1-3"},
        "spark2": {1: "crs812/qsfp56-dd-1-1"},
    }


def test_halves_that_are_heard_at_two_places_are_reported(found: World) -> None:
    found.hosts["crs812"][mac(FIRST[1])] = "qsfp56-dd-1-5"
    assert (
        "nodes.spark1.ports: port 1 was learned at several places: crs812/qsfp56-dd-1-1, crs812/qsfp56-dd-1-5"
        in missing(found)
    )


def test_two_nodes_on_one_leg_are_reported(found: World) -> None:
    found.hosts["crs812"] = {mac(half): "qsfp56-dd-1-1" for half in (*FIRST, *SECOND)}
    assert "nodes.spark1.ports: port 1 was learned at crs812/qsfp56-dd-1-1, and so was spark2/1" in missing(found)
    assert "nodes.spark2.ports: port 1 was learned at crs812/qsfp56-dd-1-1, and so was spark1/1" in missing(found)


def test_a_neighbour_by_protocol_tells_where_no_address_was_heard(found: World) -> None:
    found.hosts["crs812"] = {}
    heard = found.found()
    (box,) = heard.boxes.values()
    assert box.facts
    told = tuple(
        Neighbour(place, mac(half[0]), "spark") for half, place in ((FIRST, "qsfp56-dd-1-1"), (SECOND, "qsfp56-dd-1-3"))
    )
    boxes = {"crs812": replace(box, facts=replace(box.facts, neighbours=told))}
    sheet = describe(replace(heard, boxes=boxes), live=True)
    assert sheet.missing == []
    assert sheet.data["nodes"]["spark2"]["ports"] == {1: "crs812/qsfp56-dd-1-3"}


def test_nodes_behind_a_switch_that_was_not_read_are_not_taken_for_a_pair(found: World) -> None:
    heard = found.found()
    (box,) = heard.boxes.values()
    sheet = describe(replace(heard, boxes={"crs812": replace(box, facts=None, why="it is off")}), live=False)
    assert {name: node["ports"] for name, node in sheet.data["nodes"].items()} == {"spark1": {}, "spark2": {}}


def test_a_pair_without_addresses_is_reported_by_its_neighbours() -> None:
    rack = loaded(DIRECT)
    found = world(rack)
    (cable,) = rack.cabling.cables
    ends = {port.node: port for port in cable.ports}
    for node, port in ends.items():
        for half in port.halves:
            found.address(half)
        (peer,) = (other for other in ends.values() if other.node != node)
        rows = [
            {"dst": "fe80::1", "dev": own.interface, "lladdr": mac(other).upper(), "state": ["REACHABLE"]}
            for own, other in zip(port.halves, peer.halves, strict=True)
        ]
        found.say(node, "neighbours", json.dumps(rows))
    assert found.adopted().cabling == rack.cabling


def negotiating(found: World, rates: Mapping[str, str]) -> RackDraft:
    """The draft where cage qsfp56-dd-1 negotiates and its legs came up at `rates`."""
    tables = found.tables["crs812"]
    for lane in range(1, 9):
        port = row(tables, f"qsfp56-dd-1-{lane}")
        port["auto-negotiation"] = "true"
    monitor = {name: {"rate": rate} for name, rate in rates.items()}
    found.seen["crs812"] = SwitchFacts("crs812", reading(tables), found.hosts["crs812"], (), monitor)
    return found.sheet()


def test_a_cage_that_negotiates_has_the_split_of_what_came_up_and_is_not_forced(found: World) -> None:
    sheet = negotiating(found, {"qsfp56-dd-1-1": "100Gbps", "qsfp56-dd-1-3": "100Gbps"})
    assert sheet.data["switches"]["crs812"]["cages"]["qsfp56-dd-1"] == {
        "split": "4x100G",
        "speed": "negotiated",
        "fec": "fec91",
    }
    assert sheet.missing == []


@pytest.mark.parametrize(
    "rates", [{}, {"qsfp56-dd-1-1": "400Gbps"}, {"qsfp56-dd-1-1": "100Gbps", "qsfp56-dd-1-3": "50Gbps"}]
)
def test_a_cage_that_negotiates_without_a_split_that_fits_is_a_gap_and_no_default(
    found: World, rates: dict[str, str]
) -> None:
    sheet = negotiating(found, rates)
    assert "qsfp56-dd-1" not in sheet.data["switches"]["crs812"]["cages"]
    assert "switches.crs812.cages: qsfp56-dd-1 negotiates its speed" in "\n".join(map(str, sheet.unrepresentable))
    assert sheet.data["switches"]["crs812"]["l2mtu"] == 9500, "the nodes' legs are known, whatever their split is"


@pytest.mark.parametrize(
    ("modes", "fec", "gap"),
    [
        (["fec91"] * 4, None, ""),
        (["auto"] * 4, "auto", ""),
        (["fec74"] * 4, None, "fec74"),
        (["auto", *["fec91"] * 3], None, "auto, fec91"),
    ],
)
def test_the_fec_of_a_cage_is_written_where_another_is_the_default(
    found: World, modes: list[str], fec: str | None, gap: str
) -> None:
    for lane, mode in zip((1, 3, 5, 7), modes, strict=True):
        row(found.tables["crs812"], f"qsfp56-dd-1-{lane}")["fec-mode"] = mode
    sheet = found.sheet(live=True)
    assert sheet.data["switches"]["crs812"]["cages"]["qsfp56-dd-1"].get("fec") == fec
    reported = [str(one) for one in sheet.unrepresentable if "fec-mode" in str(one)]
    text = f"switches.crs812.cages: qsfp56-dd-1 has fec-mode {gap}, and legs of 4x100G need one mode, auto or fec91; "
    assert reported == ([f"{text}a run sets fec91"] if gap else [])


def test_a_cage_that_is_no_split_is_reported_and_left_alone(found: World) -> None:
    port = row(found.tables["crs812"], "qsfp56-dd-2-1")
    port |= {"auto-negotiation": "false", "speed": "200G-baseCR4"}
    told = "\n".join(str(gap) for gap in found.sheet().unrepresentable)
    assert "qsfp56-dd-2 is lane 1 200G-baseCR4, lanes 2-8 auto-negotiated, which is no split; it is left alone" in told
    assert found.residue() == ()


def test_a_function_that_no_gb10_has_is_a_gap(found: World) -> None:
    found.say("spark1", "functions", "enp1s0f1np1 0000:01:00.1", "ens5f0 0001:05:00.0")
    assert "nodes.spark1.ports: ens5f0 at PCIe 0001:05:00.0 is no function that a GB10 has" in missing(found)


def test_what_the_user_says_goes_before_what_is_heard(found: World) -> None:
    heard = found.found()
    nodes = {**heard.nodes, "spark1": replace(heard.nodes["spark1"], ports={0: "crs812/qsfp56-dd-1-7"}, vendor="hp")}
    data = describe(replace(heard, nodes=nodes), live=True).data["nodes"]["spark1"]
    assert (data["ports"], data["vendor"]) == ({0: "crs812/qsfp56-dd-1-7"}, "hp")


def test_a_vendor_that_dmi_does_not_name_is_a_gap(found: World) -> None:
    found.say("spark1", "maker", "ACME \x1b[2J Corp")
    found.say("spark1", "board", "ACME")
    assert "nodes.spark1.vendor: its DMI table has ACME \\x1b[2J Corp" in missing(found)
