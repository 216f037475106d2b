"""Each change of a plan in words: what it is about, what was found, what is wanted, and never a secret."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import SecretRef, Switch
from core.routeros.change_plan import ChangeBatch, ChangePlan, UnmanagedRow
from core.routeros.diff import DesiredRow, FieldChange, RowChange, Value, diff, surplus
from core.routeros.menus import (
    BRIDGE,
    BRIDGE_PORT,
    BRIDGE_VLAN,
    COMMUNITY,
    ETHERNET,
    IDENTITY,
    MENUS,
    NTP_CLIENT,
    OLDEST,
    QUEUE,
    SCRIPT,
    SERVICE,
    SNMP,
    USER,
    Menu,
)
from core.routeros.reading import SwitchReading
from core.routeros.values import ValueKind
from switch.cages import lanes_of
from switch.desired.access import READER_GROUP
from switch.differences import LABELS, DifferenceKind, SwitchDifference, describe_differences, switch_differences
from tests.unit.model.racks import KEPT, loaded

CANARY = "canary-2Wq8"


def change(menu: Menu, key: tuple[str, ...], wanted: Mapping[str, Value], row: Mapping[str, str] | None) -> list[str]:
    """The words for one wanted row against one that is there, or none."""
    rows = [] if row is None else [{".id": "*1", **dict(zip(menu.key, key, strict=True)), **row}]
    return [text for one in diff(menu, [DesiredRow(key, wanted)], rows) for text in describe_differences(one)]


Case = tuple[Menu, tuple[str, ...], Mapping[str, Value], Mapping[str, str] | None, tuple[str, ...]]


def case_of(
    menu: Menu, key: tuple[str, ...], wanted: Mapping[str, Value], row: Mapping[str, str] | None, *lines: str
) -> Case:
    return menu, key, wanted, row, lines


CASES = {
    "no bridge": case_of(BRIDGE, ("br",), {"disabled": "no"}, None, "there is no bridge br"),
    "bridge off": case_of(BRIDGE, ("br",), {"disabled": "no"}, {"disabled": "true"}, "bridge br is off, wanted on"),
    "bridge does not filter": case_of(
        BRIDGE,
        ("br",),
        {"vlan-filtering": "yes"},
        {"vlan-filtering": "false"},
        "bridge br lets every VLAN pass, wanted only those of rack.yaml (vlan-filtering is off)",
    ),
    "port nowhere": case_of(BRIDGE_PORT, ("p1",), {"bridge": "br"}, None, "port p1 is not in bridge br (in none)"),
    "port elsewhere": case_of(
        BRIDGE_PORT, ("p1",), {"bridge": "br"}, {"bridge": "x"}, "port p1 is not in bridge br (in x)"
    ),
    "port off and in the CPU": case_of(
        BRIDGE_PORT,
        ("p1",),
        {"bridge": "br", "hw": "yes", "disabled": "no"},
        {"bridge": "br", "hw": "false", "disabled": "true"},
        "port p1 goes through the CPU (hw=no), wanted hardware offload",
        "port p1 is off, wanted on",
    ),
    "no VLAN": case_of(BRIDGE_VLAN, ("br", "1100"), {"tagged": "p1"}, None, "VLAN 1100 is not on bridge br"),
    "VLAN on other ports": case_of(
        BRIDGE_VLAN,
        ("br", "1100"),
        {"tagged": "p1,p2,p3"},
        {"tagged": "p1,p9"},
        "VLAN 1100 of bridge br is not on p2, p3 and is on p9, which are not its legs",
    ),
    "service from anywhere": case_of(
        SERVICE,
        ("ssh",),
        {"address": "10.0.0.0/8,10.1.0.0/16"},
        {"address": ""},
        "service ssh can be reached from anywhere, wanted from 10.0.0.0/8, 10.1.0.0/16 only",
    ),
    "service with another certificate": case_of(
        SERVICE,
        ("www-ssl",),
        {"certificate": "a"},
        {"certificate": "none"},
        "service www-ssl: certificate is none, wanted a",
    ),
    "no reader": case_of(
        USER,
        ("r",),
        {"group": READER_GROUP, "password": SecretRef(env="READER")},
        None,
        "user r of group sparkrack-reader is missing",
    ),
    "user from elsewhere": case_of(
        USER,
        ("r",),
        {"address": "10.0.0.0/8"},
        {"address": "1.2.3.4/32", "group": "x"},
        "user r may log in from 1.2.3.4/32, wanted from 10.0.0.0/8 only",
    ),
    "a queue": case_of(
        QUEUE,
        ("default", "3"),
        {"ecn": "yes", "schedule": "strict-priority"},
        {"schedule": "low-priority-group", "ecn": "false"},
        "queue default 3: schedule is low-priority-group, wanted strict-priority",
        "queue default 3: ecn is no, wanted yes",
    ),
    "no SNMP user": case_of(
        COMMUNITY,
        ("mon",),
        {"security": "private", "encryption-password": SecretRef(env="E")},
        None,
        "SNMP user mon is missing; wanted with name mon, security private",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_words(case: str) -> None:
    menu, key, wanted, row, lines = CASES[case]
    assert change(menu, key, wanted, row) == list(lines)


def test_words_of_menus_with_one_row() -> None:
    row = {"enabled": "false", "servers": ""}
    (one,) = diff(NTP_CLIENT, [DesiredRow((), {"enabled": "yes", "servers": "10.0.0.1"})], [row])
    assert list(describe_differences(one)) == [
        "NTP client: enabled is no, wanted yes",
        "NTP client: servers is empty, wanted 10.0.0.1",
    ]


def test_the_name_of_an_old_community_is_not_reported() -> None:
    (one,) = diff(SNMP, [DesiredRow((), {"trap-community": "mon"})], [{"trap-community": CANARY}])
    assert list(describe_differences(one)) == ["SNMP: trap-community is another, wanted mon"]


def test_a_secret_is_named_by_its_source() -> None:
    fields = (FieldChange("encryption-password", None, SecretRef(env="SNMP_E")),)
    assert list(describe_differences(RowChange(COMMUNITY, ("mon",), "*1", fields))) == [
        "SNMP user mon: encryption-password is unknown, wanted the one of environment variable SNMP_E"
    ]


def test_what_will_be_removed_is_not_in_rack_yaml() -> None:
    (one,) = surplus(USER, [("ours",)], [{".id": "*1", "name": "mallory", "group": "full"}])
    assert list(describe_differences(one)) == ["user mallory is not in rack.yaml"]


def test_every_menu_that_is_written_has_a_word() -> None:
    paths = {menu.path for menu in MENUS}
    assert set(LABELS) <= paths
    written = {menu.path for menu in MENUS if any(not field.read_only for field in menu.fields.values())}
    assert written <= set(LABELS)


TEXTS = {
    ValueKind.WORD: ["", "a", "b"],
    ValueKind.FLAG: ["yes", "false"],
    ValueKind.COUNT: ["0", "7"],
    ValueKind.RATE: ["0", "100G"],
    ValueKind.DURATION: ["5m", "10"],
    ValueKind.LIST: ["", "b,a"],
    ValueKind.POLICY: ["", "read,!write"],
}


@given(st.data())
def test_every_change_of_every_menu_has_words_without_secrets(data: st.DataObject) -> None:
    menu = data.draw(st.sampled_from([menu for menu in MENUS if menu is not ETHERNET]))
    key = tuple(f"k{number}" for number, _ in enumerate(menu.key))
    names = [name for name, field in menu.fields.items() if not field.read_only and name not in menu.key]
    secret = SecretRef(env="WHERE_IT_IS")
    fields = tuple(
        FieldChange(
            name,
            CANARY if menu.fields[name].secret else data.draw(st.sampled_from([None, *TEXTS[menu.fields[name].kind]])),
            secret if menu.fields[name].secret else data.draw(st.sampled_from(TEXTS[menu.fields[name].kind])),
        )
        for name in (data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)) if names else [])
    )
    if not fields:
        return
    added = data.draw(st.booleans()) and not menu.single and not menu.fixed
    keys = tuple(FieldChange(name, None, text) for name, text in zip(menu.key, key, strict=True)) if added else ()
    if menu is BRIDGE_PORT and added:
        fields = (FieldChange("bridge", None, "br"), *(field for field in fields if field.name != "bridge"))
    lines = list(describe_differences(RowChange(menu, key, None if added else "*1", (*keys, *fields))))
    assert lines
    for line in lines:
        assert line
        assert "\n" not in line
        assert CANARY not in line


# Lanes: the kept rack has qsfp56-dd-1 as 8x25G optic, qsfp56-1 as 2x50G copper, sfp56-3 as 1x50G copper.
SWITCH: Switch = loaded(KEPT).switches["crs812"]


def lines(edits: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The words for lanes that are as in `edits`, and have to be as in `wanted`."""
    rows = [
        {".id": f"*{number}", "default-name": name, "name": name, "auto-negotiation": "false", "disabled": "false"}
        | dict(edits.get(name, {}))
        for number, name in enumerate(name for cage in SWITCH.cages for name in lanes_of(cage))
    ]
    changes = diff(ETHERNET, [DesiredRow((name,), fields) for name, fields in wanted.items()], rows)
    reading = SwitchReading(OLDEST, {ETHERNET.path: tuple(rows)})
    return [one.text for one in switch_differences(SWITCH, reading, ChangePlan((ChangeBatch("t", "e", changes),)))]


