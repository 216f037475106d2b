"""The record of a switch in a bundle: nothing private is in it, and the emulator can be that switch."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from switch.accept_record import _ask_reading, _list_console_children
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER
from tests.emulator.probe_fixtures import PLANTED, MakeRecorded, Owner, comparable, probe, probed, session
from tests.emulator.transactions import Operator


def test_the_emulator_started_from_a_fixture_gives_it_again(recorded: Path, start_recorded: MakeRecorded) -> None:
    document = json.loads(recorded.read_text())
    switch = start_recorded(recorded)
    again = probed(switch)
    menus = document["menus"]
    assert {path for path in menus if comparable(document)["menus"][path] != comparable(again)["menus"][path]} == set()
    assert comparable(again)["monitor"] == comparable(document)["monitor"]
    differs = {key for key in document if comparable(document)[key] != comparable(again)[key]}
    # A fixture has no neighbours of ports, so the emulator has this client alone.
    assert differs <= {"hosts"}


def test_fields_and_ids_of_a_real_unit_stay(recorded: Path, start_recorded: MakeRecorded, tmp_path: Path) -> None:
    document = json.loads(recorded.read_text())
    document["version"] = "7.23.9 (stable)"
    document["menus"]["/system/resource"][0] |= {"version": "7.23.9 (stable)", "cpu-model": "4"}
    for row in document["menus"]["/interface/ethernet"]:
        row[".id"] = f"*{int(row['.id'][1:], 16) + 0x100:X}"
        row["sfp-new-field"] = "17"
    bridge = next(row for row in document["menus"]["/interface/bridge"] if row["name"] == "bridge")
    bridge[".id"] = "*1F0"
    for row in document["monitor"]:
        row["sfp-temperature"] = "41C"
    path = tmp_path / "real.json"
    path.write_text(json.dumps(document))
    again = probed(start_recorded(path))
    assert again["version"] == "7.23.9 (stable)"
    assert again["menus"]["/system/resource"][0]["cpu-model"] == "4"
    ids = {row["default-name"]: row[".id"] for row in again["menus"]["/interface/ethernet"]}
    assert ids["qsfp56-dd-1-1"] == "*104"
    assert {row["sfp-new-field"] for row in again["menus"]["/interface/ethernet"]} == {"17"}
    assert {row["sfp-temperature"] for row in again["monitor"]} == {"41C"}
    assert {row["name"]: row[".id"] for row in again["menus"]["/interface/bridge"]}["bridge"] == "*1F0"


def test_a_recorded_unit_can_be_worked_with(recorded: Path, start_recorded: MakeRecorded) -> None:
    switch = start_recorded(recorded)
    with session(switch) as opened:
        assert switch.links()["qsfp56-dd-1-3"] == "link-ok"
        (row,) = opened.talk("/interface/ethernet/print", "=.proplist=.id", "?name=qsfp56-dd-1-3")
        opened.talk("/interface/ethernet/set", f"=.id={row['.id']}", "=fec-mode=off")
        (added,) = opened.talk("/interface/bridge/add", "=name=another")
        taken = {row[".id"] for row in opened.talk("/interface/print", "=.proplist=.id")}
        assert added["ret"] in taken
    assert switch.links()["qsfp56-dd-1-3"] != "link-ok"


def test_a_release_without_a_menu_is_recorded_and_played_so(
    make_switch: MakeSwitch, start_recorded: MakeRecorded, tmp_path: Path
) -> None:
    old = make_switch(version="7.20.8 (long-term)")
    with Operator(tmp_path, old).open() as opened:
        document = probe(opened)
    pfc = "/interface/ethernet/switch/qos/priority-flow-control"
    assert set(document["refused"]) == {pfc}
    assert f"{pfc}/add" in document["lacking"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(document))
    again = probed(start_recorded(path))
    assert again["refused"] == document["refused"]
    assert again["lacking"] == document["lacking"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not a fixture"),
        ('{"format": 2}', "another format"),
        ('{"format": 1, "version": "7.23", "menus": {}, "monitor": [], "refused": {}}', "not of a CRS812"),
        ('{"format": 1, "version": "7.23", "menus": {"/x": [{"a": 1}]}, "monitor": [], "refused": {}}', "not a text"),
    ],
)
def test_what_is_not_a_fixture_is_refused(start_recorded: MakeRecorded, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "fixture.json"
    path.write_text(text)
    with pytest.raises(RuntimeError, match=why):
        start_recorded(path)


def test_the_children_of_a_command_are_the_rows_that_are_children_and_have_a_name() -> None:
    rows = [{"type": "child", "name": "add"}, {"type": "self", "name": "interface"}, {"type": "child"}]
    client: Any = SimpleNamespace(talk=lambda *_sentence: rows)
    assert list(_list_console_children(client, "/interface")) == ["add"]


def test_nothing_but_reading_can_be_sent() -> None:
    with pytest.raises(ValueError, match="not a sentence that reads"):
        _ask_reading(None, "/user/add", "=name=x")  # type: ignore[arg-type]


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_the_owners_is_not_shown(recorded: Path, owner: Owner, planted: str) -> None:
    everything = json.dumps(owner.emulator.state()["tables"]) + json.dumps(PLANTED)
    assert planted.lower() in everything.lower()
    assert planted.lower() not in recorded.read_text().lower()


def test_nor_the_password_or_user_of_the_probe(recorded: Path, owner: Owner) -> None:
    text = recorded.read_text()
    assert owner.emulator.password not in text
    assert all(row["name"] != USER for row in json.loads(text)["menus"]["/user"])


def test_no_mac_of_the_unit_is_shown(recorded: Path, owner: Owner) -> None:
    text = recorded.read_text()
    macs = [row["mac-address"] for row in owner.emulator.state()["tables"]["/interface/ethernet"]]
    assert len(macs) == 34
    assert [mac for mac in macs if mac in text or mac[9:] in text] == []


def test_macs_keep_their_vendor_and_their_order(recorded: Path) -> None:
    rows = json.loads(recorded.read_text())["menus"]["/interface/ethernet"]
    macs = sorted(int(row["mac-address"].replace(":", ""), 16) for row in rows)
    assert macs == list(range(0xD401C3000000, 0xD401C3000000 + 34))


def test_what_refers_to_what_is_still_seen(recorded: Path) -> None:
    menus = json.loads(recorded.read_text())["menus"]
    named = next(row["name"] for row in menus["/interface/ethernet"] if row["default-name"] == "sfp56-7")
    assert named.startswith("interface-")
    assert [row["tagged"] for row in menus["/interface/bridge/vlan"] if row["vlan-ids"] == "7"] == [named]
    group = next(row["group"] for row in menus["/user"] if row["group"].startswith("group-"))
    assert group in [row["name"] for row in menus["/user/group"]]


def test_a_record_has_what_a_release_lacks_and_counts_the_learned_addresses(recorded: Path) -> None:
    document = json.loads(recorded.read_text())
    assert document["lacking"] == []
    assert document["hosts"] == {"all": 38, "own": 34}
