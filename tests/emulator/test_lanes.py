"""The emulator's lane model: the manual's breakout tables, and what holds for any configuration at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.routeros_emulator.lanes import Lane, LaneGroup, LaneTail, legs, obstacle
from lab.routeros_emulator.link_modes import LANES, MODES

KINDS = st.sampled_from(["qsfp56-dd", "qsfp56", "sfp56"])
LANE = st.builds(
    Lane,
    enabled=st.booleans(),
    negotiates=st.booleans(),
    speed=st.none() | st.sampled_from([*MODES, "10G-baseT"]),
    fec=st.sampled_from(["auto", "off", "fec74", "fec91"]),
)


@st.composite
def cages(draw: st.DrawFn) -> tuple[str, list[Lane]]:
    kind = draw(KINDS)
    return kind, draw(st.lists(LANE, min_size=LANES[kind], max_size=LANES[kind]))


def split(kind: str, word: str, *masters: int, fec: str = "fec91") -> list[Lane]:
    """A cage configured as the manual says: masters forced, companions as they are from the factory."""
    return [Lane(negotiates=False, speed=word, fec=fec) if n in masters else Lane() for n in range(1, LANES[kind] + 1)]


def up(kind: str, lanes: list[Lane], tails: list[LaneTail]) -> set[int]:
    """The first lanes of the legs that have a link."""
    return {leg.first for leg in legs(kind, lanes) if obstacle(kind, leg, tails) is None}


ALL8, ALL4 = tuple(range(1, 9)), (1, 2, 3, 4)
PAM4, NRZ25, CR4, FORTY, NONE = {"fec91"}, {"fec74", "fec91", "off"}, {"fec91", "off"}, {"fec74", "off"}, {"off"}
# kind, copper word, optical word, masters, lanes a leg, Gb/s, FEC that links besides auto: MikroTik manual,
# 'Wired interface compatibility'. That a leg below 50G a lane links without FEC too is inferred.
TABLE = [
    ("qsfp56-dd", "400G-baseCR8", "400G-baseSR8-LR8", (1,), 8, 400, PAM4),
    ("qsfp56-dd", "200G-baseCR4", "200G-baseSR4-LR4", (1, 5), 4, 200, PAM4),
    ("qsfp56-dd", "100G-baseCR2", "100G-baseSR2-LR2", (1, 3, 5, 7), 2, 100, PAM4),
    ("qsfp56-dd", "50G-baseCR", "50G-baseSR-LR", ALL8, 1, 50, PAM4),
    # Not in the manual: an owner's public configuration of a CRS804, and one site of eight nodes on a CRS812.
    ("qsfp56-dd", "100G-baseCR4", "100G-baseSR4-LR4", (1,), 4, 100, CR4),
    ("qsfp56-dd", "50G-baseCR2", "50G-baseSR2-LR2", (1, 3, 5, 7), 2, 50, NRZ25),
    ("qsfp56-dd", "25G-baseCR", "25G-baseSR-LR", ALL8, 1, 25, NRZ25),
    ("qsfp56-dd", "40G-baseCR4", "40G-baseSR4-LR4", (1, 5), 4, 40, FORTY),
    ("qsfp56-dd", "10G-baseCR", "10G-baseSR-LR", ALL8, 1, 10, NONE),
    ("qsfp56-dd", "1G-baseX", "1G-baseX", ALL8, 1, 1, NONE),
    ("qsfp56", "200G-baseCR4", "200G-baseSR4-LR4", (1,), 4, 200, PAM4),
    ("qsfp56", "100G-baseCR2", "100G-baseSR2-LR2", (1, 3), 2, 100, PAM4),
    ("qsfp56", "50G-baseCR", "50G-baseSR-LR", ALL4, 1, 50, PAM4),
    ("qsfp56", "100G-baseCR4", "100G-baseSR4-LR4", (1,), 4, 100, CR4),
    ("qsfp56", "50G-baseCR2", "50G-baseSR2-LR2", (1, 3), 2, 50, NRZ25),
    ("qsfp56", "40G-baseCR4", "40G-baseSR4-LR4", (1,), 4, 40, FORTY),
    ("qsfp56", "25G-baseCR", "25G-baseSR-LR", ALL4, 1, 25, NRZ25),
    ("qsfp56", "10G-baseCR", "10G-baseSR-LR", ALL4, 1, 10, NONE),
    ("qsfp56", "1G-baseX", "1G-baseX", ALL4, 1, 1, NONE),
    ("sfp56", "50G-baseCR", "50G-baseSR-LR", (1,), 1, 50, PAM4),
    ("sfp56", "25G-baseCR", "25G-baseSR-LR", (1,), 1, 25, NRZ25),
    ("sfp56", "10G-baseCR", "10G-baseSR-LR", (1,), 1, 10, NONE),
    ("sfp56", "1G-baseX", "1G-baseX", (1,), 1, 1, NONE),
]


@pytest.mark.parametrize(("kind", "copper", "optic", "masters", "width", "gbps", "fecs"), TABLE)
def test_every_split_of_the_manual_links_with_its_medium_and_fec_only(
    kind: str, copper: str, optic: str, masters: tuple[int, ...], width: int, gbps: int, fecs: set[str]
) -> None:
    for medium, word in (("copper", copper), ("optic", optic)):
        tails = [LaneTail(lane, width, gbps, medium) for lane in masters]
        links = {
            fec for fec in ("auto", "off", "fec74", "fec91") if up(kind, split(kind, word, *masters, fec=fec), tails)
        }
        assert links == fecs | {"auto"}
        for fec in links:
            assert up(kind, split(kind, word, *masters, fec=fec), tails) == set(masters)
        if copper != optic:
            other = [LaneTail(lane, width, gbps, "optic" if medium == "copper" else "copper") for lane in masters]
            assert up(kind, split(kind, word, *masters, fec="auto"), other) == set()


@pytest.mark.parametrize(
    ("word", "setting", "shown"),
    [
        ("50G-baseCR", "auto", "fec91"),
        ("400G-baseSR8-LR8", "auto", "fec91"),
        ("25G-baseCR", "auto", "off"),
        ("25G-baseCR", "fec74", "fec74"),
        ("40G-baseCR4", "fec74", "fec74"),
        ("100G-baseCR4", "fec91", "fec91"),
        ("100G-baseCR4", "auto", "off"),
        ("10G-baseCR", "auto", "off"),
    ],
)
def test_the_fec_that_monitor_shows(word: str, setting: str, shown: str) -> None:
    assert MODES[word].fec_shown(setting) == shown


@pytest.mark.parametrize(
    ("kind", "word", "lane"),
    [
        ("qsfp56-dd", "100G-baseCR2", 2),
        ("qsfp56-dd", "200G-baseCR4", 3),
        ("qsfp56-dd", "400G-baseCR8", 5),
        ("qsfp56-dd", "100G-baseCR4", 5),
        ("qsfp56-dd", "50G-baseCR2", 2),
        ("qsfp56", "400G-baseCR8", 1),
        ("qsfp56", "100G-baseCR2", 2),
        ("qsfp56", "100G-baseCR4", 2),
        ("sfp56", "100G-baseCR2", 1),
        ("sfp56", "40G-baseCR4", 1),
        ("sfp56", "200G-baseCR4", 1),
    ],
)
def test_a_mode_links_only_where_the_manual_has_it(kind: str, word: str, lane: int) -> None:
    mode = MODES[word]
    tail = LaneTail(lane, mode.lanes, mode.mbps // 1000, "copper")
    below = [Lane(enabled=False)] * (lane - 1)
    lanes = below + split(kind, word, lane, fec="auto")[lane - 1 :]
    assert next(leg.first for leg in legs(kind, lanes)) == lane
    assert up(kind, lanes, [tail]) == set()


FOUR = [LaneTail(lane, 2, 100, "copper") for lane in (1, 3, 5, 7)]


def changed(lane: int, **settings: object) -> list[Lane]:
    """A good 4x100G cage with one lane configured otherwise."""
    lanes = split("qsfp56-dd", "100G-baseCR2", 1, 3, 5, 7)
    fields = vars(lanes[lane - 1]) | settings
    lanes[lane - 1] = Lane(**fields)
    return lanes


@pytest.mark.parametrize(
    ("lane", "settings", "links"),
    [
        (3, {"enabled": False}, {1, 5, 7}),
        (4, {"enabled": False}, {1, 5, 7}),
        (3, {"negotiates": True}, {1, 5, 7}),
        (1, {"negotiates": True}, set()),
        (3, {"fec": "off"}, {1, 5, 7}),
        (3, {"fec": "fec74"}, {1, 5, 7}),
        (3, {"fec": "auto"}, {1, 3, 5, 7}),
        (3, {"speed": "100G-baseSR2-LR2"}, {1, 5, 7}),
        (3, {"speed": "50G-baseCR"}, {1, 5, 7}),
        (3, {"speed": None}, {1, 5, 7}),
        (1, {"speed": "200G-baseCR4"}, {5, 7}),
        (5, {"speed": "400G-baseCR8"}, {1, 3}),
        (1, {"speed": "100G-baseCR4"}, {5, 7}),
        (4, {"speed": "10G-baseCR", "negotiates": False, "fec": "off"}, {1, 3, 5, 7}),
    ],
)
def test_one_wrong_lane_costs_its_leg_and_what_it_swallows(
    lane: int, settings: dict[str, object], links: set[int]
) -> None:
    assert up("qsfp56-dd", changed(lane, **settings), FOUR) == links


def test_assignment_starts_at_the_first_enabled_lane() -> None:
    lanes = [Lane(enabled=False), *split("qsfp56-dd", "100G-baseCR2", 2, 4, 6, 8)[1:]]
    assert [leg.lanes for leg in legs("qsfp56-dd", lanes)] == [(2, 3), (4, 5), (6, 7), (8,)]
    assert up("qsfp56-dd", lanes, [LaneTail(lane, 2, 100, "copper") for lane in (2, 4, 6, 8)]) == set()


def test_optics_need_the_optical_word() -> None:
    tails = [LaneTail(lane, 2, 100, "optic") for lane in (1, 3, 5, 7)]
    assert up("qsfp56-dd", split("qsfp56-dd", "100G-baseCR2", 1, 3, 5, 7), tails) == set()
    assert up("qsfp56-dd", split("qsfp56-dd", "100G-baseSR2-LR2", 1, 3, 5, 7), tails) == {1, 3, 5, 7}


@pytest.mark.parametrize(
    ("word", "setting", "shown"),
    [
        ("100G-baseCR2", "auto", "fec91"),
        ("100G-baseCR2", "fec91", "fec91"),
        ("100G-baseCR4", "auto", "off"),
        ("100G-baseCR4", "off", "off"),
        ("100G-baseCR4", "fec91", "fec91"),
        ("50G-baseCR2", "fec74", "fec74"),
        ("40G-baseCR4", "auto", "off"),
        ("40G-baseCR4", "fec74", "fec74"),
    ],
)
def test_a_link_needs_the_same_fec_at_both_ends(word: str, setting: str, shown: str) -> None:
    mode = MODES[word]
    lanes = split("qsfp56-dd", word, 1, fec=setting)
    for peer in (None, "off", "fec74", "fec91"):
        tail = LaneTail(1, mode.lanes, mode.mbps // 1000, "copper", fec=peer)
        assert up("qsfp56-dd", lanes, [tail]) == ({1} if peer in (None, shown) else set())


def test_a_cage_that_negotiates_needs_the_fec_of_its_peer_too() -> None:
    for peer, links in (("fec91", {1}), ("off", set())):
        assert up("qsfp56-dd", [Lane()] * 8, [LaneTail(1, 8, 400, "copper", fec=peer)]) == links


def test_a_pulled_tail_has_no_link() -> None:
    tails = [LaneTail(lane, 2, 100, "copper", present=lane != 3) for lane in (1, 3, 5, 7)]
    assert up("qsfp56-dd", split("qsfp56-dd", "100G-baseCR2", 1, 3, 5, 7), tails) == {1, 5, 7}


@pytest.mark.parametrize(
    ("kind", "tail", "links"),
    [
        ("qsfp56-dd", LaneTail(1, 8, 400, "copper"), {1}),
        ("qsfp56", LaneTail(1, 4, 200, "copper"), set()),
        ("sfp56", LaneTail(1, 1, 50, "copper"), {1}),
    ],
)
def test_what_negotiates_by_itself(kind: str, tail: LaneTail, links: set[int]) -> None:
    assert up(kind, [Lane()] * LANES[kind], [tail]) == links


def test_factory_lanes_do_not_link_on_a_breakout_cable() -> None:
    assert up("qsfp56-dd", [Lane()] * 8, FOUR) == set()


@given(cages())
def test_no_lane_is_in_two_legs(cage: tuple[str, list[Lane]]) -> None:
    taken = [lane for leg in legs(*cage) for lane in leg.lanes]
    assert taken == sorted(set(taken))
    assert not taken or taken[-1] <= LANES[cage[0]]


@given(cages())
def test_every_enabled_lane_belongs_to_a_leg_and_legs_start_enabled(cage: tuple[str, list[Lane]]) -> None:
    kind, lanes = cage
    found = legs(kind, lanes)
    taken = {lane for leg in found for lane in leg.lanes}
    assert {n for n, lane in enumerate(lanes, start=1) if lane.enabled} <= taken
    assert all(lanes[leg.first - 1].enabled for leg in found)


@given(cages(), st.data())
def test_companions_do_not_matter_while_enabled(cage: tuple[str, list[Lane]], data: st.DataObject) -> None:
    kind, lanes = cage
    before = legs(kind, lanes)
    companions = {n for leg in before for n in leg.lanes if n != leg.first and lanes[n - 1].enabled}
    other = [
        Lane(**(vars(data.draw(LANE)) | {"enabled": True})) if n in companions else lane
        for n, lane in enumerate(lanes, start=1)
    ]
    assert legs(kind, other) == before


@given(cages(), st.sampled_from(["copper", "optic"]))
def test_a_link_has_exactly_its_cables_lanes_and_speed(cage: tuple[str, list[Lane]], medium: str) -> None:
    kind, lanes = cage
    for leg in legs(kind, lanes):
        for width in (1, 2, 4, 8):
            for gbps in (1, 10, 25, 40, 50, 100, 200, 400):
                tail = LaneTail(leg.first, width, gbps, medium)
                if obstacle(kind, leg, [tail]) is None:
                    assert width == len(leg.lanes)
                    assert all(lanes[n - 1].enabled for n in leg.lanes)
                    _check_mode(leg, gbps, medium)


def _check_mode(leg: LaneGroup, gbps: int, medium: str) -> None:
    if leg.mode is not None:
        assert leg.mode.mbps == gbps * 1000
        assert leg.mode.medium in (medium, "any")
        assert leg.fec in leg.mode.fec
