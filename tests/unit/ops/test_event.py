"""An event -> its sentence; and its data, from which no sentence has to be taken apart."""

from __future__ import annotations

import pytest

from core.util.event import Action, Event, EventKind, FieldValue, acted, field_change, file_acted, value_change

ROW = Event(EventKind.CHANGE, menu="/interface/bridge/vlan", subject="bridge 20", action=Action.CREATE)
CASES = [
    (value_change("vm.swappiness", 60, 1), "vm.swappiness: 60 -> 1"),
    (value_change("x", None, ""), "x: (none) -> (empty)"),
    (value_change("limit", "8M", "infinity", "from now on"), "limit: 8M -> infinity (from now on)"),
    (field_change("enp1s0f0np0", "mtu", 1500, 9000), "enp1s0f0np0: mtu 1500 -> 9000"),
    (
        Event(EventKind.CHANGE, subject="c", fields=(FieldValue("memory", "1G", "2G"), FieldValue("swap", "1G", "0"))),
        "c: memory 1G -> 2G, swap 1G -> 0",
    ),
    (
        Event(EventKind.RESTART, subject="g", action=Action.RESTART, fields=(FieldValue("floor", "1G", "3G"),)),
        "restart g: floor 1G -> 3G",
    ),
    (Event(EventKind.FILE, path="/etc/{}", action=Action.MODIFY, diff=("+x",)), "modify /etc/{}"),
    (Event(EventKind.NOTE, action=Action.REBOOT, detail="kernel 6.14 runs"), "reboot required: kernel 6.14 runs"),
    (Event(EventKind.UNKNOWN, "memory", detail="garbled"), "garbled"),
    (Event(EventKind.OUTLIER, subject="BIOS"), "BIOS"),
    (ROW, "+ /interface/bridge/vlan bridge 20"),
    (
        Event(
            EventKind.CHANGE,
            menu="/system/identity",
            action=Action.MODIFY,
            fields=(FieldValue("name", "MikroTik", "crs812"), FieldValue("note", None, "")),
        ),
        "~ /system/identity: name MikroTik -> crs812, note (none) -> (empty)",
    ),
    (Event(EventKind.UNMANAGED, menu="/user", subject="admin"), "/user admin"),
    *((event, text) for event, text in zip(acted(Action.MASK, "a", "b"), ("mask a", "mask b"), strict=True)),
    *((event, "let a in once it is there") for event in acted(Action.ALLOW_LOGIN, "a", detail="once it is there")),
    *((event, "copy a from spark1") for event in acted(Action.COPY, "a", detail="from spark1")),
    *((event, "/a: owner and mode are put right") for event in file_acted(Action.PERMISSIONS, "/a")),
    *((event, "move /a to the backups: why") for event in file_acted(Action.MOVE, "/a", detail="why")),
]


@pytest.mark.parametrize(("event", "sentence"), CASES, ids=[sentence for _, sentence in CASES])
def test_sentence(event: Event, sentence: str) -> None:
    assert event.message == sentence
    assert event.labelled == (f"{event.role}: {sentence}" if event.role else sentence)


@pytest.mark.parametrize("action", Action)
def test_every_action_names_its_subject(action: Action) -> None:
    (event,) = acted(action, "SUBJECT")
    assert ("SUBJECT" in event.message) == (action not in (Action.REBOOT, Action.UPGRADE))
    assert "{" not in event.message


def test_of_a_row_that_is_added_only_what_it_shall_hold_is_shown() -> None:
    row = Event(ROW.kind, menu=ROW.menu, subject="x", action=Action.CREATE, fields=(FieldValue("comment", None, "y"),))
    assert row.message == "+ /interface/bridge/vlan x: comment y"
