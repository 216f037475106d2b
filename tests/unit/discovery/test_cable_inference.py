"""Where a cable ends, by what machines hear; what they do not tell is not guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from core.model import ConfigError, Half
from sparkrack.discovery.describe import FoundNode, FoundRack, FoundSwitch, describe
from sparkrack.discovery.draft import RackDraft
from sparkrack.discovery.switch_facts import Neighbour, SwitchFacts
from sparkrack.discovery.yaml_writer import text
from tests.unit.discovery.worlds import World, answers, mac, world
from tests.unit.model.racks import ACCESS, DIRECT, SUBNETS, SWITCH, loaded, switch
from tests.unit.model.racks import node as node_line
from tests.unit.switch.rows import factory, reading, row

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
    printed = tuple(
        Neighbour(place, mac(half[0]), "spark") for half, place in ((FIRST, "qsfp56-dd-1-1"), (SECOND, "qsfp56-dd-1-3"))
    )
    boxes = {"crs812": replace(box, facts=replace(box.facts, neighbours=printed))}
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


def test_init_declares_a_cage_that_negotiates_as_forced(found: World) -> None:
    negotiating(found, {"qsfp56-dd-1-1": "100Gbps", "qsfp56-dd-1-3": "100Gbps"})
    assert found.sheet(live=False).data["switches"]["crs812"]["cages"]["qsfp56-dd-1"] == {"split": "4x100G"}


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


def test_a_cage_that_is_not_a_split_is_reported_and_left_alone(found: World) -> None:
    port = row(found.tables["crs812"], "qsfp56-dd-2-1")
    port |= {"auto-negotiation": "false", "speed": "200G-baseCR4"}
    printed = "\n".join(str(gap) for gap in found.sheet().unrepresentable)
    assert (
        "qsfp56-dd-2 is lane 1 200G-baseCR4, lanes 2-8 auto-negotiated, which is not a split; it is left alone"
        in printed
    )
    assert found.residue() == ()


def test_a_function_that_no_gb10_has_is_a_gap(found: World) -> None:
    found.say("spark1", "functions", "enp1s0f1np1 0000:01:00.1", "ens5f0 0001:05:00.0")
    assert "nodes.spark1.ports: ens5f0 at PCIe 0001:05:00.0 is not a function that a GB10 has" in missing(found)


def test_what_the_user_says_goes_before_what_is_heard(found: World) -> None:
    heard = found.found()
    nodes = {**heard.nodes, "spark1": replace(heard.nodes["spark1"], ports={0: "crs812/qsfp56-dd-1-7"}, vendor="hp")}
    data = describe(replace(heard, nodes=nodes), live=True).data["nodes"]["spark1"]
    assert (data["ports"], data["vendor"]) == ({0: "crs812/qsfp56-dd-1-7"}, "hp")


def test_a_vendor_that_dmi_does_not_name_is_a_gap(found: World) -> None:
    found.say("spark1", "maker", "ACME \x1b[2J Corp")
    found.say("spark1", "board", "ACME")
    assert "nodes.spark1.vendor: its DMI table has ACME \\x1b[2J Corp" in missing(found)


LINK = "qsfp56-dd-2-1"
OWN = {"crs812a": ("n0", "n1", "n2"), "crs812b": ("n3", "n4", "n5")}
LEGS = ("qsfp56-dd-1-1", "qsfp56-dd-1-5", "qsfp56-1-1")
CAGES = {"qsfp56-dd-1": "2x200G", "qsfp56-dd-2": "2x200G", "qsfp56-1": "1x200G", "qsfp56-2": "1x200G"}


def two_switches(
    own: Mapping[str, tuple[str, ...]], *, behind: str = LINK, neighbours: bool = False, negotiates: bool = False
) -> FoundRack:
    """Nodes on two switches with a cable between them, each of which hears all nodes. `behind`: the interface that the
    cable is on. neighbours: the switches know each other by a discovery protocol. negotiates: the cable's cages do."""
    names = [name for mine in own.values() for name in mine]
    places = ("qsfp56-dd-1-1", "qsfp56-dd-1-5", "qsfp56-dd-2-1", "qsfp56-dd-2-5", "qsfp56-1-1", "qsfp56-2-1")
    nodes = "".join(node_line(name, number, {1: f"sw/{places[number]}"}) for number, name in enumerate(names))
    one = answers(loaded(f"rack: six\n{ACCESS}nodes:\n{nodes}switches:\n{switch('sw', 0, CAGES)}{SUBNETS}"))
    boxes = {}
    for number, (box, mine) in enumerate(own.items()):
        tables = factory()
        tables["/system/identity"] = [{"name": box}]
        for lane in (*LEGS, LINK):
            speed = "400G-baseCR8" if lane == LINK else "200G-baseCR4"
            row(tables, lane).update({"auto-negotiation": "false", "speed": speed, "fec-mode": "fec91"})
        row(tables, LINK)["auto-negotiation"] = str(negotiates).lower()
        hosts = {
            mac(Half(name, 1, index)): LEGS[mine.index(name)] if name in mine else behind
            for name in names
            for index in (0, 1)
        }
        (other,) = own.keys() - {box}
        near = (Neighbour(behind, "02:00:00:00:00:99", other),) if neighbours else ()
        facts = SwitchFacts(box, reading(tables), hosts, near)
        boxes[box] = FoundSwitch(f"10.78.0.{number + 2}", 8729, "0" * 64, "ops", {"env": "CRS"}, facts)
    facts_of = one.facts()
    found = {name: FoundNode(f"10.77.0.{11 + number}", facts_of[name]) for number, name in enumerate(names)}
    return FoundRack("six", {"user": "ops", "key": "~/.ssh/id_ed25519", "known_hosts": "known_hosts"}, found, boxes)


