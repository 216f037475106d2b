"""Random rack files. Processes that tests start import `racks` and not this: hypothesis takes half a second."""

from __future__ import annotations

from hypothesis import strategies as st

from core.hardware.cage_kinds import lane_interface
from core.hardware.crs812 import CRS812
from tests.unit.model.racks import ACCESS, SUBNETS, node, ring, switch

rings = st.integers(3, 8).flatmap(
    lambda size: st.lists(st.sampled_from([0, 1, 2]), min_size=size, max_size=size).map(lambda ends: ring(size, ends))
)


@st.composite
def pairs(draw: st.DrawFn) -> str:
    first, second = draw(st.sampled_from([0, 1])), draw(st.sampled_from([0, 1]))
    written = draw(st.sampled_from([0, 1, 2]))
    left = {first: f"b/{second}"} if written != 1 else {}
    right = {second: f"a/{first}"} if written != 0 else {}
    fabric = draw(st.sampled_from([SUBNETS, "fabric: {pool: 10.100.0.0/23}\n"]))
    return f"rack: pair\n{ACCESS}nodes:\n{node('a', 0, left)}{node('b', 1, right)}{fabric}"


@st.composite
def switched(draw: st.DrawFn) -> str:
    """2 to 8 nodes on random legs of random splits that suit a node."""
    choices = {
        cage: [
            name
            for name, split in kind.breakouts.items()
            # The first cage alone has a leg for each of two nodes.
            if split.gbps <= 200 and (cage != "qsfp56-dd-1" or len(split.first_lanes) > 1)
        ]
        for cage, kind in CRS812.cages.items()
    }
    cages = {
        cage: draw(st.sampled_from(names))
        for cage, names in choices.items()
        if cage == "qsfp56-dd-1" or draw(st.booleans())
    }
    legs = [
        f"sw/{lane_interface(cage, lane)}"
        for cage, name in cages.items()
        for lane in CRS812.cages[cage].breakouts[name].first_lanes
    ]
    legs = draw(st.permutations(legs))
    size = draw(st.integers(2, min(8, len(legs))))
    nodes = "".join(node(f"n{number}", number, {draw(st.sampled_from([0, 1])): legs[number]}) for number in range(size))
    return f"rack: switched\n{ACCESS}nodes:\n{nodes}switches:\n{switch('sw', 0, cages)}{SUBNETS}"


any_rack = st.one_of(pairs(), rings, switched())
