"""From whom to whom: what stands in each field of the square tables."""

from __future__ import annotations

import pytest

from core.verify.measurements import Bandwidth
from core.verify.pair_matrix import PairMatrix, pair_matrices
from core.verify.report import report
from tests.unit.model.racks import RING, TAGGED, loaded
from tests.unit.verify import reports
from tests.unit.verify.reports import ORIGIN, carries, failed, fine, passed, reported


def texts(square: PairMatrix) -> list[list[str]]:
    return [[pair.text for pair in row] for row in square.pairs]


def test_a_table_for_each_half() -> None:
    first, second = pair_matrices(reported(fine()))
    assert (first.title, second.title) == ("Half 0: enp1s0f1np1", "Half 1: enP2p1s0f1np1")
    assert first.senders == first.receivers == ("spark1", "spark2")
    assert texts(first) == texts(second) == [["", "✓"], ["✓", ""]]


@pytest.mark.parametrize(("reached", "sign"), [(True, "✓"), (False, "✗"), (None, "?")])
def test_a_sign_for_each_state(reached: bool | None, sign: str) -> None:
    values = reports.reach(reports.RACK, reached)
    first, _ = pair_matrices(reported([passed(value.sender, "fabric", measured=(value,)) for value in values]))
    assert texts(first)[0][1] == sign
    assert "enp1s0f1np1 to enp1s0f1np1" in first.pairs[0][1].detail


@pytest.mark.parametrize(
    ("value", "text", "verdict"),
    [
        (carries("spark1", "spark2", 97.52), "✓ 97.5", ""),
        (carries("spark1", "spark2", 13.2, verdict="stale ConnectX-7"), "✗ 13.2", "stale ConnectX-7"),
        (carries("spark1", "spark2"), "?", ""),
    ],
)
def test_a_figure_stands_in_its_field(value: Bandwidth, text: str, verdict: str) -> None:
    first, second = pair_matrices(reported([*fine(), passed("spark1", "rdma", measured=(value,))]))
    assert texts(first) == [["", text], ["✓", ""]]
    assert first.pairs[0][1].verdict == verdict
    assert texts(second) == [["", "✓"], ["✓", ""]], "the other half has no figure"


def test_a_good_figure_does_not_hide_that_frames_are_lost() -> None:
    lost = [failed("spark1", "fabric", "no")]
    values = reports.reach(reports.RACK, reached=False)
    made = [passed(value.sender, "fabric", measured=(value,)) for value in values]
    made.append(passed("spark1", "rdma", measured=(carries("spark1", "spark2", 97.5),)))
    first, _ = pair_matrices(reported([*made, *lost]))
    assert texts(first)[0][1] == "✗ 97.5"
    assert "do not arrive" in first.pairs[0][1].detail


def test_both_halves_at_once_have_their_own() -> None:
    both = carries("spark1", "spark2", 96.0, 95.5, halves=(0, 1))
    first, _, last = pair_matrices(reported([*fine(), passed("spark1", "rdma", measured=(both,))]))
    assert texts(first) == [["", "✓"], ["✓", ""]]
    assert last.title == "Both halves at once"
    assert texts(last) == [["", "✓ 96.0 + 95.5"], ["", ""]]


def test_in_a_ring_each_half_has_two_devices() -> None:
    ring = loaded(RING)
    first, _ = pair_matrices(report(ring, tuple(ring.nodes), ["fabric"], fine(ring), ORIGIN))
    assert first.title == "Half 0: enp1s0f0np0, enp1s0f1np1"
    assert texts(first) == [["", "✓", "✓"], ["✓", "", "✓"], ["✓", "✓", ""]]


def test_vlans_are_called_by_their_devices() -> None:
    rack = loaded(TAGGED)
    first, second = pair_matrices(report(rack, tuple(rack.nodes), ["fabric"], fine(rack), ORIGIN))
    assert (first.title, second.title) == ("Half 0: fabric0", "Half 1: fabric1")


def test_a_neighbour_that_was_not_looked_at_only_receives() -> None:
    first, _ = pair_matrices(reported(fine(), ["spark2"]))
    assert (first.senders, first.receivers) == (("spark2",), ("spark2", "spark1"))
    ring = loaded(RING)
    first, _ = pair_matrices(report(ring, ["spark1", "spark3"], ["fabric"], fine(ring), ORIGIN))
    assert (first.senders, first.receivers) == (("spark1", "spark3"), ("spark1", "spark3", "spark2"))


def test_without_the_fabric_there_is_none() -> None:
    assert pair_matrices(reported(fine(), parts=["memory"])) == ()
