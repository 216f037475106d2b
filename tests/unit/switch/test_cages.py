"""Cages against the manual's table, which is written out here once more ('Wired interface compatibility')."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.hardware.cage_kinds import KINDS, cage_kind
from core.model import ConfigError
from core.routeros.diff import diff
from core.routeros.menus import ETHERNET
from switch.cages import SPEED, describe, fec_of, lanes_of, masters_of, wanted_lanes
from tests.unit.switch.racks import UNCABLED, MakeRack, make_rack
from tests.unit.switch.rows import LANES, carry_out, factory, reading

MANUAL = {
    # copper and optic words; the FEC of each that is written where rack.yaml has none
    ("qsfp56-dd", "1x400G"): ([1], "400G-baseCR8", "400G-baseSR8-LR8", "fec91", "fec91"),
    ("qsfp56-dd", "2x200G"): ([1, 5], "200G-baseCR4", "200G-baseSR4-LR4", "fec91", "fec91"),
    ("qsfp56-dd", "4x100G"): ([1, 3, 5, 7], "100G-baseCR2", "100G-baseSR2-LR2", "fec91", "fec91"),
    # Not in the manual: an owner's public configuration (CRS804, 7.23), and one site of eight nodes (CRS812, 7.20.8).
    ("qsfp56-dd", "1x100G"): ([1], "100G-baseCR4", "100G-baseSR4-LR4", "fec91", "auto"),
    ("qsfp56-dd", "4x50G"): ([1, 3, 5, 7], "50G-baseCR2", "50G-baseSR2-LR2", "fec91", "auto"),
    ("qsfp56-dd", "8x50G"): ([1, 2, 3, 4, 5, 6, 7, 8], "50G-baseCR", "50G-baseSR-LR", "fec91", "fec91"),
    ("qsfp56-dd", "8x25G"): ([1, 2, 3, 4, 5, 6, 7, 8], "25G-baseCR", "25G-baseSR-LR", "fec91", "fec91"),
    ("qsfp56-dd", "2x40G"): ([1, 5], "40G-baseCR4", "40G-baseSR4-LR4", "fec74", "auto"),
    ("qsfp56-dd", "8x10G"): ([1, 2, 3, 4, 5, 6, 7, 8], "10G-baseCR", "10G-baseSR-LR", "auto", "auto"),
    ("qsfp56-dd", "8x1G"): ([1, 2, 3, 4, 5, 6, 7, 8], "1G-baseX", "1G-baseX", "auto", "auto"),
    ("qsfp56", "1x200G"): ([1], "200G-baseCR4", "200G-baseSR4-LR4", "fec91", "fec91"),
    ("qsfp56", "2x100G"): ([1, 3], "100G-baseCR2", "100G-baseSR2-LR2", "fec91", "fec91"),
    ("qsfp56", "4x50G"): ([1, 2, 3, 4], "50G-baseCR", "50G-baseSR-LR", "fec91", "fec91"),
    ("qsfp56", "1x100G"): ([1], "100G-baseCR4", "100G-baseSR4-LR4", "fec91", "auto"),
    ("qsfp56", "2x50G"): ([1, 3], "50G-baseCR2", "50G-baseSR2-LR2", "fec91", "auto"),
    ("qsfp56", "1x40G"): ([1], "40G-baseCR4", "40G-baseSR4-LR4", "fec74", "auto"),
    ("qsfp56", "4x25G"): ([1, 2, 3, 4], "25G-baseCR", "25G-baseSR-LR", "fec91", "fec91"),
    ("qsfp56", "4x10G"): ([1, 2, 3, 4], "10G-baseCR", "10G-baseSR-LR", "auto", "auto"),
    ("qsfp56", "4x1G"): ([1, 2, 3, 4], "1G-baseX", "1G-baseX", "auto", "auto"),
    ("sfp56", "1x50G"): ([1], "50G-baseCR", "50G-baseSR-LR", "fec91", "fec91"),
    ("sfp56", "1x25G"): ([1], "25G-baseCR", "25G-baseSR-LR", "fec91", "fec91"),
    ("sfp56", "1x10G"): ([1], "10G-baseCR", "10G-baseSR-LR", "auto", "auto"),
    ("sfp56", "1x1G"): ([1], "1G-baseX", "1G-baseX", "auto", "auto"),
}
UNUSED = {("qsfp56-dd", "1x100G"): [5, 6, 7, 8]}
"""Lanes that no leg takes."""
CAGES = {cage_kind(cage).name: cage for cage in LANES}.values()
"""The last cage of each kind."""
EVERY = [
    (cage, split, medium) for cage in CAGES for split in cage_kind(cage).breakouts for medium in ("copper", "optic")
]


def test_the_manual_knows_every_split() -> None:
    assert {(kind.name, split) for kind in KINDS.values() for split in kind.breakouts} == set(MANUAL)


@pytest.mark.parametrize(("cage", "split", "medium"), EVERY)
def test_a_split_compiles_to_what_the_manual_says(rack: MakeRack, cage: str, split: str, medium: str) -> None:
    _, switch = rack(UNCABLED, cages={cage: {"split": split, "medium": medium}}, mtu=9000, l2mtu=9500)
    masters, copper, optic, *fec = MANUAL[cage_kind(cage).name, split]
    unused = UNUSED.get((cage_kind(cage).name, split), [])
    lanes = {want.key: dict(want.fields) for want in wanted_lanes(switch, cage)}
    assert len(lanes) == LANES[cage]
    for lane in range(1, LANES[cage] + 1):
        expected = {"disabled": "yes" if lane in unused else "no", "l2mtu": "9500", "mtu": "9000"}
        if lane in masters:
            speed = copper if medium == "copper" else optic
            expected |= {"auto-negotiation": "no", "speed": speed, "fec-mode": fec[medium == "optic"]}
            expected |= {"rx-flow-control": "off", "tx-flow-control": "off"}
        assert lanes[(f"{cage}-{lane}" if LANES[cage] > 1 else cage,)] == expected


FEC = {
    # The values with which a leg can have a link (MikroTik manual, 'Ethernet', fec-mode), by Gb/s and lanes of a leg.
    **{shape: {"auto", "fec91"} for shape in [(400, 8), (200, 4), (100, 2), (50, 1)]},
    (100, 4): {"auto", "off", "fec91"},
    **{shape: {"auto", "off", "fec74", "fec91"} for shape in [(50, 2), (25, 1)]},
    (40, 4): {"auto", "off", "fec74"},
    **{shape: {"auto", "off"} for shape in [(10, 1), (1, 1)]},
}


@pytest.mark.parametrize(("cage", "split", "medium"), EVERY)
def test_a_declared_fec_is_written_or_refused(rack: MakeRack, cage: str, split: str, medium: str) -> None:
    breakout = cage_kind(cage).breakouts[split]
    allowed = FEC[breakout.gbps, breakout.lanes_per_leg]
    for fec in ("auto", "off", "fec74", "fec91"):
        declared = {cage: {"split": split, "medium": medium, "fec": fec}}
        if fec not in allowed:
            with pytest.raises(ConfigError, match=rf"cages\.{cage}\.fec: .* has no link with {fec}; write auto or "):
                rack(UNCABLED, cages=declared)
            continue
        _, switch = rack(UNCABLED, cages=declared)
        written = {want.fields["fec-mode"] for want in wanted_lanes(switch, cage) if "speed" in want.fields}
        assert (written, fec_of(switch, cage)) == ({fec}, fec)


@pytest.mark.parametrize(("lossless", "paused"), [("none", "off"), ("roce", "off"), ("pause", "on")])
def test_pause_frames_belong_to_the_masters(rack: MakeRack, lossless: str, paused: str) -> None:
    _, switch = rack(lossless=lossless)
    reported = [want.fields for want in wanted_lanes(switch, "qsfp56-dd-1") if "speed" in want.fields]
    assert [(fields["rx-flow-control"], fields["tx-flow-control"]) for fields in reported] == [(paused, paused)] * 4


@settings(max_examples=60)
@given(st.sampled_from(EVERY), st.sampled_from(EVERY))
def test_what_was_compiled_is_described_in_the_same_words(
    tmp_path_factory: pytest.TempPathFactory, first: tuple[str, str, str], then: tuple[str, str, str]
) -> None:
    """Whatever the cage was before: the words of before may be any other split, too."""
    tables = factory()
    for cage, split, medium in (first, then):
        folder = tmp_path_factory.mktemp("rack")
        _, switch = make_rack(folder, UNCABLED, cages={cage: {"split": split, "medium": medium}})
        carry_out(tables, diff(ETHERNET, wanted_lanes(switch, cage), tables["/interface/ethernet"]))
        # One gigabit has one word for both media, so its medium is unknown.
        same = {medium} if split[-3:] != "x1G" else {"copper", "optic"}
        assert describe(cage, reading(tables).ethernet) in {f"{split} {word}" for word in same}


def test_other_states_of_a_cage_are_described_by_lane() -> None:
    tables = factory()
    ethernet = reading(tables).ethernet
    assert describe("qsfp56-dd-1", ethernet) == "auto-negotiated"
    rows = {name: dict(row) for name, row in ethernet.items()}
    rows["qsfp56-dd-1-1"] |= {"auto-negotiation": "false", "speed": "50G-baseCR"}
    rows["qsfp56-dd-1-2"]["disabled"] = "true"
    rows["qsfp56-dd-1-8"]["auto-negotiation"] = "no"
    assert describe("qsfp56-dd-1", rows) == (
        "lane 1 50G-baseCR, lane 2 disabled, lanes 3-7 auto-negotiated, lane 8 forced to no speed"
    )
    rows["qsfp56-1-1"] |= {"auto-negotiation": "false", "speed": "200G-baseCR4"}
    assert describe("qsfp56-1", rows) == "1x200G copper"
    rows["qsfp56-1-3"]["disabled"] = "true"
    assert describe("qsfp56-1", rows) == (
        "lane 1 200G-baseCR4, lane 2 auto-negotiated, lane 3 disabled, lane 4 auto-negotiated"
    )


@pytest.mark.parametrize(
    ("fifth", "described"),
    [
        ({"disabled": "true"}, "1x100G copper"),
        ({}, "1x100G copper"),
        ({"disabled": "true", "auto-negotiation": "false", "speed": "100G-baseCR2"}, "1x100G copper"),
        (
            {"auto-negotiation": "false", "speed": "200G-baseCR4"},
            "lane 1 100G-baseCR4, lanes 2-4 auto-negotiated, lane 5 200G-baseCR4, lanes 6-8 auto-negotiated",
        ),
    ],
)
def test_a_module_of_four_lanes_in_a_cage_of_eight(fifth: dict[str, str], described: str) -> None:
    """The other four start no leg: each is disabled, or negotiates."""
    rows = {name: dict(row) for name, row in reading(factory()).ethernet.items()}
    rows["qsfp56-dd-1-1"] |= {"auto-negotiation": "false", "speed": "100G-baseCR4"}
    rows["qsfp56-dd-1-5"] |= fifth
    assert describe("qsfp56-dd-1", rows) == described


def test_a_cage_of_one_lane_is_its_own_interface() -> None:
    assert lanes_of("sfp56-3") == ("sfp56-3",)


@given(st.sampled_from(EVERY))
def test_legs_take_all_lanes_but_the_unused_ones_and_their_word_fits(case: tuple[str, str, str]) -> None:
    cage, name, medium = case
    split = cage_kind(cage).breakouts[name]
    lanes = [lane for first in split.first_lanes for lane in range(first, first + split.lanes_per_leg)]
    assert lanes + UNUSED.get((cage_kind(cage).name, name), []) == list(range(1, LANES[cage] + 1))
    assert split.lanes == tuple(lanes)
    word = SPEED[medium][split.gbps, split.lanes_per_leg]
    assert word.startswith(f"{split.gbps}G-base")
    count = word.rpartition("-base")[2].rpartition("R")[2]
    assert count == ("" if split.lanes_per_leg == 1 else str(split.lanes_per_leg)) or word == "1G-baseX"


def test_masters(rack: MakeRack) -> None:
    _, switch = rack()
    assert masters_of(switch, "qsfp56-dd-2") == tuple(f"qsfp56-dd-2-{lane}" for lane in (1, 3, 5, 7))
