"""A plan that would saw off the branch its own run sits on."""

from __future__ import annotations

import pytest

from core.routeros.diff import FieldChange, RowChange
from core.routeros.errors import RefusedError
from core.routeros.menus import BRIDGE_PORT, ETHERNET, SERVICE, USER
from switch.lockout_risks import lockout_risks
from switch.plan import plan
from tests.unit.switch.racks import MakeRack
from tests.unit.switch.rows import Tables, carry_out, factory, reading, row

LIMITED = {"management": ["192.168.7.0/24"]}
HOST = {".id": "*1", "mac-address": "02:00:00:00:00:10", "on-interface": "ether1", "local": "false"}


def refused(rack: MakeRack, tables: Tables, **switch: object) -> tuple[str, ...]:
    """Why a plan is refused; () if it is not."""
    try:
        plan(*rack(**switch), reading(tables))
    except RefusedError as refusal:
        return refusal.reasons
    return ()


def test_services_are_not_limited_to_where_we_are_not(rack: MakeRack) -> None:
    (reason,) = refused(rack, factory(), **LIMITED)
    assert reason.startswith("sparkrack is logged in from 10.77.0.10, which is outside of management (192.168.7.0/24)")
    assert "add the subnet of this machine" in reason


def test_nothing_is_cut_once_the_services_are_so(rack: MakeRack) -> None:
    """They are limited already and we are here all the same: by another way than the address tells."""
    tables = factory()
    inside = {"management": ["10.77.0.0/24", "192.168.7.0/24"]}
    carry_out(tables, plan(*rack(**inside), reading(tables)).changes)
    assert refused(rack, tables, **inside) == ()


@pytest.mark.parametrize(
    "session",
    [
        {"name": "eve", "address": "10.9.9.9", "via": "api"},
        {"name": "sparkrack", "address": "10.9.9.9", "via": "winbox"},
        {"name": "sparkrack", "address": "02:00:00:00:00:10", "via": "api"},
        {"name": "sparkrack", "via": "api"},
    ],
)
def test_other_sessions_do_not_count(rack: MakeRack, session: dict[str, str]) -> None:
    tables = factory() | {"/user/active": [{".id": "*1", **session}]}
    assert refused(rack, tables, **LIMITED) == ()


def through(port: str) -> Tables:
    return factory() | {"/interface/bridge/host": [HOST | {"on-interface": port}]}


def test_a_machine_on_the_management_port_is_not_in_the_way(rack: MakeRack) -> None:
    assert refused(rack, through("ether1")) == ()


@pytest.mark.parametrize("port", ["qsfp56-dd-1-1", "qsfp56-dd-1-8"])
def test_the_cage_we_come_in_by_is_not_restarted(rack: MakeRack, port: str) -> None:
    (reason,) = refused(rack, through(port))
    assert reason == (
        f"this machine reaches the switch through its port {port}, which the plan takes down with cage qsfp56-dd-1; "
        "connect it to ether1 or ether2"
    )


def test_a_renamed_port_is_known_by_its_cage(rack: MakeRack) -> None:
    tables = through("rack-a")
    row(tables, "qsfp56-dd-1-2")["name"] = "rack-a"
    (reason,) = refused(rack, tables)
    assert "its port rack-a, which the plan takes down with cage qsfp56-dd-1" in reason


def test_a_cage_that_is_right_already_may_carry_us(rack: MakeRack) -> None:
    tables = factory()
    carry_out(tables, plan(*rack(), reading(tables)).changes)
    tables["/interface/bridge/host"] = [HOST | {"on-interface": "qsfp56-dd-1-1"}]
    tables["/system/identity"] = [{"name": "other"}]
    assert refused(rack, tables) == ()


def test_the_bridge_port_we_come_in_by_is_not_moved(rack: MakeRack) -> None:
    tables = factory()
    carry_out(tables, plan(*rack(), reading(tables)).changes)
    tables["/interface/bridge/host"] = [HOST | {"on-interface": "qsfp56-dd-1-1"}]
    row(tables, "qsfp56-dd-1-1", "/interface/bridge/port", "interface")["hw"] = "false"
    (reason,) = refused(rack, tables)
    assert "through its port qsfp56-dd-1-1, which the plan takes down;" in reason


def test_the_host_of_another_user_does_not_count(rack: MakeRack) -> None:
    tables = through("qsfp56-dd-1-1")
    tables["/interface/bridge/host"][0]["mac-address"] = "02:00:00:00:00:99"
    assert refused(rack, tables) == ()


def test_our_own_user_is_not_purged(rack: MakeRack) -> None:
    found = plan(*rack(purge=["users"]), reading(factory()))
    assert [change.row for change in found.changes if change.removes] == ["admin"]


def test_a_plan_about_our_own_user_is_refused(rack: MakeRack) -> None:
    gone = RowChange(USER, ("sparkrack",), "*2", (), removes=True)
    assert lockout_risks(rack()[1], reading(factory()), (gone,)) == (
        "the plan changes user sparkrack, whom this run is logged in as",
    )


def test_every_reason_is_reported_at_once(rack: MakeRack) -> None:
    assert len(refused(rack, through("qsfp56-dd-1-1"), **LIMITED)) == 2


@pytest.mark.parametrize(
    ("service", "address", "risk"),
    [
        ("api", "192.168.7.0/24,10.77.1.0/24", True),
        ("api", "192.168.7.0/24,10.77.0.0/24", False),
        ("api", "10.77.0.10/24", False),
        ("api", "", False),
        ("api-ssl", "192.168.7.0/24", False),  # not the service of this run
    ],
)
def test_our_service_is_not_limited_to_where_we_are_not(rack: MakeRack, service: str, address: str, risk: bool) -> None:
    change = RowChange(SERVICE, (service,), "*1", (FieldChange("address", "", address),))
    assert lockout_risks(rack()[1], reading(factory()), (change,)) == (
        (f"sparkrack is logged in from 10.77.0.10, and the plan limits api to {address}: that would shut this run out",)
        if risk
        else ()
    )


def test_who_comes_in_by_a_management_port_is_sent_to_another_one(rack: MakeRack) -> None:
    tables = factory()
    carry_out(tables, plan(*rack(), reading(tables)).changes)
    tables["/interface/bridge/host"] = [HOST | {"on-interface": "qsfp56-dd-1-1"}]
    found = rack()[1]
    lane = RowChange(ETHERNET, ("qsfp56-dd-1-2",), "*1", (FieldChange("mtu", "1500", "9000"),))
    assert lockout_risks(found, reading(tables), (lane,)) == (
        (
            "this machine reaches the switch through its port qsfp56-dd-1-1, which the plan takes down with cage "
            f"qsfp56-dd-1; connect it to {' or '.join(found.hardware.management_ports)}"
        ),
    )
    tables["/interface/bridge/host"] = [HOST | {"on-interface": "ether1"}]
    port = RowChange(BRIDGE_PORT, ("ether1",), "*1", (FieldChange("hw", "yes", "no"),))
    assert lockout_risks(found, reading(tables), (port,)) == (
        (
            "this machine reaches the switch through its port ether1, which the plan takes down; "
            "connect it to another port"
        ),
    )
