"""What is not put back: all of it is refused, or the one thing is reported."""

from __future__ import annotations

import json

from tests.emulator.restore_fixtures import NAME, MakeRestorer, Restorer


def test_a_backup_of_another_unit_is_refused(restorer: Restorer) -> None:
    path = restorer.backups / NAME / "rows.json"
    document = json.loads(path.read_text())
    document["tables"]["/system/routerboard"][0]["serial-number"] = "AB12"
    path.write_text(json.dumps(document))
    restorer.write("/system/identity", name="spoilt")
    written = restorer.emulator.writes()
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 1
    assert "the backup is of another unit: its serial number is AB12, the device's HK70AB12CD3" in ended.stderr
    assert restorer.emulator.writes() == written


def test_another_release_is_reported(restorer: Restorer) -> None:
    path = restorer.backups / NAME / "rows.json"
    document = json.loads(path.read_text())
    document["release"] = [7, 23, 5, 0]
    path.write_text(json.dumps(document))
    assert "the switch runs RouterOS 7.24.6; the backup is of 7.23.5" in restorer.restore(NAME, "--dry").text


def test_the_way_of_the_run_itself_is_not_cut(restorer: Restorer) -> None:
    restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-2-3", fec_mode="off")
    restorer.emulator.control({"op": "learn", "address": "127.0.0.1", "interface": "qsfp56-dd-2-1"})
    written = restorer.emulator.writes()
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 1
    assert "reaches the switch through its port qsfp56-dd-2-1" in ended.stderr
    assert restorer.emulator.writes() == written


def test_the_way_is_known_under_a_new_name_of_its_port_too(restorer: Restorer) -> None:
    restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-2-1", name="mine")
    restorer.emulator.control({"op": "learn", "address": "127.0.0.1", "interface": "qsfp56-dd-2-1"})
    assert "reaches the switch through its port qsfp56-dd-2-1" in restorer.restore(NAME, "-y").stderr


def test_a_service_limited_to_others_is_refused(make_restorer: MakeRestorer) -> None:
    restorer = make_restorer(management=["127.0.0.0/8"])
    restorer.keep()
    path = restorer.backups / NAME / "rows.json"
    document = json.loads(path.read_text())
    for row in document["tables"]["/ip/service"]:
        row["address"] = "10.77.0.0/24" if row["name"] == "api-ssl" else ""
    path.write_text(json.dumps(document))
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 1
    assert "limits api-ssl to 10.77.0.0/24: that would shut this run out" in ended.stderr


def test_our_own_user_group_and_door_are_reported_and_left(restorer: Restorer) -> None:
    restorer.add("/user/group", name="ours", policy="read,write,policy,test,password,sensitive,api,ftp,reboot")
    restorer.write("/user", "?name=sparkrack", group="ours", comment="hers")
    restorer.write("/ip/service", "?name=api-ssl", "?dynamic=false", port="8730")
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    for reported in (
        "- /user/group ours",
        "/user sparkrack: group ours -> full",
        "/ip/service api-ssl: port 8730 -> 8729",
    ):
        assert f"not put back, since this run needs it: {'~ ' * reported.startswith('/user ')}{reported}" in ended.text
    assert "nothing to do" in ended.text


def test_a_user_that_is_gone_is_reported(restorer: Restorer) -> None:
    restorer.add("/user", name="alice", group="read", password="hers-alone")
    restorer.keep("sparkrack-undo-2")
    restorer.remove("/user", "?name=alice")
    ended = restorer.restore("sparkrack-undo-2", "-y")
    assert ended.code == 0
    assert "not put back: user alice, whose password no backup holds" in ended.text


def test_a_renamed_bridge_is_left_to_its_owner(restorer: Restorer) -> None:
    restorer.write("/interface/bridge", "?name=bridge", name="br0")
    written = restorer.emulator.writes()
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 1
    assert "bridge bridge of the backup is now called br0" in ended.stderr
    assert restorer.emulator.writes() == written


def test_exchanged_names_are_left_to_their_owner(restorer: Restorer) -> None:
    ethernet = "/interface/ethernet"
    for name, new in (("sfp56-1", "x"), ("sfp56-2", "sfp56-1"), ("sfp56-1", "sfp56-2")):
        restorer.write(ethernet, f"?default-name={name}", name=new)
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 1
    assert "interface sfp56-2 was called sfp56-1, which is another interface's name now" in ended.stderr


def test_rows_that_are_there_twice_are_left(restorer: Restorer) -> None:
    for _ in range(2):
        restorer.add("/system/logging", topics="debug", action="memory")
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    assert "left alone: /system/logging debug memory is there twice" in ended.text