def test_a_cage_of_one_lane() -> None:
    assert lines({"sfp56-3": {"speed": "25G-baseCR"}}, {"sfp56-3": {"speed": "50G-baseCR"}}) == [
        "cage sfp56-3 is 1x25G copper, wanted 1x50G copper"
    ]
    assert lines({"sfp56-3": {"disabled": "true"}}, {"sfp56-3": {"disabled": "no"}}) == [
        "leg crs812/sfp56-3: it is disabled, wanted enabled"
    ]


def test_the_medium_of_a_cage() -> None:
    names = lanes_of("qsfp56-dd-1")
    assert lines(
        {name: {"speed": "25G-baseCR"} for name in names}, {name: {"speed": "25G-baseSR-LR"} for name in names}
    ) == ["cage qsfp56-dd-1 is 8x25G copper, wanted 8x25G optic"]


def test_a_cage_that_is_split_otherwise_and_has_a_lane_off() -> None:
    edits = {"qsfp56-1-1": {"speed": "200G-baseCR4"}, "qsfp56-1-2": {"disabled": "true"}}
    wanted = {"qsfp56-1-1": {"speed": "50G-baseCR2"}, "qsfp56-1-2": {"disabled": "no"}}
    assert lines(edits, wanted) == [
        "cage qsfp56-1 is 1x200G copper, wanted 2x50G copper",
        "lane 2 of cage qsfp56-1 is disabled: its leg would lose half its lanes; wanted enabled",
    ]


