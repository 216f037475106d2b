"""What a backup does not put back, and what is reported of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.routeros.errors import CheckError, UnreadableError
from core.routeros.menus import OLDEST
from core.routeros.reading import SwitchReading
from switch.backup import RESTORING, dump, load, newest
from switch.restore_target import BackupTarget
from tests.unit.switch.racks import EVERY_KEY, MakeRack
from tests.unit.switch.restores import planned, refused, reported
from tests.unit.switch.rows import QOS, factory, reading, row


def test_another_unit_is_refused(rack: MakeRack) -> None:
    kept = factory()
    kept["/system/routerboard"][0]["serial-number"] = "HX2"
    assert refused(rack, factory(), kept) == (
        "the backup is of another unit: its serial number is HX2, the device's HX1"
    )
    del kept["/system/routerboard"][0]["serial-number"]
    assert refused(rack, factory(), kept) == "the backup does not name its unit"


def test_a_device_that_rack_yaml_does_not_mean_is_refused(rack: MakeRack) -> None:
    assert "the rack file means HX9" in refused(rack, factory(), serial="HX9")


def test_a_menu_that_the_switch_lost_is_reported(rack: MakeRack) -> None:
    now = factory()
    del now[f"{QOS}/port"]
    assert f"the switch has no {QOS}/port any more: not put back" in reported(rack, now)


def test_a_row_that_no_plan_can_add_is_reported(rack: MakeRack) -> None:
    now = factory()
    now[f"{QOS}/tx-manager/queue"].pop()
    assert f"not put back: {QOS}/tx-manager/queue default 7, which is gone" in reported(rack, now)


def test_secrets_of_rack_yaml_come_back_with_their_rows(rack: MakeRack) -> None:
    kept = factory()
    kept["/user"] += [
        {".id": "*8", "name": "sparkrack-reader", "group": "full"},
        {".id": "*9", "name": "alice", "group": "full"},
    ]
    kept["/snmp/community"] += [
        {".id": "*8", "name": "monitor", "security": "private"},
        {".id": "*9", "name": "theirs", "security": "private"},
        {".id": "*A", "name": "plain", "security": "none"},
    ]
    plan = planned(rack, factory(), kept, **{key: EVERY_KEY[key] for key in ("tls", "reader", "snmp")})
    ways = (
        "authentication-password (environment variable SNMP_A)",
        "encryption-password (environment variable SNMP_E)",
    )
    assert [str(change) for change in plan.changes] == [
        "+ /snmp/community monitor: security private, " + ", ".join(ways),
        "+ /snmp/community (hidden)",
        "+ /user sparkrack-reader: group full, password (environment variable READER_PASSWORD)",
    ]
    assert plan.notices[-2:] == (
        "not put back: SNMP community theirs, whose password no backup holds",
        "not put back: user alice, whose password no backup holds",
    )


def test_our_own_are_left(rack: MakeRack) -> None:
    now = factory()
    now["/user/group"].append({".id": "*9", "name": "ours", "policy": "read,write,api"})
    row(now, "sparkrack", "/user", "name")["group"] = "ours"
    row(now, "api", "/ip/service", "name")["port"] = "8888"
    plan = planned(rack, now)
    assert plan.changes == ()
    assert plan.notices == (
        "not put back, since this run needs it: /ip/service api: port 8888 -> 8728",
        "not put back, since this run needs it: - /user/group ours",
        "not put back, since this run needs it: ~ /user sparkrack: group ours -> full",
    )


def test_a_row_without_its_key_is_unreadable(rack: MakeRack) -> None:
    kept = factory()
    del kept["/user"][0]["name"]
    with pytest.raises(UnreadableError, match="/user has a row without name"):
        planned(rack, factory(), kept)


def test_the_release_of_the_backup_is_reported(rack: MakeRack) -> None:
    kept = reading(factory())
    older = SwitchReading((7, 23, 1, 0), kept.tables, kept.absent)
    plan = BackupTarget(*rack(), older).plan(reading(factory()))
    assert plan.notices[0] == "the switch runs RouterOS 7.23.8; the backup is of 7.23.1"


def test_a_backup_with_a_value_that_is_not_a_text_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    found = reading(factory())
    path.write_bytes(dump(found))
    assert load(path) == found
    path.write_bytes(dump(SwitchReading(OLDEST, {"/user": ({"name": 1},)})))  # type: ignore[dict-item]
    with pytest.raises(CheckError, match="is not a backup of a switch: a row has a value that is not a text"):
        load(path)


def test_the_newest_is_none_that_a_restore_kept(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    for name in ("run-1", "run-2", f"run-3{RESTORING}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.json").write_bytes(b"")
    assert newest(tmp_path) == "run-2"
