from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.secrets import SecretRef
from core.routeros.diff import FieldChange, RowChange
from core.routeros.menus import BRIDGE_PORT, ETHERNET, IDENTITY, SERVICE, USER, Menu
from core.routeros.pyinfra_facts import to_command
from core.routeros.sentences import parse, writes

VALUES = st.text(st.characters(codec="utf-8"))


@given(VALUES)
def test_every_value_arrives_byte_for_byte(value: str) -> None:
    sentence = ("/system/identity/set", f"=name={value}")
    assert parse(to_command(sentence).get_raw_value()) == sentence


@pytest.mark.parametrize(
    "text",
    [
        "",
        "system/identity/print",
        "/",
        "//",
        "ls -l",
        "/system/identity/set name=x",
        "/system/identity/set '=name=x",
        "/system/identity/print .tag=3",
        "/system/identity/set ==x",
        "/system/identity/print ?",
        "/system/identity/print;",
    ],
)
def test_what_is_not_a_sentence_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an API|no API|No closing") as raised:
        parse(text)
    assert len(text) < 3 or text not in str(raised.value), "it may hold a secret"


def test_a_query_typed_in_a_shell() -> None:
    assert parse("/interface/print ?name=ether1 '?#|' =.proplist=name") == (
        "/interface/print",
        "?name=ether1",
        "?#|",
        "=.proplist=name",
    )


def change(menu: Menu, row: str, id_: str | None, **fields: str) -> RowChange:
    changed = tuple(FieldChange(name.replace("_", "-"), None, value) for name, value in fields.items())
    return RowChange(menu, (row,) if row else (), id_, changed)


def test_neighbours_with_the_same_values_share_a_sentence() -> None:
    changes = [
        change(ETHERNET, "a", "*4", l2mtu="9500"),
        change(ETHERNET, "b", "*5", l2mtu="9500"),
        change(ETHERNET, "c", "*6", mtu="9000"),
        change(ETHERNET, "d", "*7", l2mtu="9500"),
    ]
    assert tuple(write.sentence for write in writes(changes)) == (
        ("/interface/ethernet/set", "=.id=*4,*5", "=l2mtu=9500"),
        ("/interface/ethernet/set", "=.id=*6", "=mtu=9000"),
        ("/interface/ethernet/set", "=.id=*7", "=l2mtu=9500"),
    )
    assert writes(changes)[0].title == "writing /interface/ethernet a, b"


def test_added_rows_and_single_rows_stand_alone() -> None:
    changes = [
        change(BRIDGE_PORT, "a", None, interface="a", bridge="bridge"),
        change(BRIDGE_PORT, "b", None, interface="b", bridge="bridge"),
        change(IDENTITY, "", None, name="crs812"),
    ]
    assert tuple(write.sentence for write in writes(changes)) == (
        ("/interface/bridge/port/add", "=interface=a", "=bridge=bridge"),
        ("/interface/bridge/port/add", "=interface=b", "=bridge=bridge"),
        ("/system/identity/set", "=name=crs812"),
    )


@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from(("9000", "9500")))))
def test_no_row_is_lost_or_moved_by_sharing(rows: list[tuple[int, str]]) -> None:
    changes = [change(ETHERNET, str(number), f"*{number:X}", l2mtu=value) for number, value in rows]
    sent = [
        (id_, write.sentence[2])
        for write in writes(changes)
        for id_ in write.sentence[1].removeprefix("=.id=").split(",")
    ]
    assert sent == [(f"*{number:X}", f"=l2mtu={value}") for number, value in rows]
    assert [name for write in writes(changes) for name in write.rows] == [str(number) for number, _ in rows]


def test_removed_neighbours_share_a_sentence_and_say_no_values() -> None:
    gone = [RowChange(BRIDGE_PORT, (name,), id_, (), removes=True) for name, id_ in (("a", "*1"), ("b", "*2"))]
    assert [write.sentence for write in writes(gone)] == [("/interface/bridge/port/remove", "=.id=*1,*2")]


def test_a_secret_is_not_in_the_sentence_until_it_is_sent() -> None:
    secret = SecretRef(env="READER_PASSWORD")
    fields = (FieldChange("name", None, "eve"), FieldChange("password", None, secret))
    (write,) = writes([RowChange(USER, ("eve",), None, fields)])
    assert write.sentence == ("/user/add", "=name=eve")
    assert write.secrets == (("password", secret),)
    assert write.title == "writing /user eve"


def test_a_renamed_field_is_written_by_the_name_the_release_has() -> None:
    limited = change(SERVICE, "ssh", "*1", address="10.0.0.0/8")
    assert writes([limited])[0].sentence[2] == "=address=10.0.0.0/8"
    assert writes([limited], (7, 24, 0, 0))[0].sentence[2] == "=available-from=10.0.0.0/8"
    assert writes([limited], (7, 24, 0, -1))[0].sentence[2] == "=available-from=10.0.0.0/8"
