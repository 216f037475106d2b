"""The record of a switch in a bundle of `sparkrack accept`: only reading sentences, and nothing private of its owner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from switch.probe import _ask
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import USER
from tests.emulator.probe_fixtures import PLANTED, Owner, probe
from tests.emulator.transactions import Operator


def test_nothing_but_reading_can_be_sent() -> None:
    with pytest.raises(ValueError, match="no sentence that reads"):
        _ask(None, "/user/add", "=name=x")  # type: ignore[arg-type]


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


def test_the_open_questions_are_answered(recorded: Path) -> None:
    document = json.loads(recorded.read_text())
    answers = {entry["question"][0]: entry for entry in document["questions"]}
    assert list(answers) == list("123456789")
    assert answers["2"]["answer"] == "status no-link; rate (not printed); running false"
    assert len(answers["2"]["evidence"]) == 8
    assert answers["3"]["evidence"][0] == {"egress-rate-queueN": ["100000000000"]}
    assert answers["3"]["evidence"][1] == {"max-l2mtu": ["9570", "9586"]}
    assert answers["4"]["answer"].startswith("the switch shows fec91")
    assert answers["5"]["evidence"][0]["qsfp56-dd-1-1"] == "*4"
    assert answers["7"]["answer"] == "7.23.7 (long-term) has all that we use of it"
    assert answers["8"]["answer"] == "needs a write, not asked"
    assert document["lacking"] == []
    assert document["hosts"] == {"all": 38, "own": 34}


def test_an_illegal_pair_is_evidence(make_switch: MakeSwitch, tmp_path: Path) -> None:
    emulator = make_switch()
    operator = Operator(tmp_path, emulator)
    with operator.open() as session:
        (row,) = session.talk("/interface/ethernet/print", "=.proplist=.id", "?name=qsfp56-dd-2-2")
        session.talk("/interface/ethernet/set", f"=.id={row['.id']}", "=auto-negotiation=no", "=speed=200G-baseCR4")
        document = probe(session)
    first = document["questions"][0]
    assert first["answer"].startswith("such a pair is set")
    assert [lane["default-name"] for lane in first["evidence"]] == ["qsfp56-dd-2-2"]
