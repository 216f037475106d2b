"""Cables: known from both ends, each end used once, and the names of interfaces on both sides."""

from __future__ import annotations

from hypothesis import given

from core.hardware.cage_kinds import cage_kind
from core.model import Cabling, Half, Leg, Port, load
from tests.unit.model.racks import DIRECT, RING, VALID, changed, loaded
from tests.unit.model.random_racks import any_rack, switched


def test_names() -> None:
    port = Port("spark2", 1)
    assert str(port) == "spark2/1"
    assert [half.interface for half in port.halves] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert [half.interface for half in Port("spark2", 0).halves] == ["enp1s0f0np0", "enP2p1s0f0np0"]
    assert str(Half("spark2", 1, 0)) == "spark2/enp1s0f1np1"
    leg = Leg("crs812", "qsfp56-dd-1", 3, (3, 4), 100)
    assert (leg.interface, str(leg)) == ("qsfp56-dd-1-3", "crs812/qsfp56-dd-1-3")
    single = Leg("crs812", "sfp56-8", 1, (1,), 50)
    assert (single.interface, str(single)) == ("sfp56-8", "crs812/sfp56-8")


def test_a_ring_is_known_from_both_ends() -> None:
    rack = load(VALID / "ring.yaml")
    assert rack.topology == "ring"
    assert [(str(c.a), str(c.b), c.gbps) for c in rack.cabling.cables] == [
        ("spark1/0", "spark2/1", 200),
        ("spark1/1", "spark3/0", 200),
        ("spark2/0", "spark3/1", 200),
    ]
    assert rack.nodes["spark3"].ports == {0: "spark1/1"}
    assert rack.cabling.ports_of("spark3") == (Port("spark3", 0), Port("spark3", 1))


def test_a_chain_needs_a_pool_like_a_ring() -> None:
    assert loaded(changed(RING, ("{0: spark1/1}", "{}"))).topology == "ring"


def test_two_cables_between_two_nodes_are_direct() -> None:
    twice = changed(DIRECT, ("{1: right/1}", "{0: right/0, 1: right/1}"))
    with_pool = changed(twice, ("subnets: [192.168.100.0/24, 192.168.101.0/24]", "pool: 10.0.0.0/22"))
    assert loaded(with_pool).topology == "direct"


@given(any_rack)
def test_symmetric(text: str) -> None:
    rack = loaded(text)
    seen: list[Port] = []
    for name in rack.nodes:
        for port in rack.cabling.ports_of(name):
            seen.append(port)
            cable = rack.cabling.cable_of(port)
            assert cable is not None
            assert port in cable.ports
            leg = rack.cabling.leg_of(port)
            if leg:
                assert rack.cabling.port_at(leg.interface, leg.switch) == port
                assert (leg, port) in rack.cabling.legs(leg.switch)
                assert cable.b == leg
                assert cable.gbps == leg.gbps
    assert sorted(seen) == sorted({port for cable in rack.cabling.cables for port in cable.ports})
    assert set(seen) >= {Port(name, number) for name, node in rack.nodes.items() for number in node.ports}
    ranks = list(rack.nodes)
    for cable in rack.cabling.cables:
        if isinstance(cable.b, Port):
            assert ranks.index(cable.a.node) < ranks.index(cable.b.node)
    order = [(ranks.index(cable.a.node), cable.a.number) for cable in rack.cabling.cables]
    assert order == sorted(order)


@given(switched())
def test_lanes_never_overlap(text: str) -> None:
    rack = loaded(text)
    lanes = [(leg.cage, lane) for leg, _ in rack.cabling.legs("sw") for lane in leg.lanes]
    assert len(lanes) == len(set(lanes))
    for leg, _ in rack.cabling.legs("sw"):
        assert leg.lanes[0] == leg.lane
        assert leg.lanes[-1] <= cage_kind(leg.cage).lanes


def test_nothing_cabled() -> None:
    empty = Cabling(())
    port = Port("a", 0)
    assert (empty.cable_of(port), empty.leg_of(port), empty.port_at("qsfp56-1-1", "sw")) == (None, None, None)
    assert (empty.legs("sw"), empty.ports_of("a")) == ((), ())
    assert load(VALID / "direct.yaml").cabling.leg_of(Port("left", 1)) is None
    assert hash(empty) == hash(Cabling([]))
