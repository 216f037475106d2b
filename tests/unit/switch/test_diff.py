from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.secrets import SecretRef
from core.routeros.diff import DesiredRow, FieldChange, diff, index, surplus
from core.routeros.errors import UnreadableError
from core.routeros.menus import BRIDGE_PORT, BRIDGE_VLAN, ETHERNET, GROUP, IDENTITY, LOGGING, USER
from tests.unit.switch.rows import carry_out, factory, row

LANE = "qsfp56-dd-1-1"


def test_equal_in_meaning_is_equal() -> None:
    tables = factory()
    row(tables, LANE).update({"disabled": "false", "auto-negotiation": "true", "mtu": "1500"})
    wanted = [DesiredRow((LANE,), {"disabled": "no", "auto-negotiation": "yes", "mtu": "1500"})]
    assert diff(ETHERNET, wanted, tables["/interface/ethernet"]) == ()


def test_absent_is_default() -> None:
    tables = factory()
    for name in ("disabled", "fec-mode", "mtu"):
        del row(tables, LANE)[name]
    wanted = [DesiredRow((LANE,), {"disabled": "no", "fec-mode": "auto", "mtu": "1500"})]
    assert diff(ETHERNET, wanted, tables["/interface/ethernet"]) == ()


def test_absent_without_default_is_a_change() -> None:
    changes = diff(ETHERNET, [DesiredRow((LANE,), {"speed": "100G-baseCR2"})], factory()["/interface/ethernet"])
    assert [change.fields for change in changes] == [(FieldChange("speed", None, "100G-baseCR2"),)]


def test_only_what_is_wanted_is_compared() -> None:
    wanted = [DesiredRow((LANE,), {"l2mtu": "9500"})]
    (change,) = diff(ETHERNET, wanted, factory()["/interface/ethernet"])
    assert (change.row, change.id, change.values) == (LANE, "*4", (("l2mtu", "9500"),))
    assert change.fields[0].old == "1584"


def test_rows_are_found_by_the_name_they_have_from_the_factory() -> None:
    tables = factory()
    row(tables, LANE)["name"] = "rack-a"
    row(tables, "ether1")["name"] = LANE
    (change,) = diff(ETHERNET, [DesiredRow((LANE,), {"mtu": "9000"})], tables["/interface/ethernet"])
    assert change.id == row(tables, LANE)[".id"]


def test_a_missing_row_is_added_with_its_key() -> None:
    (change,) = diff(BRIDGE_PORT, [DesiredRow(("x",), {"bridge": "bridge", "disabled": "no"})], [])
    assert change.adds
    assert change.values == (("interface", "x"), ("bridge", "bridge"))


def test_the_only_row_of_a_menu() -> None:
    (change,) = diff(IDENTITY, [DesiredRow((), {"name": "crs812"})], [{"name": "MikroTik"}])
    assert not change.adds
    assert change.id is None
    assert diff(IDENTITY, [DesiredRow((), {"name": "crs812"})], [{"name": "crs812"}]) == ()


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "has no qsfp56-dd-1-1"),
        ([{".id": "*4", "default-name": LANE}, {".id": "*5", "default-name": LANE}], "two rows"),
        ([{"default-name": LANE}], "without .id"),
        ([{".id": "*4"}], "without default-name"),
        ([{".id": "*4", "default-name": LANE, "mtu": "\x00garbage"}], "mtu: .*not a whole number"),
        ([{".id": "*4", "default-name": LANE, "mtu": ""}], "mtu"),
    ],
)
def test_rows_no_switch_has_are_unreadable(rows: list[dict[str, str]], text: str) -> None:
    with pytest.raises(UnreadableError, match=text):
        diff(ETHERNET, [DesiredRow((LANE,), {"mtu": "9000"})], rows)


@pytest.mark.parametrize("rows", [[], [{"name": "a"}, {"name": "b"}]])
def test_a_menu_of_one_row_has_one(rows: list[dict[str, str]]) -> None:
    with pytest.raises(UnreadableError, match="one row"):
        diff(IDENTITY, [DesiredRow((), {"name": "a"})], rows)


