"""What an upgrade of RouterOS has changed, from the readings before and after."""

from __future__ import annotations

import pytest

from core.routeros.menus import ETHERNET, PROFILE, QUEUE, SETTINGS
from core.routeros.menus.menu import Menu
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


@pytest.mark.parametrize(
    ("menu", "row", "fixed"),
    [
        (SETTINGS, {"lossless-traffic-class": "auto"}, True),
        (QUEUE, {"tx-manager": "default", "traffic-class": "7"}, True),
        (PROFILE, {"name": "mine"}, False),
    ],
)
def test_a_row_that_nobody_can_add_is_of_the_new_release_and_any_other_a_difference(
    menu: Menu, row: dict[str, str], fixed: bool
) -> None:
    before, after = factory(), factory()
    before[menu.path], after[menu.path] = [], [{".id": "*99", **row}]
    found = differences(reading(before), reading(after))
    named = f"{menu.path} {' '.join(menu.key_of(row))}".rstrip()
    assert (found.changed, found.added) == (((), (named,)) if fixed else ((f"+ {named}",), ()))
