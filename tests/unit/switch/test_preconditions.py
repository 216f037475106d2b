from __future__ import annotations

import pytest

from core.advisories.advisories import ROUTEROS, current_releases
from core.routeros.errors import RefusedError, UnreadableError
from core.routeros.menus import OLDEST
from core.routeros.versions import release
from switch.plan import plan
from switch.preconditions import blockers, device_mode, mlag
from tests.unit.switch.racks import MakeRack
from tests.unit.switch.rows import Tables, factory, reading


def test_the_declared_switch_is_let_through(rack: MakeRack) -> None:
    assert blockers(rack(serial="HX1")[1], reading(factory())) == ()


@pytest.mark.parametrize("board", ["CRS812-8DS-2DQ-2DDQ-RM", "CRS812-8DS-2DQ-2DDQ"])
def test_the_mounting_is_not_the_model(rack: MakeRack, board: str) -> None:
    tables = factory()
    tables["/system/routerboard"] = [{}]
    tables["/system/resource"][0]["board-name"] = board
    assert blockers(rack()[1], reading(tables)) == ()


@pytest.mark.parametrize(
    ("menu", "rows", "reported"),
    [
        (
            "/system/routerboard",
            [{"model": "CRS812-8DS-2DQ-2DDQ"}],
            "the device has serial number (none); the rack file means HX1",
        ),
        (
            "/system/resource",
            [{"version": "7.23beta4"}],
            (
                "the device runs RouterOS 7.23beta4; at least 7.23 is needed, take {current}: sparkrack upgrade "
                "switch --packages FOLDER"
            ),
        ),
        ("/system/resource", [{"version": "banana"}], "the device reports RouterOS 'banana', which is not a version"),
        ("/system/resource", [{}], "the device reports RouterOS '', which is not a version"),
        (
            "/system/package",
            [{".id": "*1", "name": "switch-marvell", "disabled": "true"}],
            "package switch-marvell is disabled; without it the cages do not work",
        ),
        (
            "/system/package",
            [{".id": "*1", "name": "switch-marvell", "disabled": "true", "available": "true"}],
            "package switch-marvell is not installed; without it the cages do not work",
        ),
        (
            "/interface/bridge",
            [{".id": "*1", "name": "br"}],
            "the device has no bridge bridge; its bridges: br, and the chip forwards for one only: declare that one",
        ),
        (
            "/interface/ethernet",
            [{".id": "*1", "default-name": "a", "name": "a"}],
            "the device has no interface {lanes}, of a declared cage",
        ),
    ],
)
def test_what_is_not_meant_or_not_fit_is_refused(
    rack: MakeRack, menu: str, rows: list[dict[str, str]], reported: str
) -> None:
    tables = factory()
    if menu == "/system/routerboard":
        del tables["/system/resource"][0]["board-name"]
    tables[menu] = rows
    lanes = ", ".join(f"qsfp56-dd-{cage}-{number}" for cage in (1, 2) for number in range(1, 9))
    reported = reported.format(current=current_releases(ROUTEROS), lanes=lanes)
    assert reported in blockers(rack(serial="HX1")[1], reading(tables))


def test_a_device_without_a_model_is_refused(rack: MakeRack) -> None:
    tables = factory()
    tables["/system/routerboard"] = [{}]
    del tables["/system/resource"][0]["board-name"]
    (reason,) = blockers(rack()[1], reading(tables))
    assert reason == "the device does not report its model; CRS812-8DS-2DQ-2DDQ is declared"


def test_a_bridge_is_made_where_there_is_none(rack: MakeRack) -> None:
    tables = factory() | {"/interface/bridge": []}
    assert blockers(rack()[1], reading(tables)) == ()


def test_of_the_wrong_unit_nothing_else_is_judged(rack: MakeRack) -> None:
    tables = factory() | {"/interface/bridge": [{".id": "*1", "name": "br"}]}
    tables["/system/routerboard"][0]["serial-number"] = "HX9"
    (reason,) = blockers(rack(serial="HX1")[1], reading(tables))
    assert "serial number HX9" in reason


@pytest.mark.parametrize(
    ("text", "enough"),
    [
        ("7.23", True),
        ("7.23.7 (long-term)", True),
        ("7.24rc4 (testing)", True),
        ("7.23_ab123", True),
        ("8.0", True),
        ("7.100", True),
        ("7.23rc1", False),
        ("7.22.3", False),
        ("6.49.10", False),
    ],
)
def test_releases_are_compared_as_numbers(text: str, enough: bool) -> None:
    found = release(text)
    assert found is not None
    assert (found >= OLDEST) is enough


@pytest.mark.parametrize("text", ["", "seven", "7", "7.23.", "7.x"])
def test_what_is_not_a_release(text: str) -> None:
    assert release(text) is None


SMALL = (
    "bridge bridge has mtu 9000 of its own and its port ether1 has l2mtu 1584: RouterOS refuses every change of the "
    "bridge then; run /interface/bridge/set bridge mtu=auto, or raise l2mtu of ether1"
)


