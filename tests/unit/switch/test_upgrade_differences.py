"""What an upgrade of RouterOS has changed, from the readings before and after."""

from __future__ import annotations

import pytest

from core.routeros.menus import ETHERNET
from switch.upgrade.differences import differences
from tests.unit.switch.rows import factory, reading


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("1500", "1500", ()),
        ("1500", "9000", ("1500 -> 9000",)),
        ("auto", "auto", ()),
        ("auto", "automatic", ("auto -> automatic",)),
        ("auto", "1500", ("auto -> 1500",)),
        ("1500", "", ("1500 -> (none)",)),
    ],
)
def test_a_value_that_is_another_is_shown_even_if_it_cannot_be_read(
    before: str, after: str, lines: tuple[str, ...]
) -> None:
    tables = [factory(), factory()]
    for table, value in zip(tables, (before, after), strict=True):
        table[ETHERNET.path][0]["mtu"] = value
    name = tables[0][ETHERNET.path][0]["default-name"]
    found = differences(*map(reading, tables))
    assert found.changed == tuple(f"~ {ETHERNET.path} {name}: mtu {line}" for line in lines)
    assert found.added == ()
