from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.routeros.values import ValueKind, bits_per_second, canonical, milliseconds


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (ValueKind.FLAG, ("yes", "true")),
        (ValueKind.FLAG, ("no", "false")),
        (ValueKind.COUNT, ("9000", "09000")),
        (ValueKind.RATE, ("200G", "200Gbps", "200000000000", "200000M", "0.2T")),
        (ValueKind.RATE, ("0", "0bps")),
        (ValueKind.RATE, ("2.5Gbps", "2500M")),
        (ValueKind.DURATION, ("5m", "00:05:00", "300s", "300", "4m60s")),
        (ValueKind.DURATION, ("1d2h", "26h", "1d02:00:00")),
        (ValueKind.DURATION, ("1w", "7d", "168:00:00")),
        (ValueKind.DURATION, ("1s500ms", "00:00:01.5", "1500ms")),
        (ValueKind.LIST, ("a,b", "b,a", "b, a")),
    ],
)
def test_spellings_of_one_value(kind: ValueKind, texts: tuple[str, ...]) -> None:
    assert len({canonical(kind, text) for text in texts}) == 1


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (ValueKind.FLAG, "yes", "no"),
        (ValueKind.COUNT, "9000", "9500"),
        (ValueKind.RATE, "200G", "200M"),
        (ValueKind.DURATION, "5m", "5s"),
        (ValueKind.WORD, "true", "yes"),
        (ValueKind.WORD, "100G-baseCR2", "100G-baseCR4"),
    ],
)
def test_different_values_stay_different(kind: ValueKind, one: str, other: str) -> None:
    assert canonical(kind, one) != canonical(kind, other)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ValueKind.FLAG, ""),
        (ValueKind.FLAG, "maybe"),
        (ValueKind.COUNT, "9k"),
        (ValueKind.COUNT, ""),
        (ValueKind.COUNT, "٩"),
        (ValueKind.RATE, "fast"),
        (ValueKind.RATE, "1.5bps"),
        (ValueKind.DURATION, ""),
        (ValueKind.DURATION, "soon"),
        (ValueKind.DURATION, "5:0"),
    ],
)
def test_what_is_none_of_its_kind_is_refused(kind: ValueKind, text: str) -> None:
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


@given(st.sampled_from(ValueKind), st.text(max_size=12))
def test_any_text_is_a_value_or_refused(kind: ValueKind, text: str) -> None:
    try:
        once = canonical(kind, text)
    except ValueError:
        return
    if kind in (ValueKind.WORD, ValueKind.FLAG, ValueKind.COUNT, ValueKind.LIST, ValueKind.RATE):
        assert canonical(kind, once) == once
