"""Every way in which a link is not as declared, or is unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core.model import Port
from sparkrack.topology.build import draw
from sparkrack.topology.model import Edge
from sparkrack.topology.observed import Observations
from tests.unit.topology.answers import RACKS, Answers, Card, Change, answers, cards, node

BOTH = "spark2 enp1s0f1np1 and enP2p1s0f1np1"


def edge_of(rack: str, change: Change, end: str) -> Edge:
    reported = answers(RACKS[rack])
    change(reported)
    picture = draw(RACKS[rack], reported.seen())
    assert picture.compared
    return next(edge for edge in picture.edges if end in (edge.a, edge.b))


def part(name: str, key: str, value: str | None) -> Change:
    """The switch says otherwise of the leg of spark2, or nothing."""

    def apply(reported: Answers) -> None:
        row = getattr(reported, name)["qsfp56-dd-1-3"]
        row.pop(key) if value is None else row.update({key: value})

    return apply


def address(*texts: str) -> Callable[[Card], object]:
    return lambda card: card.device.update(
        addr_info=[{"family": "inet", "local": text.split("/")[0], "prefixlen": 24} for text in texts]
    )


def one_half(reported: Answers) -> None:
    half = Port("spark2", 1).halves[1]
    reported.cards[half] = None


def swapped(reported: Answers) -> None:
    legs = {"qsfp56-dd-1-1": "qsfp56-dd-1-3", "qsfp56-dd-1-3": "qsfp56-dd-1-1"}
    reported.heard.update({mac: legs[leg] for mac, leg in reported.heard.items()})


def behind(leg: str) -> Change:
    """spark2 is heard behind this leg, or behind none."""

    def apply(reported: Answers) -> None:
        for card in cards(reported, "spark2"):
            reported.heard.pop(card.mac.lower())
            if leg:
                reported.heard[card.mac.lower()] = leg

    return apply


@pytest.mark.parametrize("rack", RACKS)
def test_as_declared(rack: str) -> None:
    picture = draw(RACKS[rack], answers(RACKS[rack]).seen())
    assert {(edge.state, edge.mismatches, edge.unknown) for edge in picture.edges} == (
        {("fine", (), ())} if picture.edges else set()
    )
    for edge in picture.edges:
        assert edge.seen
        assert {half.gbps for half in edge.seen.halves} == {edge.wanted.gbps}
        assert all(half.addresses and half.carrier for half in edge.seen.halves)
        assert bool(edge.seen.leg) == bool(edge.wanted.lanes)
        if edge.wanted.lanes:
            assert edge.seen.behind == (edge.b.split("/")[1],)


MISMATCHES: list[tuple[Change, str]] = [
    (part("monitor", "rate", "50Gbps"), "leg qsfp56-dd-1-3 is at 50G, wanted 100G"),
    (part("monitor", "status", "no-link"), "leg qsfp56-dd-1-3: no carrier (the switch reports no-link)"),
    (part("monitor", "status", "initializing"), "leg qsfp56-dd-1-3: no carrier (the switch reports initializing)"),
    (part("ethernet", "mtu", "1500"), "leg qsfp56-dd-1-3: MTU 1500, wanted 9000"),
    (part("ethernet", "l2mtu", "1584"), "leg qsfp56-dd-1-3: L2MTU 1584, wanted 9500"),
    (node("spark2", lambda card: setattr(card, "link", "no")), f"{BOTH}: no carrier"),
    (node("spark2", lambda card: setattr(card, "speed", "50000Mb/s")), f"{BOTH}: is at 50G, wanted 100G"),
    (node("spark2", lambda card: setattr(card, "speed", "2500Mb/s")), f"{BOTH}: is at 2.5G, wanted 100G"),
    (node("spark2", lambda card: card.device.update(mtu=1500)), f"{BOTH}: MTU 1500, wanted 9000"),
    (one_half, "spark2 enP2p1s0f1np1: there is no such interface"),
    (
        swapped,
        (
            "spark2 is on leg crs812/qsfp56-dd-1-1, where spark1 should be; spark1 is on leg crs812/qsfp56-dd-1-3, "
            "where spark2 should be"
        ),
    ),
    (
        behind("qsfp56-dd-1-7"),
        "spark2 is on leg crs812/qsfp56-dd-1-7, where rack.yaml has no node; it should be on leg crs812/qsfp56-dd-1-3",
    ),
    (
        behind(""),
        "spark2 should be on leg crs812/qsfp56-dd-1-3; the switch hears enp1s0f1np1 and enP2p1s0f1np1 behind no port",
    ),
]


@pytest.mark.parametrize(("change", "text"), MISMATCHES, ids=[text for _, text in MISMATCHES])
def test_a_mismatch(change: Change, text: str) -> None:
    edge = edge_of("switch", change, "spark2/1")
    assert (edge.state, edge.mismatches, edge.unknown) == ("mismatch", (text,), ())
    other = edge_of("switch", change, "spark1/1")
    assert other.state == ("mismatch" if change is swapped else "fine")


def test_addresses_that_are_others() -> None:
    edge = edge_of("switch", node("spark2", address("192.168.100.9/24", "192.168.9.9/24")), "spark2/1")
    assert edge.mismatches == (
        "spark2 enp1s0f1np1: address 192.168.100.9/24, 192.168.9.9/24, wanted 192.168.100.2/24",
        "spark2 enP2p1s0f1np1: address 192.168.100.9/24, 192.168.9.9/24, wanted 192.168.101.2/24",
    )
    one = edge_of("switch", node("spark2", address("192.168.100.2/24", "10.1.1.1/24")), "spark2/1").mismatches[0]
    assert one == "spark2 enp1s0f1np1: address 192.168.100.2/24, 10.1.1.1/24, wanted 192.168.100.2/24"
    assert edge_of("switch", node("spark2", address()), "spark2/1").mismatches == (
        "spark2 enp1s0f1np1: address none, wanted 192.168.100.2/24",
        "spark2 enP2p1s0f1np1: address none, wanted 192.168.101.2/24",
    )


UNKNOWN: list[tuple[Change, str]] = [
    (lambda reported: reported.silent.update(spark2="cannot be asked: no route"), "spark2: cannot be asked: no route"),
    (
        lambda reported: reported.silent.update(crs812="crs812 could not be read over REST: refused"),
        "crs812 could not be read over REST: refused",
    ),
    (part("monitor", "status", None), "leg qsfp56-dd-1-3: the switch does not report whether it is linked"),
    (part("monitor", "status", "unknown"), "leg qsfp56-dd-1-3: the switch does not report whether it is linked"),
    (part("monitor", "rate", None), "leg qsfp56-dd-1-3: its speed is unknown"),
    (part("monitor", "rate", "soon"), "leg qsfp56-dd-1-3: its speed is unknown"),
    (part("ethernet", "mtu", None), "leg qsfp56-dd-1-3: MTU unknown"),
    (part("ethernet", "l2mtu", "much"), "leg qsfp56-dd-1-3: L2MTU unknown"),
    (node("spark2", lambda card: setattr(card, "speed", "Unknown!")), f"{BOTH}: its speed is unknown"),
    (
        node("spark2", lambda card: setattr(card, "link", "perhaps")),
        f"{BOTH}: whether there is a carrier is unknown (ethtool: Settings for x:)",
    ),
    (node("spark2", lambda card: card.device.pop("mtu")), f"{BOTH}: MTU unknown"),
]


@pytest.mark.parametrize(("change", "text"), UNKNOWN, ids=[text for _, text in UNKNOWN])
def test_what_is_unknown_is_not_fine(change: Change, text: str) -> None:
    edge = edge_of("switch", change, "spark2/1")
    assert (edge.state, edge.mismatches, edge.unknown) == ("unknown", (), (text,))


def test_what_no_one_was_asked() -> None:
    (edge,) = draw(RACKS["switch"], Observations(), ["spark2"]).edges
    assert edge.unknown == ("spark2: was not asked", "crs812 was not asked")
    assert edge.seen is None


def test_a_mismatch_beside_what_is_unknown() -> None:
    edge = edge_of(
        "direct", lambda reported: (reported.silent.update(right="gone"), node("left", mtu)(reported)), "left/1"
    )
    assert edge.state == "mismatch"
    assert edge.unknown == ("right: gone",)
    assert edge.mismatches == ("left enp1s0f1np1 and enP2p1s0f1np1: MTU 1500, wanted 9000",)


def mtu(card: Card) -> None:
    card.device["mtu"] = 1500


def test_a_cable_between_nodes_has_two_ends() -> None:
    edge = edge_of("ring", node("spark3", lambda card: setattr(card, "speed", "100000Mb/s")), "spark2/0")
    assert edge.b == "spark3/1"
    assert edge.mismatches == ("spark3 enp1s0f1np1 and enP2p1s0f1np1: is at 100G, wanted 200G",)


VLANS: list[tuple[Callable[[Card], object], tuple[str, ...]]] = [
    (lambda card: card.vlan.update(mtu=1500), ("fabric0: MTU 1500, wanted 9000", "fabric1: MTU 1500, wanted 9000")),
    (lambda card: card.vlan.clear(), ("there is no fabric0", "there is no fabric1")),
    (
        lambda card: card.vlan["linkinfo"]["info_data"].update(id=7),
        ("fabric0: VLAN 7, wanted 1100", "fabric1: VLAN 7, wanted 1101"),
    ),
    (
        lambda card: card.vlan.pop("linkinfo"),
        ("fabric0: VLAN none, wanted 1100", "fabric1: VLAN none, wanted 1101"),
    ),
    (
        lambda card: card.vlan.update(addr_info=[]),
        ("fabric0: address none, wanted 192.168.100.1/24", "fabric1: address none, wanted 192.168.101.1/24"),
    ),
]


@pytest.mark.parametrize(("change", "texts"), VLANS, ids=[texts[0] for _, texts in VLANS])
def test_a_vlan_that_is_otherwise(change: Callable[[Card], object], texts: tuple[str, ...]) -> None:
    edge = edge_of("vlans", node("spark1", change), "spark1/1")
    first, second = (f"spark1 {half.interface}" for half in Port("spark1", 1).halves)
    assert edge.mismatches == (f"{first}: {texts[0]}", f"{second}: {texts[1]}")


def test_an_address_below_the_vlan() -> None:
    edge = edge_of("vlans", node("spark1", address("10.1.1.1/24")), "spark1/1")
    assert edge.mismatches == (
        "spark1 enp1s0f1np1 and enP2p1s0f1np1: has address 10.1.1.1/24 below its VLAN, wanted none",
    )


def test_a_port_without_carrier_is_a_mismatch_and_not_behind_another_leg() -> None:
    def cut(reported: Answers) -> None:
        behind("")(reported)
        node("spark2", lambda card: setattr(card, "link", "no"))(reported)

    edge = edge_of("switch", cut, "spark2/1")
    assert edge.mismatches == (f"{BOTH}: no carrier",)
    assert edge.seen
    assert edge.seen.behind == ()


def test_words_of_machines_are_one_line_without_controls() -> None:
    def rude(reported: Answers) -> None:
        reported.silent["spark1"] = "first\n\x1b[31msecond"
        reported.monitor["qsfp56-dd-1-3"]["status"] = "\x07" * 1000
        node("spark2", address("\x1b]0;x\x07/24"))(reported)

    for end in ("spark1/1", "spark2/1"):
        edge = edge_of("switch", rude, end)
        for text in (*edge.mismatches, *edge.unknown):
            assert text.isprintable()
            assert len(text) < 400
