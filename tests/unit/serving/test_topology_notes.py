"""Cables between the ranks of a unit that slow them, or that NCCL does not use."""

from __future__ import annotations

from typing import Any

import pytest

from roles.rdma import ring_cables as cable_notes
from serving import topology_notes
from serving.options import served_units
from tests.unit.model import racks
from tests.unit.model.serving_racks import QWEN, loaded, machines, text, unit


def notes(hosts: str, nccl: str | None = None, **keys: Any) -> list[str]:
    rack = loaded(text({"qwen": unit(QWEN, **keys)}, hosts))
    return [note.what for one in served_units(rack).values() for note in topology_notes.notes(rack, one, nccl)]


def test_ranks_of_a_ring_of_four_that_no_cable_joins_are_named() -> None:
    found = notes(machines(4, "ring"), nodes=["n0", "n1", "n2", "n3"], parallel={"tensor": 1, "pipeline": 4})
    assert found == ["no cable joins n0 and n2, n1 and n3: NCCL before 2.30 does not connect such ranks (reported)"]


@pytest.mark.parametrize(
    ("nccl", "warned"), [("2.28.9", True), ("2.29.99", True), ("2.30.0", False), ("2.31.1", False)]
)
def test_a_ring_is_judged_by_nccl_of_the_image_where_that_is_recorded(nccl: str, warned: bool) -> None:
    keys: dict[str, Any] = {"nodes": ["n0", "n1", "n2", "n3"], "parallel": {"tensor": 1, "pipeline": 4}}
    assert notes(machines(4, "ring"), nccl, **keys) == (
        [f"no cable joins n0 and n2, n1 and n3: NCCL {nccl} of the image does not connect such ranks (reported)"]
        if warned
        else []
    )


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [
        (machines(3, "ring"), ["n0", "n1", "n2"]),
        (machines(4, "ring"), ["n3", "n0"]),
        (machines(4), ["n0", "n1", "n2", "n3"]),
    ],
)
def test_ranks_that_are_all_joined_have_no_note(hosts: str, nodes: list[str]) -> None:
    assert notes(hosts, nodes=nodes, parallel={"tensor": 1, "pipeline": len(nodes)}) == []


def test_links_of_different_speeds_are_named_with_each_rank() -> None:
    hosts = racks.changed(machines(5), ("qsfp56-dd-2: {split: 4x100G}", "qsfp56-dd-2: {split: 2x200G}"))
    assert notes(hosts, nodes=["n0", "n4"]) == [
        (
            "the links of its ranks differ in speed: n0 100G, n4 200G; the slowest sets the pace, and a switch can "
            "drop frames towards it"
        )
    ]
    assert notes(hosts, nodes=["n0", "n1"]) == []


def test_a_cable_of_a_ring_between_equal_ports_is_named() -> None:
    equal = racks.changed(
        racks.RING, ("spark3/1, 1: spark1/0", "spark3/0, 1: spark1/0"), ("{0: spark1/1}", "{1: spark1/1}")
    )
    found = [(note.path, note.what) for note in cable_notes.notes(racks.loaded(equal))]
    assert [path for path, _ in found] == [("nodes", "spark1", "ports", 1), ("nodes", "spark2", "ports", 0)]
    assert found[1][1].startswith("this cable of the ring joins port 0 of spark2 to port 0 of spark3, and NCCL then")


@pytest.mark.parametrize("rack", [racks.RING, racks.SWITCH, racks.DIRECT])
def test_other_cables_have_no_note(rack: str) -> None:
    assert list(cable_notes.notes(racks.loaded(rack))) == []
