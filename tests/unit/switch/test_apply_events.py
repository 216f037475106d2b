"""A change of a row -> the event that plan, drift and journal give: with its values, and without any secret."""

from __future__ import annotations

from core.model import SecretRef
from core.routeros.diff import HIDDEN, DesiredRow, RowChange, diff
from core.routeros.menus import COMMUNITY, IDENTITY, SNMP, USER
from core.util.event import Action, EventKind, FieldValue
from sparkrack.engine.plan import Message
from switch.apply import row_event

CANARY = "tr4p-c4n4ry"


def changed(change: RowChange) -> Message:
    """The event as it stands in JSON. Its sentence is that of the change."""
    event = row_event(change)
    assert event.message == str(change)
    return Message.of(event)


def test_values_of_a_row() -> None:
    (change,) = diff(IDENTITY, [DesiredRow((), {"name": "crs812"})], [{".id": "*0", "name": "MikroTik"}])
    reported = changed(change)
    assert (reported.kind, reported.action, reported.menu, reported.subject) == (
        EventKind.CHANGE,
        Action.MODIFY,
        "/system/identity",
        None,
    )
    assert reported.fields == (FieldValue("name", "MikroTik", "crs812"),)


def test_a_private_value_is_hidden_on_both_sides() -> None:
    (change,) = diff(SNMP, [DesiredRow((), {"trap-community": f"{CANARY}-new"})], [{"trap-community": CANARY}])
    reported = changed(change)
    assert reported.fields == (FieldValue("trap-community", HIDDEN, HIDDEN),)
    assert CANARY not in repr(reported)


def test_a_private_value_that_is_empty_shows_that_it_is() -> None:
    (change,) = diff(SNMP, [DesiredRow((), {"trap-community": ""})], [{"trap-community": CANARY}])
    assert changed(change).fields == (FieldValue("trap-community", HIDDEN, ""),)


def test_a_password_is_its_reference() -> None:
    password = SecretRef(env="SOME_PASSWORD")
    (change,) = diff(USER, [DesiredRow(("ops",), {"group": "full", "password": password})], [])
    reported = changed(change)
    assert reported.action is Action.CREATE
    assert FieldValue("password", None, "(environment variable SOME_PASSWORD)") in reported.fields


def test_a_community_that_lets_in_by_its_name_is_hidden() -> None:
    row = {".id": "*1", "name": CANARY, "security": "none"}
    change = RowChange(COMMUNITY, (CANARY,), "*1", (), removes=True, before=row)
    reported = changed(change)
    assert (reported.subject, reported.action) == (HIDDEN, Action.REMOVE)
    assert CANARY not in repr(reported)