def test_a_row_may_be_named_by_two_fields() -> None:
    rows = [
        {".id": "*1", "topics": "info", "action": "memory"},
        {".id": "*2", "topics": "info", "action": "sparkrack", "disabled": "true"},
    ]
    (change,) = diff(LOGGING, [DesiredRow(("info", "sparkrack"), {"disabled": "no"})], rows)
    assert (change.id, change.row) == ("*2", "info sparkrack")
    (added,) = diff(LOGGING, [DesiredRow(("error", "sparkrack"), {"disabled": "no"})], rows)
    assert added.adds
    assert added.values == (("topics", "error"), ("action", "sparkrack"))


def test_keys_are_compared_by_meaning() -> None:
    rows = [{".id": "*1", "bridge": "bridge", "vlan-ids": "1101,1100", "tagged": "b,a"}]
    assert diff(BRIDGE_VLAN, [DesiredRow(("bridge", "1100,1101"), {"tagged": "a,b"})], rows) == ()
    assert surplus(BRIDGE_VLAN, [("bridge", "1100,1101")], rows) == ()


def test_a_policy_is_what_it_grants() -> None:
    rows = [{".id": "*1", "name": "g", "policy": "read,rest-api,!write,!ftp"}]
    assert diff(GROUP, [DesiredRow(("g",), {"policy": "rest-api,read"})], rows) == ()
    (change,) = diff(GROUP, [DesiredRow(("g",), {"policy": "read"})], rows)
    assert change.values == (("policy", "read"),)


def test_a_secret_is_set_with_its_row_and_never_compared_or_printed() -> None:
    wanted = [DesiredRow(("eve",), {"group": "full", "password": SecretRef(env="EVE")})]
    (added,) = diff(USER, wanted, [])
    assert ("password", SecretRef(env="EVE")) in added.values
    assert "(environment variable EVE)" in str(added)
    assert diff(USER, wanted, [{".id": "*1", "name": "eve", "group": "full"}]) == ()


def test_rows_no_one_wants_are_removed_with_what_they_were() -> None:
    rows = factory()["/user"]
    (change,) = surplus(USER, [("sparkrack",)], rows)
    assert (change.row, change.id, change.removes, change.adds) == ("admin", "*1", True, False)
    assert change.before == rows[0]
    assert str(change) == "- /user admin"


def test_only_wanted_rows_need_a_key_of_their_own() -> None:
    """The same port may be in a menu twice where it is none of ours."""
    rows = [{".id": f"*{number}", "interface": name} for number, name in enumerate(("x", "x", "y"))]
    assert diff(BRIDGE_PORT, [DesiredRow(("y",), {"hw": "yes"})], rows) == ()
    with pytest.raises(UnreadableError, match="two rows with interface=x"):
        diff(BRIDGE_PORT, [DesiredRow(("x",), {"hw": "yes"})], rows)
    with pytest.raises(UnreadableError, match="two rows"):
        index(BRIDGE_PORT, rows)


LANES = st.sampled_from([f"qsfp56-dd-1-{lane}" for lane in range(1, 9)])
FIELDS = {
    "disabled": st.sampled_from(("yes", "no")),
    "mtu": st.sampled_from(("1500", "9000")),
    "l2mtu": st.sampled_from(("1584", "9500")),
    "speed": st.sampled_from(("100G-baseCR2", "200G-baseCR4")),
}
ROWS = st.dictionaries(LANES, st.fixed_dictionaries({}, optional=FIELDS))


@given(ROWS, ROWS)
def test_after_its_changes_nothing_differs_and_nothing_else_moved(
    before: dict[str, dict[str, str]], wanted: dict[str, dict[str, str]]
) -> None:
    tables = factory()
    for name, fields in before.items():
        row(tables, name).update(fields)
    old = {name: dict(row(tables, name)) for name in (f"qsfp56-dd-1-{lane}" for lane in range(1, 9))}
    wants = [DesiredRow((name,), fields) for name, fields in wanted.items()]
    changes = diff(ETHERNET, wants, tables["/interface/ethernet"])
    carry_out(tables, changes)
    assert diff(ETHERNET, wants, tables["/interface/ethernet"]) == ()
    assert [change.row for change in changes] == [name for name in wanted if any(c.row == name for c in changes)]
    touched = {(change.row, name) for change in changes for name, _ in change.values}
    for name, fields in old.items():
        for field, value in row(tables, name).items():
            assert (name, field) in touched or value == fields.get(field)
