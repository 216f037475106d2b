from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switch.values import Kind, bits_per_second, canonical, milliseconds


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (Kind.FLAG, ("yes", "true")),
        (Kind.FLAG, ("no", "false")),
        (Kind.COUNT, ("9000", "09000")),
        (Kind.RATE, ("200G", "200Gbps", "200000000000", "200000M", "0.2T")),
        (Kind.RATE, ("0", "0bps")),
        (Kind.RATE, ("2.5Gbps", "2500M")),
        (Kind.DURATION, ("5m", "00:05:00", "300s", "300", "4m60s")),
        (Kind.DURATION, ("1d2h", "26h", "1d02:00:00")),
        (Kind.DURATION, ("1w", "7d", "168:00:00")),
        (Kind.DURATION, ("1s500ms", "00:00:01.5", "1500ms")),
        (Kind.LIST, ("a,b", "b,a", "b, a")),
    ],
)
def test_spellings_of_one_value(kind: Kind, texts: tuple[str, ...]) -> None:
    assert len({canonical(kind, text) for text in texts}) == 1


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (Kind.FLAG, "yes", "no"),
        (Kind.COUNT, "9000", "9500"),
        (Kind.RATE, "200G", "200M"),
        (Kind.DURATION, "5m", "5s"),
        (Kind.WORD, "true", "yes"),
        (Kind.WORD, "100G-baseCR2", "100G-baseCR4"),
    ],
)
def test_different_values_stay_different(kind: Kind, one: str, other: str) -> None:
    assert canonical(kind, one) != canonical(kind, other)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.FLAG, ""),
        (Kind.FLAG, "maybe"),
        (Kind.COUNT, "9k"),
        (Kind.COUNT, ""),
        (Kind.COUNT, "٩"),
        (Kind.RATE, "fast"),
        (Kind.RATE, "1.5bps"),
        (Kind.DURATION, ""),
        (Kind.DURATION, "soon"),
        (Kind.DURATION, "5:0"),
    ],
)
def test_what_is_none_of_its_kind_is_refused(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match="is n"):
        canonical(kind, text)


@given(st.integers(0, 10**15))
def test_a_rate_reads_back(number: int) -> None:
    assert bits_per_second(str(number)) == bits_per_second(f"{number}bps") == number


@given(st.integers(0, 10**7))
def test_a_duration_reads_back_in_units_and_as_a_clock(seconds: int) -> None:
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    spelled = (f"{days}d{h}h{m}m{s}s", f"{days}d{h:02}:{m:02}:{s:02}", f"{hours}:{m:02}:{s:02}", str(seconds))
    assert {milliseconds(text) for text in spelled} == {seconds * 1000}


@given(st.sampled_from(Kind), st.text(max_size=12))
def test_any_text_is_a_value_or_refused(kind: Kind, text: str) -> None:
    try:
        once = canonical(kind, text)
    except ValueError:
        return
    if kind in (Kind.WORD, Kind.FLAG, Kind.COUNT, Kind.LIST, Kind.RATE):
        assert canonical(kind, once) == once