def test_a_change_of_a_bridge_that_routeros_would_refuse_is_refused_in_the_plan(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge"][0]["mtu"] = "9000"
    with pytest.raises(RefusedError) as refused:
        plan(*rack(vlans=[1100, 1101]), reading(tables))
    assert refused.value.reasons == (SMALL,)


def test_a_bridge_that_is_not_changed_may_have_any_mtu(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge"][0]["mtu"] = "9000"
    assert plan(*rack(), reading(tables)).changes


def test_the_l2mtu_that_the_plan_itself_writes_counts(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge"][0]["mtu"] = "9000"
    cages = ("qsfp56-dd-1-", "qsfp56-dd-2-")
    ports = "/interface/bridge/port"
    tables[ports] = [entry for entry in tables[ports] if entry["interface"].startswith(cages)]
    assert plan(*rack(vlans=[1100, 1101]), reading(tables)).changes
    tables["/interface/bridge"][0]["mtu"] = "9501"
    with pytest.raises(RefusedError, match="its port qsfp56-dd-1-1 has l2mtu 9500"):
        plan(*rack(vlans=[1100, 1101]), reading(tables))


@pytest.mark.parametrize("mode", [{"mode": "home"}, {"mode": "home", "scheduler": "false"}])
def test_a_device_that_would_run_no_rollback_timer_is_refused(rack: MakeRack, mode: dict[str, str]) -> None:
    tables = factory() | {"/system/device-mode": [mode]}
    with pytest.raises(RefusedError, match="device mode home keeps the scheduler off") as refused:
        plan(*rack(), reading(tables))
    assert "run /system/device-mode/update" in str(refused.value)
    assert "press the reset or mode button of the device within 5 minutes" in str(refused.value)


@pytest.mark.parametrize("rows", [[], [{"scheduler": "true"}]])
def test_a_device_that_prints_no_mode_is_unknown(rack: MakeRack, rows: list[dict[str, str]]) -> None:
    with pytest.raises(UnreadableError, match="/system/device-mode"):
        plan(*rack(), reading(factory() | {"/system/device-mode": rows}))


def test_a_device_may_print_no_more_than_its_mode(rack: MakeRack) -> None:
    assert plan(*rack(), reading(factory() | {"/system/device-mode": [{"mode": "advanced"}]})).changes


@pytest.mark.parametrize("name", ["spark,1", "spark;1", "!spark1", "*1F"])
def test_a_leg_whose_name_no_list_can_hold_is_refused_in_the_plan(rack: MakeRack, name: str) -> None:
    tables = factory()
    _rename_port(tables, "qsfp56-dd-1-3", name)
    with pytest.raises(RefusedError) as refused:
        plan(*rack(vlans=[1100, 1101]), reading(tables))
    assert str(refused.value) == (
        f"qsfp56-dd-1-3 is named {name!r} on the switch, and the ports of a VLAN are a list, which cannot hold that "
        "name: rename it (/interface/ethernet/set [find default-name=qsfp56-dd-1-3] name=qsfp56-dd-1-3)"
    )


@pytest.mark.parametrize(
    ("port", "name", "keys"),
    [
        ("qsfp56-dd-1-3", 'spark one "$x" *1F!', {"vlans": [1100, 1101]}),
        ("qsfp56-dd-1-3", "spark,1", {}),
        ("sfp56-1", "spark,1", {"vlans": [1100, 1101]}),
    ],
    ids=["a list can hold it", "no list is written", "it is in no list"],
)
def test_any_other_name_of_a_leg_is_written(rack: MakeRack, port: str, name: str, keys: dict[str, object]) -> None:
    tables = factory()
    _rename_port(tables, port, name)
    assert plan(*rack(**keys), reading(tables)).changes


def _rename_port(tables: Tables, port: str, name: str) -> None:
    qos = "/interface/ethernet/switch/qos/port"
    for path, field in (("/interface/ethernet", "name"), ("/interface/bridge/port", "interface"), (qos, "name")):
        for row in tables[path]:
            if row[field] == port:
                row[field] = name


def test_a_scheduler_that_is_neither_on_nor_off_is_unknown() -> None:
    found = reading(factory() | {"/system/device-mode": [{"mode": "home", "scheduler": "maybe"}]})
    with pytest.raises(UnreadableError, match=r"^/system/device-mode scheduler: "):
        list(device_mode(found))


def test_a_bridge_whose_mtu_its_smallest_port_takes_is_changed(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge"][0]["mtu"] = "1584"
    assert plan(*rack(vlans=[1100, 1101]), reading(tables)).changes


@pytest.mark.parametrize(
    ("menu", "row", "reported"),
    [
        ("/interface/bridge", {"mlag-peer-port": "none"}, ()),
        ("/interface/bridge", {"mlag-peer-port": ""}, ()),
        (
            "/interface/bridge",
            {"mlag-peer-port": "ether1"},
            (
                (
                    "bridge x has the MLAG peer port ether1: two switches act as one, which rack.yaml cannot declare, "
                    "so a run here could cut the other off; configure both by hand"
                ),
            ),
        ),
        ("/interface/bonding", {"mlag-id": ""}, ()),
        (
            "/interface/bonding",
            {"mlag-id": "7"},
            (
                (
                    "bond x has mlag-id 7: it is shared with a second switch (MLAG), which rack.yaml cannot declare; "
                    "configure both by hand"
                ),
            ),
        ),
    ],
)
def test_a_switch_that_shares_its_links_with_a_second_one_is_not_written(
    menu: str, row: dict[str, str], reported: tuple[str, ...]
) -> None:
    tables = factory() | {menu: [{".id": "*1", "name": "x", **row}]}
    assert tuple(mlag(reading(tables))) == reported
