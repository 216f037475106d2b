"""What figures mean: every verdict, and where one ends and the next begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.rdma import bandwidth_verdict
from roles.rdma.bandwidth_verdict import (
    BY_CHIP,
    BY_CPU,
    FALLBACK,
    HEALTHY,
    LOW,
    NARROW,
    SINGLE,
    SLOW_LINK,
    STUCK,
    SUSPECTED,
    VERDICTS,
    MeasuredFlow,
    judge,
)

KNOWN = {"link": 200.0, "lanes": 4, "moved": True}


@pytest.mark.parametrize(
    ("figure", "leg", "more", "wanted"),
    [
        (109.0, 200, KNOWN, HEALTHY),
        (109.0, 200, {}, HEALTHY),
        (97.5, 100, {"link": 100.0, "lanes": 4, "moved": True}, HEALTHY),
        (80.0, 200, KNOWN, HEALTHY),
        (79.9, 200, KNOWN, LOW),
        (80.0, 100, {}, HEALTHY),
        (79.9, 100, {}, LOW),
        (40.0, 50, {}, HEALTHY),
        (39.9, 50, {}, LOW),
        (13.0, 50, {}, LOW),
        (8.0, 10, {}, HEALTHY),
        (7.9, 10, {}, LOW),
        (13.2, 200, KNOWN, STUCK),
        (12.74, 100, {}, STUCK),
        (8.0, 200, {}, STUCK),
        (24.9, 200, {}, STUCK),
        (25.0, 200, {}, LOW),
        (7.9, 200, {"by_cpu": True}, BY_CPU),
        (4.9, 200, KNOWN | {"by_cpu": True}, BY_CPU),
        (3.0, 200, {"by_cpu": True}, BY_CPU),
        (6.7, 200, KNOWN | {"by_cpu": False}, BY_CHIP),
        (7.9, 200, {}, SUSPECTED),
        (4.9, 200, KNOWN, SUSPECTED),
        (3.0, 200, {}, SUSPECTED),
        (109.0, 200, KNOWN | {"by_cpu": True}, HEALTHY),
        (2.9, 200, {}, LOW),
        (4.9, 200, {"switched": False}, LOW),
        (4.9, 200, {"switched": False, "by_cpu": True}, LOW),
        (13.2, 200, {"switched": False}, STUCK),
        (51.0, 200, KNOWN | {"lanes": 2}, NARROW),
        (13.2, 200, KNOWN | {"lanes": 2}, NARROW),
        (109.0, 200, KNOWN | {"lanes": 2}, HEALTHY),
        (51.0, 200, {}, NARROW),
        (51.0, 200, KNOWN, LOW),
        (40.0, 200, {}, NARROW),
        (39.9, 200, {}, LOW),
        (62.0, 200, {}, LOW),
        (109.0, 200, KNOWN | {"moved": False}, FALLBACK),
        (13.2, 200, KNOWN | {"moved": False}, FALLBACK),
        (98.0, 200, KNOWN | {"link": 100.0}, SLOW_LINK),
        (49.0, 100, {"link": 50.0}, SLOW_LINK),
        (109.0, 200, KNOWN | {"moved": None}, HEALTHY),
        (0.0, 200, {}, LOW),
    ],
)
def test_one_half(figure: float, leg: int, more: dict[str, object], wanted: bandwidth_verdict.BandwidthVerdict) -> None:
    assert judge(MeasuredFlow((figure,), leg, **more)).name == wanted.name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("figures", "more", "wanted"),
    [
        ((98.0, 98.0), KNOWN, HEALTHY),
        ((86.0, 86.0), KNOWN, HEALTHY),
        ((85.9, 86.0), KNOWN, LOW),
        ((109.0, 51.0), KNOWN | {"lanes": 2}, NARROW),
        ((109.0, 51.0), {}, NARROW),
        ((109.0, 51.0), KNOWN, LOW),
        ((49.0, 49.0), KNOWN, SLOW_LINK),
        ((49.0, 49.0), {}, SLOW_LINK),
        ((98.0, 98.0), KNOWN | {"link": 100.0}, SLOW_LINK),
        ((45.0, 45.0), KNOWN, SLOW_LINK),
        ((44.9, 45.0), KNOWN, LOW),
        ((109.0, 0.0), KNOWN, SINGLE),
        ((0.0, 109.0), KNOWN, SINGLE),
        ((54.5, 54.5), KNOWN, SINGLE),
        ((52.5, 52.5), KNOWN, SINGLE),
        ((60.0, 60.0), KNOWN, LOW),
        ((0.0, 0.0), KNOWN, LOW),
        ((109.0, 13.2), KNOWN, STUCK),
        ((13.0, 13.2), KNOWN, STUCK),
        ((109.0, 4.9), KNOWN, SINGLE),
        ((4.9, 4.9), KNOWN, SUSPECTED),
        ((4.9, 4.9), KNOWN | {"by_cpu": True}, BY_CPU),
        ((4.9, 4.9), KNOWN | {"by_cpu": False}, BY_CHIP),
        ((98.0, 98.0), KNOWN | {"moved": False}, FALLBACK),
    ],
)
def test_both_halves(
    figures: tuple[float, float], more: dict[str, object], wanted: bandwidth_verdict.BandwidthVerdict
) -> None:
    assert judge(MeasuredFlow(figures, 200, **more)).name == wanted.name  # type: ignore[arg-type]


figures = st.lists(st.floats(0, 250), min_size=1, max_size=2).map(tuple)


@given(
    figures,
    st.sampled_from([1, 10, 25, 40, 50, 100, 200]),
    st.sampled_from([None, 1.0, 50.0, 100.0, 200.0]),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from([None, True, False]),
    st.booleans(),
    st.sampled_from([None, True, False]),
)
def test_there_is_always_one_and_less_is_never_healthier(
    found: tuple[float, ...],
    leg: int,
    link: float | None,
    lanes: int | None,
    moved: bool | None,
    switched: bool,
    by_cpu: bool | None,
) -> None:
    measured = MeasuredFlow(found, leg, link, lanes, moved, switched, by_cpu)
    assert judge(measured) in VERDICTS
    if judge(measured).good:
        assert sum(found) >= bandwidth_verdict.enough(measured)
        assert judge(MeasuredFlow(tuple(f + 1 for f in found), leg, link, lanes, moved, switched)).good


def test_the_line_says_where_how_much_what_and_what_next() -> None:
    measured = MeasuredFlow((13.21,), 200, **KNOWN)  # type: ignore[arg-type]
    assert bandwidth_verdict.line("spark2/enp1s0f1np1 -> spark3", measured, judge(measured)) == (
        "spark2/enp1s0f1np1 -> spark3: 13.2 Gb/s, stale ConnectX-7: leave the cables as they are, reboot both ends and "
        "measure again; if it stays, shut both down and take them off power for 60 s (docs/runbooks/bandwidth.md#stale)"
    )
    fine = MeasuredFlow((98.0, 97.96), 200)
    assert bandwidth_verdict.line("a/x+y -> b", fine, judge(fine)) == "a/x+y -> b: 98.0 + 98.0 Gb/s"


def test_the_runbook_has_a_section_for_each() -> None:
    text = (Path(__file__).parents[3] / bandwidth_verdict.RUNBOOK).read_text()
    for one in VERDICTS:
        assert f'<a id="{one.anchor}"></a>' in text, one.anchor


@pytest.mark.parametrize(
    ("words", "reported"), [(15625000000, True), (7812500000, True), (7812499999, False), (0, False)]
)
def test_counters_agree_with_the_tool(words: int, reported: bool) -> None:
    """100 Gb/s for five seconds are 62.5 GB, which is 15.6 thousand million words."""
    assert bandwidth_verdict.moved(10, 10 + words, 100.0, 5) == reported