def test_a_lane_that_two_batches_write_is_reported_once_a_field() -> None:
    row = {".id": "*1", "default-name": "qsfp56-1-1", "name": "n", "l2mtu": "1584", "fec-mode": "off"}
    rest = [{".id": "*2", "default-name": name, "name": name} for c in SWITCH.cages for name in lanes_of(c)]
    rows = (row, *(other for other in rest if other["default-name"] != "qsfp56-1-1"))
    sizes = diff(ETHERNET, [DesiredRow(("qsfp56-1-1",), {"l2mtu": "9500"})], rows)
    cage = diff(ETHERNET, [DesiredRow(("qsfp56-1-1",), {"fec-mode": "fec91"})], rows)
    reading = SwitchReading(OLDEST, {ETHERNET.path: rows})
    found = switch_differences(SWITCH, reading, ChangePlan((ChangeBatch("s", "", sizes), ChangeBatch("c", "", cage))))
    assert [one.text for one in found] == [
        "leg crs812/qsfp56-1-1: FEC is off, wanted fec91",
        "lane 1 of cage qsfp56-1: l2mtu is 1584, wanted 9500",
    ]


def test_sorts_are_kept_apart() -> None:
    changes = diff(IDENTITY, [DesiredRow((), {"name": "a"})], [{"name": "b"}])
    reading = SwitchReading(OLDEST, {ETHERNET.path: (), SCRIPT.path: ()})
    unmanaged = (UnmanagedRow("/user", "mallory"), UnmanagedRow("/interface/bridge/vlan", "br 7"))
    plan = ChangePlan((ChangeBatch("t", "e", changes),), unmanaged, ("it is broken",))
    assert switch_differences(SWITCH.model_copy(update={"cages": {}}), reading, plan) == (
        SwitchDifference(DifferenceKind.DIFFERS, "identity: name is b, wanted a"),
        SwitchDifference(DifferenceKind.FAULT, "it is broken"),
        SwitchDifference(DifferenceKind.UNMANAGED, "user mallory is not in rack.yaml"),
        SwitchDifference(DifferenceKind.UNMANAGED, "VLAN of bridge br 7 is not in rack.yaml"),
    )


def test_nothing_is_no_drift() -> None:
    reading = SwitchReading(OLDEST, {ETHERNET.path: ()})
    assert switch_differences(SWITCH.model_copy(update={"cages": {}}), reading, ChangePlan(())) == ()