@pytest.mark.parametrize(
    ("own", "neighbours"),
    [(OWN, False), (OWN, True), ({"crs812a": ("n0",), "crs812b": ("n1",)}, True)],
    ids=["by-nodes", "by-both", "by-neighbours"],
)
def test_a_cable_between_two_switches_is_a_gap_and_each_node_is_on_its_own(
    own: Mapping[str, tuple[str, ...]], neighbours: bool
) -> None:
    sheet = describe(two_switches(own, neighbours=neighbours), live=True)
    assert {name: dict(one["ports"]) for name, one in sheet.data["nodes"].items()} == {
        name: {1: f"{box}/{LEGS[mine.index(name)]}"} for box, mine in own.items() for name in mine
    }
    gaps = "\n".join(map(str, sheet.unrepresentable))
    for box, other in (("crs812a", "crs812b"), ("crs812b", "crs812a")):
        assert LINK.rpartition("-")[0] not in sheet.data["switches"][box]["cages"]
        assert f"switches.{box}.cages: {LINK} leads to {other}, and a cable between two switches cannot be" in gaps
    with pytest.raises(ConfigError, match="needs a cable between the switches, which cannot be declared"):
        loaded(text(sheet))


def test_a_cable_between_two_switches_that_negotiates_is_a_gap() -> None:
    rack = two_switches(OWN, negotiates=True)
    gaps = "\n".join(map(str, describe(rack, live=True).unrepresentable))
    assert f"switches.crs812a.cages: {LINK} leads to crs812b" in gaps


def test_without_a_sign_of_the_other_switch_a_node_is_heard_at_several_places() -> None:
    sheet = describe(two_switches({"crs812a": ("n0",), "crs812b": ("n1",)}), live=True)
    assert "nodes.n0.ports: port 1 was learned at several places" in "\n".join(map(str, sheet.missing))


def test_a_bond_between_two_switches_is_named_with_the_other() -> None:
    rack = two_switches(OWN, behind="isl")
    for box in rack.boxes.values():
        assert box.facts
        tables = box.facts.reading.tables
        slaves = {".id": "*B0", "name": "isl", "slaves": "qsfp56-dd-2-1,qsfp56-dd-2-5", "disabled": "false"}
        tables["/interface/bonding"] = (slaves,)  # type: ignore[index]
    gaps = "\n".join(map(str, describe(rack, live=True).unrepresentable))
    assert "qsfp56-dd-2-1 and qsfp56-dd-2-5 are slaves of the bond isl" in gaps
    assert "it leads to crs812b, and a cable between two switches cannot be declared" in gaps
