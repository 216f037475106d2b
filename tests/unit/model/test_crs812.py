"""Splits of cages: the manual's table, and the message about any other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from core.hardware.cage_kinds import KINDS, cage_kind, lane_interface
from core.hardware.crs812 import CRS812
from core.model import CageSpec

# Split and the lanes that legs begin on: MikroTik manual, "Wired interface compatibility", except for 1x100G and 4x50G
# of a qsfp56-dd (an owner's public configuration of a CRS804, and one site of eight nodes on a CRS812)
MANUAL = {
    "qsfp56-dd": {
        "1x400G": "1", "2x200G": "15", "4x100G": "1357", "8x50G": "12345678", "2x40G": "15", "8x25G": "12345678",
        "8x10G": "12345678", "8x1G": "12345678", "1x100G": "1", "4x50G": "1357",
    },
    "qsfp56": {
        "1x200G": "1", "2x100G": "13", "1x100G": "1", "4x50G": "1234", "2x50G": "13", "1x40G": "1", "4x25G": "1234",
        "4x10G": "1234", "4x1G": "1234",
    },
    "sfp56": {"1x50G": "1", "1x25G": "1", "1x10G": "1", "1x1G": "1"},
}  # fmt: skip

CAGES = tuple(CRS812.cages)
cages = st.sampled_from(CAGES)


def refused(cage: str, split: str) -> str | None:
    """What the message names instead of `split`; None when it is accepted."""
    try:
        accepted = CageSpec(name=cage, split=split)
    except ValidationError as error:
        (detail,) = error.errors()
        return str(detail["ctx"]["right"])
    assert accepted.split == split
    return None


def test_the_table() -> None:
    assert len(CAGES) == 12
    listed = {
        kind.name: {name: "".join(map(str, split.first_lanes)) for name, split in kind.breakouts.items()}
        for kind in CRS812.kinds
    }
    assert listed == MANUAL


@pytest.mark.parametrize("kind", KINDS)
def test_legs_take_the_first_lanes_of_the_cage_at_a_speed_of_its_lanes(kind: str) -> None:
    modes = set()
    for name, split in KINDS[kind].breakouts.items():
        assert name == split.name == f"{len(split.first_lanes)}x{split.gbps}G"
        lanes = [first + step for first in split.first_lanes for step in range(split.lanes_per_leg)]
        assert lanes == list(split.lanes)
        unused = 4 if (kind, name) == ("qsfp56-dd", "1x100G") else 0
        assert lanes == list(range(1, KINDS[kind].lanes + 1 - unused))
        assert split.gbps / split.lanes_per_leg == split.lane_gbps
        assert split.lane_gbps in (50, 25, 10, 1)
        modes.add((split.gbps, split.lanes_per_leg))
    assert len(modes) == len(KINDS[kind].breakouts)


def test_interfaces_of_lanes() -> None:
    assert [lane_interface("qsfp56-dd-2", lane) for lane in (1, 8)] == ["qsfp56-dd-2-1", "qsfp56-dd-2-8"]
    assert lane_interface("qsfp56-1", 3) == "qsfp56-1-3"
    assert lane_interface("sfp56-8", 1) == "sfp56-8"


@pytest.mark.parametrize("name", ["qsfp56-dd", "qsfp56-dd-0", "ether1", "qsfp56-dd-1-1", "", "xqsfp56-1"])
def test_not_a_cage(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a cage"):
        cage_kind(name)


@given(cages, st.integers(0, 20), st.one_of(st.integers(0, 10_000), st.sampled_from([400, 200, 100, 50, 40, 25, 10])))
def test_what_is_suggested_for_an_impossible_split_is_accepted(cage: str, legs: int, gbps: int) -> None:
    right = refused(cage, f"{legs}x{gbps}G")
    assert (right is None) == (f"{legs}x{gbps}G" in CRS812.cages[cage].breakouts)
    if right is not None:
        found = re.match(r"write ([0-9]+x[0-9]+G)\b", right)
        assert found
        assert refused(cage, found[1]) is None


@given(cages, st.one_of(st.text(max_size=12), st.from_regex(r"[0-9]{1,2} ?[xX*×] ?[0-9]{1,3} ?(G|Gb|Gbps|g|M)?")))
def test_what_is_suggested_for_any_text_is_accepted(cage: str, text: str) -> None:
    right = refused(cage, text)
    if right is None:
        return
    named = re.findall(r"\b[0-9]+x[0-9]+G\b", right)
    assert named
    assert all(refused(cage, split) is None for split in named)


@given(
    st.sampled_from([(cage, name) for cage in CAGES for name in CRS812.cages[cage].breakouts]), st.sampled_from("x *×X")
)
def test_a_split_is_recognised_however_it_is_written(case: tuple[str, str], sign: str) -> None:
    cage, name = case
    legs, speed = name.removesuffix("G").split("x")
    for text in (f" {legs}{sign}{speed} ", f"{legs} {sign} {speed} Gb/s", f"{legs}{sign}{speed}gbps"):
        if sign == " ":
            assert refused(cage, text) != f"write {name}"
        else:
            assert refused(cage, text) == f"write {name}"
