"""A kept backup is put back through the same transaction as a deploy, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from switch.transaction import Say
from tests.emulator.conftest import MakeSwitch
from tests.emulator.restoring import READER, SECRETS, Restorer
from tests.emulator.switch_runs import waits_for

MakeRestorer = Callable[..., Restorer]
NAME = "sparkrack-undo-1"


@pytest.fixture
def make_restorer(tmp_path: Path, make_switch: MakeSwitch) -> MakeRestorer:
    def make(settle: float = 0.05, **switch: object) -> Restorer:
        folder = tmp_path / "desk"
        folder.mkdir()
        return Restorer(folder, make_switch(settle=settle), **switch)

    return make


def _sets(restorer: Restorer) -> list[str]:
    """What was written to interfaces since the start."""
    lines = [line for line in restorer.emulator.log() if line.get("command") == "/interface/ethernet/set"]
    return [" ".join(line["words"]) for line in lines]


@pytest.fixture
def restorer(make_restorer: MakeRestorer) -> Restorer:
    """The switch is as declared, and a backup was kept of that."""
    made = make_restorer()
    made.deploy()
    made.keep()
    return made


def test_what_was_spoilt_by_hand_comes_back_and_a_second_time_nothing_is_written(restorer: Restorer) -> None:
    before = restorer.reading()
    restorer.spoil()
    assert len(restorer.differs(restorer.reading(), before)) >= 15
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    assert restorer.differs(restorer.reading(), before) == []
    assert "crs812: the switch is as in the backup" in ended.text
    assert "cage qsfp56-dd-1, 2x200G copper -> 4x100G copper: restarts cage qsfp56-dd-1 (spark1, spark2" in ended.text
    assert "restarts cage qsfp56-dd-2 (spark5, spark6, spark7, spark8)" in ended.text
    assert "bounces all 34 ports" in ended.text
    assert restorer.emulator.state()["safe_mode"]["holder"] is None
    tables = restorer.emulator.state()["tables"]
    assert not tables["/system/scheduler"]
    assert not tables["/system/script"]
    written = restorer.emulator.writes()
    again = restorer.restore(NAME, "-y")
    assert again.code == 0, again.text
    assert "nothing to do" in again.text
    assert restorer.emulator.writes() == written


def test_all_ports_bounce_once(restorer: Restorer) -> None:
    restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-1-1", l2mtu="9216")
    restorer.write("/interface/ethernet", "?default-name=sfp56-4", l2mtu="9400", mtu="1400")
    sets = len(_sets(restorer))
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    sent = _sets(restorer)[sets:]
    assert ["l2mtu" in words for words in sent] == [True, True]


def test_the_reader_has_its_password_again(restorer: Restorer) -> None:
    restorer.remove("/user", "?name=sparkrack-reader")
    assert restorer.restore(NAME, "-y").code == 0
    (row,) = [row for row in restorer.emulator.state()["tables"]["/user"] if row["name"] == "sparkrack-reader"]
    assert row["group"] == "sparkrack-reader"
    sent = [line["words"] for line in restorer.emulator.log() if line.get("command") == "/user/add"]
    assert any(word.startswith("=password=") for word in sent[-1])


def test_no_secret_is_shown_or_kept(restorer: Restorer) -> None:
    restorer.spoil()
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    kept = [path for path in restorer.backups.rglob("*") if path.is_file()]
    assert len(kept) >= 6
    for secret in (restorer.emulator.password, READER, *SECRETS.values(), "let-me-in-again"):
        assert secret not in ended.text
        assert [path for path in kept if secret.encode() in path.read_bytes()] == []
    assert "password (environment variable TEST_READER_PASSWORD)" in ended.text


def test_a_dry_run_writes_nothing_and_says_that_there_is_something(restorer: Restorer) -> None:
    restorer.spoil()
    written = restorer.emulator.writes()
    ended = restorer.restore(NAME, "--dry")
    assert ended.code == 2, ended.text
    assert "~ /system/identity: name somebody-else -> crs812" in ended.text
    assert "- /user mallory" in ended.text
    assert restorer.emulator.writes() == written
    assert len(list(restorer.backups.iterdir())) == 1


def test_a_factory_switch_is_a_factory_switch_again(make_restorer: MakeRestorer) -> None:
    restorer = make_restorer()
    restorer.keep()
    before = restorer.reading()
    restorer.deploy()
    ended = restorer.restore("--last", "-y")
    assert ended.code == 0, ended.text
    assert restorer.differs(restorer.reading(), before) == []
    assert "speed" not in next(
        row for row in restorer.emulator.state()["tables"]["/interface/ethernet"] if row["name"] == "qsfp56-dd-1-1"
    )
    assert "in rack.yaml: its links are not waited for" in ended.text


def test_the_last_is_the_last_of_a_deploy_also_after_a_restore(restorer: Restorer) -> None:
    restorer.write("/system/identity", name="spoilt")
    assert restorer.restore("--last", "-y").code == 0
    kept = sorted(path.name for path in restorer.backups.iterdir())
    assert len(kept) == 2
    assert kept[1].endswith("-restore")
    again = restorer.restore("--last", "-y")
    assert "nothing to do" in again.text
    # What was there before the restore can be had back, too.
    assert restorer.restore(kept[1], "-y").code == 0
    assert restorer.emulator.state()["tables"]["/system/identity"][0]["name"] == "spoilt"


def test_the_list_names_each_with_its_unit(restorer: Restorer) -> None:
    ended = restorer.restore("--list")
    assert ended.code == 0
    assert ended.stdout.split() == [NAME, "RouterOS", "7.23.7", "CRS812-8DS-2DQ-2DDQ", "HK70AB12CD3"]


def test_without_a_terminal_nothing_is_written_unasked(restorer: Restorer) -> None:
    restorer.write("/system/identity", name="spoilt")
    ended = restorer.restore(NAME)
    assert ended.code == 1
    assert "no terminal to ask on" in ended.stderr
    assert restorer.emulator.state()["tables"]["/system/identity"][0]["name"] == "spoilt"


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


def test_another_release_is_told(restorer: Restorer) -> None:
    path = restorer.backups / NAME / "rows.json"
    document = json.loads(path.read_text())
    document["release"] = [7, 23, 5, 0]
    path.write_text(json.dumps(document))
    assert "the switch runs RouterOS 7.23.7; the backup is of 7.23.5" in restorer.restore(NAME, "--dry").text


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


def test_our_own_user_group_and_door_are_told_and_left(restorer: Restorer) -> None:
    restorer.add("/user/group", name="ours", policy="read,write,policy,test,password,sensitive,api,ftp,reboot")
    restorer.write("/user", "?name=sparkrack", group="ours", comment="hers")
    restorer.write("/ip/service", "?name=api-ssl", "?dynamic=false", port="8730")
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    for told in ("- /user/group ours", "/user sparkrack: group ours -> full", "/ip/service api-ssl: port 8730 -> 8729"):
        assert f"not put back, since this run needs it: {'~ ' * told.startswith('/user ')}{told}" in ended.text
    assert "nothing to do" in ended.text


def test_a_user_that_is_gone_is_told(restorer: Restorer) -> None:
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


def test_a_leg_that_does_not_come_up_undoes_it_unless_told_not_to_wait(restorer: Restorer) -> None:
    restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-2-3", fec_mode="off")
    before = restorer.reading()
    restorer.emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-2", "lane": 5})
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 1
    assert "leg crs812/qsfp56-dd-2-5 (lanes 5-6, to spark7/1) is no-link" in ended.stderr
    assert "looked again: the switch is as it was before the run" in ended.stderr
    assert restorer.differs(restorer.reading(), before) == []
    assert restorer.restore(NAME, "-y", "--no-wait").code == 0


def test_killed_in_the_middle(make_restorer: MakeRestorer) -> None:
    restorer = make_restorer()
    restorer.deploy()
    restorer.keep()
    restorer.spoil()
    before = restorer.reading()
    restorer.emulator.control({"op": "settle", "seconds": 20})
    sets = len(_sets(restorer))
    process = subprocess.Popen(
        [Path(sys.executable).with_name("sparkrack"), "switch", "restore", NAME, "-y", "--no-nodes"],
        cwd=restorer.folder,
        env=os.environ | {"RACK": "rack.yaml", "XDG_STATE_HOME": str(restorer.folder / "state")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    waits_for(
        lambda: (
            len([line for line in restorer.emulator.log() if line.get("command") == "/interface/ethernet/set"]) > sets
        ),
        process,
    )
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    waits_for(lambda: restorer.emulator.state()["safe_mode"]["holder"] is None)
    assert restorer.differs(restorer.reading(), before) == []


def test_a_connection_that_drops_at_any_write_leaves_the_old_state(make_restorer: MakeRestorer) -> None:
    restorer = make_restorer(settle=0.0)
    restorer.deploy()
    restorer.keep()
    new = restorer.reading()
    restorer.spoil()
    old = restorer.reading()
    restorer.operator.patience = 0.5
    number = 0
    while True:
        steps = count()

        def break_it(step: object, steps: Iterator[int] = steps, number: int = number) -> None:
            if isinstance(step, Say) and not step.sentence[0].startswith("/safe-mode") and next(steps) == number:
                fault = {"kind": "drop", "match": step.sentence[0], "executed": number % 2 == 1}
                restorer.emulator.control({"op": "fault", **fault})

        ended, _ = restorer.operator.run(restorer.goal(), break_it, fuse=20)
        if ended.done:
            break
        assert "the switch is as it was before the run" in ended.text, number
        assert restorer.differs(restorer.reading(), old) == [], number
        number += 1
    assert number >= 30
    assert restorer.differs(restorer.reading(), new) == []
