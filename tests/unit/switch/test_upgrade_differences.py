"""What an upgrade of RouterOS has changed, from the readings before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.routeros.menus import ETHERNET, PROFILE, QUEUE, SETTINGS, Menu
from switch.backup import KEPT
from switch.upgrade.differences import differences, export_diff
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
def test_a_row_that_no_one_can_add_is_of_the_new_release_and_any_other_a_difference(
    menu: Menu, row: dict[str, str], fixed: bool
) -> None:
    before, after = factory(), factory()
    before[menu.path], after[menu.path] = [], [{".id": "*99", **row}]
    found = differences(reading(before), reading(after))
    named = f"{menu.path} {' '.join(menu.key_of(row))}".rstrip()
    assert (found.changed, found.added) == (((), (named,)) if fixed else ((f"+ {named}",), ()))


def test_a_menu_that_goes_or_comes_is_a_line() -> None:
    whole, without = factory(), factory()
    del without[PROFILE.path]
    lacking = replace(reading(without), absent=frozenset({PROFILE.path}))
    assert differences(reading(whole), lacking).changed == (f"- {PROFILE.path}: the whole menu",)
    found = differences(lacking, reading(whole))
    assert (found.changed, found.added) == ((), (PROFILE.path,))
    assert differences(lacking, lacking) == differences(reading(whole), reading(whole))


def test_a_row_that_goes_is_a_line_and_rows_of_one_menu_that_come_are_counted() -> None:
    before, after = factory(), factory()
    del after[PROFILE.path][0]
    assert differences(reading(before), reading(after)).changed == (f"- {PROFILE.path} default",)
    before, after = factory(), factory()
    for row in before[ETHERNET.path]:
        del row["l2mtu"]
    found = differences(reading(before), reading(after))
    assert (found.changed, found.added) == ((), (f"{ETHERNET.path}: l2mtu ({len(after[ETHERNET.path])} rows)",))


def test_a_private_value_that_changes_is_not_shown() -> None:
    (menu, name), *_ = [
        (menu, name)
        for menu in KEPT
        for name, spec in menu.fields.items()
        if spec.private and not spec.secret and not spec.volatile and name not in menu.key
    ]
    before, after = factory(), factory()
    rows = before[menu.path] or [{".id": "*1", **dict.fromkeys(menu.key, "x")}]
    before[menu.path] = [row | {name: "hunter2"} for row in rows[:1]]
    after[menu.path] = [row | {name: "hunter3"} for row in rows[:1]]
    (line,) = differences(reading(before), reading(after)).changed
    assert line.endswith(f": {name} (its value is private)")
    assert "hunter" not in line


def test_two_exports_are_compared_without_their_comments() -> None:
    before = b"# 2026-01-01 by RouterOS 7.23\n/ip\nset a=1\nset b=\xff\nset c=3\n"
    after = b"# 2027-01-01 by RouterOS 7.24\n/ip\nset a=1\nset b=2\nset c=3\n"
    assert export_diff(before, before) == ()
    assert export_diff(before, after) == (
        "--- before",
        "+++ after",
        "@@ -2,3 +2,3 @@",
        " set a=1",
        "-set b=\ufffd",
        "+set b=2",
        " set c=3",
    )
