"""The emulator started from the record of a switch in a bundle of `sparkrack accept` is that switch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.emulator.conftest import MakeSwitch
from tests.emulator.probe_fixtures import MakeRecorded, comparable, probe, probed, session
from tests.emulator.transactions import Operator


def test_the_emulator_started_from_a_fixture_gives_it_again(recorded: Path, start_recorded: MakeRecorded) -> None:
    document = json.loads(recorded.read_text())
    switch = start_recorded(recorded)
    again = probed(switch)
    menus = document["menus"]
    assert {path for path in menus if comparable(document)["menus"][path] != comparable(again)["menus"][path]} == set()
    assert comparable(again)["monitor"] == comparable(document)["monitor"]
    differs = {key for key in document if comparable(document)[key] != comparable(again)[key]}
    # Who was heard behind which port is not in a fixture, so the emulator hears nobody but us.
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
    assert document["questions"][6]["answer"] == "7.20.8 (long-term) does not have all of it"
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
        ('{"format": 1, "version": "7.23", "menus": {"/x": [{"a": 1}]}, "monitor": [], "refused": {}}', "no text"),
    ],
)
def test_what_is_no_fixture_is_refused(start_recorded: MakeRecorded, tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "fixture.json"
    path.write_text(text)
    with pytest.raises(RuntimeError, match=why):
        start_recorded(path)
