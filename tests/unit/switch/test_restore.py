"""A backup as a goal: what is planned, in which order, and what is refused or reported instead."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.routeros.change_plan import ChangePlan
from core.routeros.menus import BRIDGE, ETHERNET, PROFILE
from core.routeros.sentences import writes
from switch.backup import KEPT
from switch.restore_order import STAGES
from switch.restore_target import BackupTarget
from tests.unit.switch.racks import MakeRack
from tests.unit.switch.restores import planned, reported, set_up
from tests.unit.switch.rows import QOS, Tables, carry_out, factory, meaning, reading, row

PORTS = "/interface/bridge/port"


def test_every_menu_of_a_backup_has_its_place() -> None:
    staged = [menu for stage in STAGES for menu in stage.menus]
    assert len(staged) == len(set(staged))
    assert {*staged, ETHERNET} == set(KEPT)


def test_nothing_differs(rack: MakeRack) -> None:
    assert planned(rack, set_up(), set_up()) == ChangePlan(())


EDITS = {
    "/interface/ethernet": [("fec-mode", "off"), ("speed", "50G-baseCR"), ("l2mtu", "9000"), ("disabled", "true")],
    "/interface/bridge": [("vlan-filtering", "true")],
    PORTS: [("hw", "false"), ("disabled", "true")],
    "/interface/bridge/vlan": [("tagged", "ether1"), ("comment", "x")],
    f"{QOS}/port": [("pfc", "mine"), ("trust-l3", "keep"), ("egress-rate-queue3", "200G")],
    f"{QOS}/profile": [("traffic-class", "5")],  # a DSCP that was not there cannot be unset, and is reported
    "/system/identity": [("name", "someone")],
    "/ip/dns": [("servers", "9.9.9.9")],
    "/system/logging": [("disabled", "true")],
    "/snmp/community": [("addresses", "10.0.0.0/8"), ("write-access", "true")],
    "/user/group": [("policy", "read,write")],
    "/ip/service": [("address", "10.0.0.0/8"), ("port", "99")],
    "/tool/mac-server": [("allowed-interface-list", "none")],
}
REMOVABLE = (PORTS, "/interface/bridge/vlan", f"{QOS}/profile", "/system/logging", "/snmp/community")


@st.composite
def spoilt(draw: st.DrawFn) -> Tables:
    """The switch of `set_up` after rows were changed and removed, but for those that the restore needs."""
    tables = set_up()
    for path in draw(st.lists(st.sampled_from(sorted(EDITS)), max_size=12)):
        rows = [
            entry
            for entry in tables[path]
            if entry.get("name") not in ("api", "full") and entry.get("dynamic") != "true"
        ]
        if rows:
            name, value = draw(st.sampled_from(EDITS[path]))
            draw(st.sampled_from(rows))[name] = value
    for path in draw(st.lists(st.sampled_from(REMOVABLE), max_size=6)):
        if tables[path]:
            tables[path].remove(draw(st.sampled_from(tables[path])))
    if draw(st.booleans()):
        tables["/user"].append({".id": "*66", "name": "mallory", "group": "full"})
        tables["/interface/bridge"].append({".id": "*67", "name": "second"})
        tables["/interface/bridge/vlan"].append({".id": "*68", "bridge": "second", "vlan-ids": "9", "tagged": ""})
    return tables


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(now=spoilt())
def test_what_was_spoilt_comes_back_and_then_nothing_differs(rack: MakeRack, now: Tables) -> None:
    goal = BackupTarget(*rack(), reading(set_up()))
    carry_out(now, goal.plan(reading(now)).changes)
    for port in now[PORTS]:
        port |= {"hw-offload": "true"}  # what the chip makes of a port again by itself
    found, wanted = meaning(now), meaning(set_up())
    assert [(found[path], wanted[path]) for path in found if found[path] != wanted[path]] == []
    assert [str(change) for change in goal.plan(reading(now)).changes] == []


def test_the_order(rack: MakeRack) -> None:
    now = set_up()
    row(now, "qsfp56-dd-1-3")["fec-mode"] = "off"
    row(now, "qsfp56-dd-2-1")["l2mtu"] = "9000"
    row(now, "ether2")["mtu"] = "1400"
    now["/system/identity"][0]["name"] = "x"
    now["/ip/service"][0]["disabled"] = "true"
    now["/interface/bridge"][0]["vlan-filtering"] = "true"
    assert [batch.title.split(",")[0] for batch in planned(rack, now).batches] == [
        "VLAN filtering off",
        "l2mtu of 1 lane",
        "cage qsfp56-dd-1",
        "port ether2",
        "bridge",
        "traffic classes",
        "identity",
        "log",
        "SNMP",
        "users",
        "services",
    ]
    back = set_up()
    back["/interface/bridge"][0]["vlan-filtering"] = "true"
    assert planned(rack, factory(), back).batches[-1].title == "VLAN filtering on"


def test_a_plan_names_the_services_that_it_opens_and_closes(rack: MakeRack) -> None:
    now = set_up()
    first, second = now["/ip/service"][:2]
    first["disabled"], second["disabled"] = "true", "false"
    kept = copy.deepcopy(now)
    kept["/ip/service"][0]["disabled"], kept["/ip/service"][1]["disabled"] = "false", "true"
    (batch,) = planned(rack, now, kept).batches
    assert batch.effect == f"opens {first['name']}, closes {second['name']}"
    kept = copy.deepcopy(now)
    kept["/ip/service"][0]["address"] = "10.0.0.0/8"
    (batch,) = planned(rack, now, kept).batches
    assert batch.effect == "changes who may connect"


def test_what_is_referred_to_comes_before_and_goes_after(rack: MakeRack) -> None:
    come = [str(change).split(":")[0] for change in planned(rack, factory(), set_up()).changes]
    gone = [str(change).split(":")[0] for change in planned(rack, set_up(), factory()).changes]
    for list_, sign, later in ((come, "+", 1), (gone, "-", -1)):
        first = list_.index(f"{sign} /system/logging/action mine")
        second = list_.index(f"{sign} /system/logging info mine")
        assert (second - first) * later > 0, list_


def test_a_bridge_that_is_gone_takes_its_filtering_along(rack: MakeRack) -> None:
    kept = factory()
    kept["/interface/bridge"].append({".id": "*77", "name": "other", "vlan-filtering": "true", "disabled": "false"})
    changes = [change for change in planned(rack, factory(), kept).changes if change.menu is BRIDGE]
    assert [change.values for change in changes] == [(("name", "other"), ("vlan-filtering", "yes"))]


def test_the_speed_of_a_lane_that_negotiates_again_is_left(rack: MakeRack) -> None:
    """It means nothing there, and no command takes it off the lane."""
    now = factory()
    row(now, "sfp56-2").update({"auto-negotiation": "false", "speed": "10G-baseCR"})
    (batch,) = planned(rack, now).batches
    assert batch.title == "cage sfp56-2, 1x10G copper -> auto-negotiated"
    number = row(now, "sfp56-2")[".id"]
    assert [write.sentence for write in writes(batch.changes)] == [
        ("/interface/ethernet/set", f"=.id={number}", "=auto-negotiation=yes"),
    ]
    row(now, "sfp56-2")["auto-negotiation"] = "true"
    assert reading(now).same(reading(factory()), (ETHERNET,))
    assert planned(rack, now).empty


def test_what_has_no_value_to_go_back_to_is_reported(rack: MakeRack) -> None:
    now, kept = set_up(), set_up()
    del row(kept, "mine", PROFILE.path, "name")["dscp"]
    assert planned(rack, now, kept).changes == ()
    assert f"not put back: dscp of {PROFILE.path} mine, which had no value" in reported(rack, now, kept)


def test_a_number_that_is_printed_empty_counts_as_not_printed(rack: MakeRack) -> None:
    now, kept = set_up(), set_up()
    row(now, "qsfp56-dd-1-1")["l2mtu"] = "9000"
    row(kept, "qsfp56-dd-1-1")["l2mtu"] = ""
    missing = set_up()
    del row(missing, "qsfp56-dd-1-1")["l2mtu"]
    assert planned(rack, now, kept) == planned(rack, now, missing)
    assert reported(rack, now, kept) == reported(rack, now, missing)


def test_links_are_waited_for_where_the_backup_has_them(rack: MakeRack) -> None:
    now = factory()
    row(now, "qsfp56-dd-1-1").update({"auto-negotiation": "false", "speed": "50G-baseCR"})
    assert [link for batch in planned(rack, now).batches for link in batch.settles] == []
    assert "cage qsfp56-dd-1 is auto-negotiated in the backup and 4x100G copper in rack.yaml" in reported(rack, now)
    kept = factory()
    for lane in (1, 3, 5, 7):
        row(kept, f"qsfp56-dd-1-{lane}").update({"auto-negotiation": "false", "speed": "100G-baseCR2"})
    (batch,) = planned(rack, factory(), kept).batches
    assert [str(link.leg) for link in batch.settles] == [f"crs812/qsfp56-dd-1-{lane}" for lane in (1, 3, 5, 7)]
    (batch,) = BackupTarget(*rack(), reading(kept), wait=False).plan(reading(factory())).batches
    assert batch.settles == ()


def test_a_renamed_interface_takes_what_refers_to_it_along(rack: MakeRack) -> None:
    kept, now = set_up(), set_up()
    for path, key in ((ETHERNET.path, "name"), (PORTS, "interface"), (f"{QOS}/port", "name")):
        row(now, "ether2", path, key)[key] = "uplink"
    now["/interface/bridge/vlan"][0]["tagged"] = "uplink"
    changes = planned(rack, now, kept).changes
    assert [str(change) for change in changes] == ["~ /interface/ethernet ether2: name uplink -> ether2"]


def test_a_link_is_looked_up_under_the_name_that_it_gets(rack: MakeRack) -> None:
    kept, now = factory(), factory()
    for tables in (kept, now):
        for lane in (1, 3, 5, 7):
            row(tables, f"qsfp56-dd-1-{lane}").update({"auto-negotiation": "false", "speed": "100G-baseCR2"})
    for path, key in ((ETHERNET.path, "name"), (PORTS, "interface"), (f"{QOS}/port", "name")):
        row(now, "qsfp56-dd-1-3", path, key)[key] = "spark2"
    (batch,) = planned(rack, now, kept).batches
    assert [link.name for link in batch.settles] == [f"qsfp56-dd-1-{lane}" for lane in (1, 3, 5, 7)]


def test_planning_changes_nothing_that_was_read(rack: MakeRack) -> None:
    now = set_up()
    before = copy.deepcopy(now)
    planned(rack, now)
    assert now == before
