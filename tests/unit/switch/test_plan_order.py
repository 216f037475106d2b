"""Which order a plan is written in, and what is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.routeros.change_plan import ChangePlan
from core.routeros.diff import DesiredRow
from core.routeros.errors import RefusedError
from core.routeros.menus import IDENTITY, Menu, MenuField
from core.routeros.sentences import writes
from switch.desired import ChangeGroup, MenuDesired
from switch.plan import plan
from switch.target_state import DeclaredTarget
from switch.transaction import MOST_WRITES
from tests.unit.switch.racks import EVERY_KEY, UNCABLED, MakeRack
from tests.unit.switch.rows import Tables, asking, carry_out, factory, reading


def planned(rack: MakeRack, tables: Tables, **switch: object) -> ChangePlan:
    return plan(*rack(**switch), reading(tables))


def test_what_carries_traffic_first_and_what_could_lock_out_last(rack: MakeRack) -> None:
    titles = [batch.title for batch in planned(rack, factory(), **EVERY_KEY).batches]
    assert titles == [
        "l2mtu of 16 lanes",
        "cage qsfp56-dd-1, auto-negotiated -> 4x100G copper",
        "cage qsfp56-dd-2, auto-negotiated -> 4x100G optic",
        "VLANs of the fabric",
        "traffic classes",
        "priority flow control announced to the nodes",
        "traffic classes of the legs",
        "identity",
        "time zone",
        "time servers",
        "name servers",
        "neighbour discovery",
        "remote log",
        "SNMP",
        "users",
        "services",
        "servers without an address",
        "VLAN filtering",
    ]


def test_bridge_ports_come_after_their_vlans(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge/port"] = []
    titles = [batch.title for batch in planned(rack, tables, vlans=[1100, 1101]).batches]
    first = titles.index("VLANs of the fabric")
    assert titles[first + 1] == "ports of bridge bridge"
    assert titles[-1] == "VLAN filtering"


def test_every_key_once_written_leaves_nothing_to_do(rack: MakeRack) -> None:
    tables = factory()
    carry_out(tables, planned(rack, tables, **EVERY_KEY).changes)
    assert planned(rack, tables, **EVERY_KEY).batches == ()


def test_a_bridge_that_is_not_there_is_made_once(rack: MakeRack) -> None:
    tables = factory() | {"/interface/bridge": [], "/interface/bridge/port": []}
    found = planned(rack, tables, **EVERY_KEY)
    made = [change for change in found.changes if change.menu.path == "/interface/bridge"]
    assert [change.row for change in made if change.adds] == ["bridge"]
    carry_out(tables, found.changes)
    assert planned(rack, tables, **EVERY_KEY).batches == ()
    assert tables["/interface/bridge"][0]["vlan-filtering"] == "true"


@pytest.mark.parametrize("path", ["/system/script", "/system/scheduler"])
def test_a_rollback_timer_is_never_purged(rack: MakeRack, path: str) -> None:
    """The plan is made again in the middle of the run that armed it."""
    tables = factory()
    tables[path] += [{".id": "*1", "name": "sparkrack-undo-20260101T000000-0001"}, {".id": "*2", "name": "mine"}]
    changes = planned(rack, tables, purge=["scripts"]).changes
    assert [change.row for change in changes if change.removes] == ["mine"]


def test_rows_that_are_not_declared_are_left_and_reported(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge/vlan"] = [{".id": "*1", "bridge": "bridge", "vlan-ids": "20", "comment": "mine"}]
    found = planned(rack, tables, **{**EVERY_KEY, "purge": []})
    assert not [change for change in found.changes if change.removes]
    assert tuple(map(str, found.unmanaged)) == ("/interface/bridge/vlan bridge 20", "/user admin")
    assert "left alone, not managed: /user admin" in found.notes


def test_purged_rows_are_removed_and_reported_row_by_row(rack: MakeRack) -> None:
    tables = factory()
    tables["/interface/bridge/vlan"] = [{".id": "*1", "bridge": "bridge", "vlan-ids": "20"}]
    tables["/interface/bridge/port"].append({".id": "*F0", "interface": "vxlan1", "bridge": "bridge", "hw": "false"})
    found = planned(rack, tables, **EVERY_KEY)
    removed = {(change.menu.path, change.row) for change in found.changes if change.removes}
    assert removed == {
        ("/interface/bridge/vlan", "bridge 20"),
        ("/interface/bridge/port", "vxlan1"),
        ("/user", "admin"),
    }
    assert "  - /user admin" in found.lines
    assert tuple(map(str, found.unmanaged)) == ()


def test_no_secret_is_shown(rack: MakeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SNMP_A", "SNMP_E", "READER_PASSWORD", "CRS812_PASSWORD"):
        monkeypatch.setenv(name, f"swordfish-{name}")
    found = planned(rack, factory(), **EVERY_KEY)
    shown = "\n".join((*found.lines, *found.notes, repr(found), repr(writes(found.changes))))
    assert "swordfish" not in shown
    assert "environment variable READER_PASSWORD" in shown


def test_large_plans_are_dealt_into_portions_without_cutting_a_batch(rack: MakeRack) -> None:
    found = planned(rack, factory(), **EVERY_KEY)
    assert len(found.portions(MOST_WRITES)) == 1
    portions = found.portions(most=20)
    assert sum(portions, ()) == found.batches
    assert all(sum(len(batch.changes) for batch in portion) <= 20 for portion in portions)
    assert sum(found.portions(most=1), ()) == found.batches
    assert ChangePlan(()).portions(MOST_WRITES) == ()


def test_a_field_the_release_does_not_have_is_refused(rack: MakeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    new = MenuField(default="", since=(7, 25, 0, 0))
    later = Menu(IDENTITY.path, key=(), fields={**IDENTITY.fields, "note": new})
    part = ChangeGroup("identity", (MenuDesired(later, (DesiredRow((), {"note": "x"}),)),))
    monkeypatch.setattr("switch.plan.parts", lambda *_: (part,))
    with pytest.raises(RefusedError) as refused:
        planned(rack, factory(), nodes=UNCABLED, cages={})
    assert refused.value.reasons == ("note of /system/identity came with RouterOS 7.25; the device runs 7.23",)
    tables = factory()
    tables["/system/resource"][0]["version"] = "7.25 (stable)"
    rename_services(tables)
    assert planned(rack, tables, nodes=UNCABLED, cages={}).batches


def rename_services(tables: Tables) -> None:
    """As 7.24 has it."""
    for row in tables["/ip/service"]:
        if "address" in row:
            row["available-from"] = row.pop("address")


def test_a_later_release_is_read_and_written_in_its_own_words(rack: MakeRack) -> None:
    tables = factory()
    tables["/system/resource"][0]["version"] = "7.24 (stable)"
    rename_services(tables)
    goal = DeclaredTarget(*rack(**EVERY_KEY))
    before = goal.read(asking(tables))
    changes = goal.plan(before).changes
    sent = {word for write in writes(changes, before.release) for word in write.sentence}
    assert "=available-from=10.77.0.0/24" in sent
    carry_out(tables, changes, before.release)
    assert not any("address" in row for row in tables["/ip/service"])
    assert goal.plan(goal.read(asking(tables))).batches == ()
    assert replace(before, release=(7, 23, 0, 0)).rows(IDENTITY) == before.rows(IDENTITY)
