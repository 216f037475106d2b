"""Who takes an image from whom: on a cable, around a ring, behind a switch; and when a way fails."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ops.distribution import SLOTS, Pull, Route, Routes, Wait, choose, forecast_chain
from tests.unit.model.racks import DIRECT, SUBNETS, loaded, node, ring, switch
from tests.unit.model.random_racks import any_rack

PAIR = Routes(loaded(DIRECT))
RING = Routes(loaded(ring(6, [0] * 6)))
CAGES = {"qsfp56-dd-1": "4x100G", "qsfp56-dd-2": "4x100G"}
EIGHT = Routes(
    loaded(
        "rack: eight\naccess: {user: ops, key: k, known_hosts: h}\nnodes:\n"
        + "".join(node(f"n{n}", n, {1: f"sw/qsfp56-dd-{n // 4 + 1}-{n % 4 * 2 + 1}"}) for n in range(8))
        + f"switches:\n{switch('sw', 0, CAGES)}{SUBNETS}"
    )
)
ALL = [f"n{number}" for number in range(8)]


def says(plan: dict[str, Route | Pull]) -> dict[str, str]:
    return {name: str(way) for name, way in plan.items()}


def test_over_the_cable() -> None:
    assert forecast_chain(PAIR, ["left"], ["right"]) == {"right": Route("right", "left", "192.168.100.1", fabric=True)}
    assert forecast_chain(PAIR, ["right"], ["left"]) == {"left": Route("left", "right", "192.168.100.2", fabric=True)}


def test_the_first_pulls_when_no_one_has_it() -> None:
    assert says(forecast_chain(PAIR, [], ["right", "left"])) == {"left": "outside", "right": "left (fabric)"}


def test_over_management_where_no_fabric_leads() -> None:
    """n2 is between nodes that do not take part."""
    assert says(forecast_chain(RING, ["n0"], ["n2", "n1"])) == {"n1": "n0 (fabric)", "n2": "n1 (fabric)"}
    assert says(forecast_chain(RING, ["n0"], ["n2", "n3"])) == {"n2": "n0 (management)", "n3": "n2 (fabric)"}


def test_no_more_than_its_slots() -> None:
    busy = {"n0": SLOTS, "n1": SLOTS - 1}
    assert choose(EIGHT, "n5", busy, ["n5"], None, ()) == EIGHT.fabric("n5", "n1")[0]
    assert choose(EIGHT, "n5", {"n0": SLOTS}, ["n5"], None, ()) == Wait()


def test_the_least_busy_source_first_then_by_rank() -> None:
    chosen = [choose(EIGHT, "n5", busy, ["n5"], None, ()) for busy in ({"n1": 0, "n0": 1}, {"n1": 0, "n0": 0})]
    assert [str(way) for way in chosen] == ["n1 (fabric)", "n0 (fabric)"]


def test_every_way_is_tried_before_the_world_outside() -> None:
    failed: list[Route] = []
    ways = []
    while isinstance(way := choose(EIGHT, "n5", {"n0": 0, "n1": 0}, ["n5"], None, failed), Route):
        failed.append(way)
        ways.append(f"{way.source} {way.address}")
    assert ways == [
        "n0 192.168.100.1",
        "n0 192.168.101.1",
        "n1 192.168.100.2",
        "n1 192.168.101.2",
        "n0 10.77.0.11",
        "n1 10.77.0.12",
    ]
    assert way == Pull(last_resort=True)


def test_one_pulls_and_the_others_wait() -> None:
    assert choose(EIGHT, "n1", {}, ["n1", "n2"], None, ()) == Pull()
    assert choose(EIGHT, "n2", {}, ["n1", "n2"], None, ()) == Wait()
    assert choose(EIGHT, "n2", {}, ["n2"], None, ()) == Pull(), "the first by rank never began"
    assert choose(EIGHT, "n1", {}, ["n1", "n2"], "n2", ()) == Wait()


def test_a_way_of_another_that_failed_is_no_reason_to_wait_for_it() -> None:
    """n2 would get it through n1, but n1 cannot get it over the fabric."""
    failed = RING.fabric("n1", "n0")
    assert choose(RING, "n2", {"n0": 0}, ["n1", "n2"], None, ()) == Wait()
    assert str(choose(RING, "n2", {"n0": 0}, ["n1", "n2"], None, failed)) == "n0 (management)"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_in_any_rack_each_gets_it_once_and_from_one_that_has_it(data: st.DataObject) -> None:
    roads = Routes(loaded(data.draw(any_rack)))
    names = list(roads.rank)
    sources = data.draw(st.lists(st.sampled_from(names), unique=True))
    lacking = [name for name in names if name not in sources]
    plan = forecast_chain(roads, sources, lacking)
    assert sorted(plan) == sorted(lacking)
    having = set(sources)
    for name, way in plan.items():
        if isinstance(way, Route):
            assert (way.taker, way.source in having) == (name, True)
        else:
            assert not having, "more than one pulls"
        having.add(name)


@pytest.mark.parametrize("size", [3, 5, 8])
def test_in_a_ring_nothing_goes_over_management(size: int) -> None:
    roads = Routes(loaded(ring(size, [0] * size)))
    ways = forecast_chain(roads, [], list(roads.rank)).values()
    assert Counter(way.fabric if isinstance(way, Route) else "outside" for way in ways) == {
        True: size - 1,
        "outside": 1,
    }


def test_in_a_chain_a_node_passes_it_on_at_once() -> None:
    assert says(forecast_chain(RING, ["n0"], ["n1", "n2", "n3", "n4", "n5"])) == {
        "n1": "n0 (fabric)",
        "n2": "n1 (fabric)",
        "n3": "n2 (fabric)",
        "n4": "n3 (fabric)",
        "n5": "n4 (fabric)",
    }
    assert says(forecast_chain(EIGHT, [], ALL)) == {
        "n0": "outside",
        "n1": "n0 (fabric)",
        "n2": "n1 (fabric)",
        "n3": "n2 (fabric)",
        "n4": "n3 (fabric)",
        "n5": "n4 (fabric)",
        "n6": "n5 (fabric)",
        "n7": "n6 (fabric)",
    }
    assert forecast_chain(EIGHT, ["n0"], []) == {}


def test_a_chain_begins_at_the_source_with_the_fewest_receivers() -> None:
    assert says(forecast_chain(EIGHT, ["n3", "n0"], ["n2", "n1"])) == {"n1": "n0 (fabric)", "n2": "n1 (fabric)"}
