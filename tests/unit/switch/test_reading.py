from __future__ import annotations

import pytest

from core.routeros.errors import SentenceError, SessionError, UnreadableError
from core.routeros.menus import (
    BRIDGE,
    BRIDGE_PORT,
    ETHERNET,
    IDENTITY,
    MENUS,
    OLDEST,
    QOS_PORT,
    SCHEDULER,
    SERVICE,
    SETTINGS,
    Sentence,
)
from core.routeros.reading import read_switch
from tests.unit.switch.rows import Tables, asking, factory, reading, row


def test_the_unit_is_read_first_and_each_menu_once() -> None:
    asked: list[str] = []
    read_switch(asking(factory(), asked), (*MENUS, *MENUS))
    assert asked[:3] == ["/system/resource", "/system/routerboard", "/system/package"]
    assert sorted(set(asked)) == sorted(menu.path for menu in MENUS)
    assert asked.count("/interface/ethernet") == 1


@pytest.mark.parametrize("version", ["7.22.3 (stable)", "6.49", "7.23rc1", "banana", ""])
def test_of_a_release_that_is_too_old_only_the_unit_is_read(version: str) -> None:
    tables = factory()
    tables["/system/resource"][0]["version"] = version
    asked: list[str] = []
    found = read_switch(asking(tables, asked), (ETHERNET, SERVICE))
    assert found.release < OLDEST
    assert len(asked) == 3
    with pytest.raises(KeyError):
        found.rows(ETHERNET)


def test_a_menu_the_switch_does_not_have() -> None:
    tables = factory()
    del tables[QOS_PORT.path]
    found = read_switch(asking(tables), (QOS_PORT, IDENTITY), (QOS_PORT,))
    assert found.rows(QOS_PORT) == ()
    assert found.absent == {QOS_PORT.path}
    with pytest.raises(SentenceError):
        read_switch(asking(tables), (QOS_PORT,))


@pytest.mark.parametrize("fault", [SentenceError("not enough permissions (9)"), SessionError("no such host")])
def test_a_menu_that_cannot_be_read_is_not_absent(fault: Exception) -> None:
    tables = factory()

    def ask(sentence: Sentence) -> list[dict[str, str]]:
        if sentence[0].startswith(QOS_PORT.path):
            raise fault
        return asking(tables)(sentence)

    with pytest.raises(type(fault)):
        read_switch(ask, (QOS_PORT,), (QOS_PORT,))


def test_what_belongs_to_the_switch_itself_is_left_out() -> None:
    tables = factory()
    tables["/interface/bridge/port"].append({".id": "*99", "interface": "vpn", "bridge": "bridge", "dynamic": "true"})
    found = reading(tables)
    assert ("vpn",) not in found.by_key(BRIDGE_PORT)
    assert [row["name"] for row in found.rows(SERVICE)].count("api-ssl") == 1


def test_a_later_release_says_it_in_other_words() -> None:
    tables = factory()
    tables["/system/resource"][0]["version"] = "7.24rc4 (testing)"
    for entry in tables["/ip/service"]:
        entry["available-from"] = "10.0.0.0/8"
        entry.pop("address", None)
    services = reading(tables).by_key(SERVICE)
    assert services[("ssh",)]["address"] == "10.0.0.0/8"
    assert "available-from" not in services[("ssh",)]


def test_rows_are_found_by_the_name_from_the_factory() -> None:
    tables = factory()
    row(tables, "ether1")["name"] = "uplink"
    assert reading(tables).ethernet["ether1"]["name"] == "uplink"


def changed(path: str, key: str, name: str, **fields: str | None) -> Tables:
    tables = factory()
    entry = row(tables, name, path, key)
    for field, value in fields.items():
        if value is None:
            entry.pop(field.replace("_", "-"), None)
        else:
            entry[field.replace("_", "-")] = value
    return tables


ALL = [menu for menu in MENUS if menu.path not in ("/user/active", "/ip/arp")]


@pytest.mark.parametrize(
    ("tables", "same"),
    [
        (factory(), True),
        (changed("/interface/bridge", "name", "bridge", **{".id": "*99"}), True),  # removed and put back
        (changed("/interface/bridge", "name", "bridge", disabled=None), True),  # a default
        (changed("/interface/bridge", "name", "bridge", disabled="no"), True),  # another spelling
        (changed("/interface/bridge", "name", "bridge", disabled="true"), False),
        (changed("/interface/ethernet", "name", "ether1", mtu="1600"), False),
        (changed("/interface/ethernet", "name", "ether1", speed="1G-baseX"), True),  # it negotiates
        (changed("/interface/ethernet", "name", "ether1", auto_negotiation="false", speed="1G-baseX"), False),
        (changed("/interface/bridge/port", "interface", "ether1", hw_offload="false"), True),  # changes by itself
        (changed("/user", "name", "admin", group="read"), False),
    ],
)
def test_two_readings_are_the_same_when_they_mean_the_same(tables: Tables, same: bool) -> None:
    assert reading(factory()).same(reading(tables), ALL) is same
    assert reading(tables).same(reading(factory()), ALL) is same


def test_a_row_more_or_less_is_not_the_same() -> None:
    tables = factory()
    tables["/user"].pop()
    assert not reading(tables).same(reading(factory()), ALL)
    assert reading(tables).same(reading(factory()), [IDENTITY, BRIDGE])


def test_a_rollback_timer_is_not_a_difference_but_any_other_schedule_is() -> None:
    tables = factory()
    tables["/system/scheduler"].append({".id": "*1", "name": "sparkrack-undo-20260101T000000-0001", "next-run": "soon"})
    assert reading(tables).same(reading(factory()), [SCHEDULER])
    tables["/system/scheduler"].append({".id": "*2", "name": "mine"})
    assert not reading(tables).same(reading(factory()), [SCHEDULER])


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("/interface/ethernet", []),
        ("/interface/ethernet", [{".id": "*1", "default-name": "ether1"}]),
        ("/interface/ethernet", [{".id": "*1", "name": "ether1"}]),
        ("/system/resource", []),
        ("/interface/bridge/port", [{".id": "*1", "interface": "x", "dynamic": "perhaps"}]),
    ],
)
def test_answers_no_switch_gives_are_unreadable(path: str, rows: list[dict[str, str]]) -> None:
    with pytest.raises(UnreadableError, match=path):
        reading(factory() | {path: rows})


def test_a_menu_of_one_row_has_one() -> None:
    tables = factory()
    tables[SETTINGS.path] = []
    with pytest.raises(UnreadableError, match="should have one row and has 0"):
        reading(tables).only(SETTINGS)
