"""A table of addresses that one device has filled: no command reads it whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.routeros.limits import MOST_BYTES
from core.routeros.menus import BRIDGE_HOST
from switch.accept_record import read_probe
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.transactions import Operator

ROWS = 130_000


@pytest.fixture
def full(make_switch: MakeSwitch) -> Crs812Process:
    emulator = make_switch(settle=0.0)
    emulator.control({"op": "hosts", "interface": "sfp56-1", "count": ROWS})
    return emulator


def asked(emulator: Crs812Process) -> list[list[str]]:
    """The sentences about the table."""
    return [line["words"] for line in emulator.log() if (line.get("command") or "").startswith(BRIDGE_HOST.path)]


def test_a_run_and_the_reading_after_it_ask_for_single_addresses(full: Crs812Process, tmp_path: Path) -> None:
    me = Operator(tmp_path, full, {"mtu": 9000, "l2mtu": 9216})
    goal = me.goal()
    ended, transaction = me.run(goal)
    assert ended.done, ended.text
    sentences = asked(full)
    assert sentences
    assert [words for words in sentences if not any(word.startswith("?mac-address=") for word in words)] == []
    (rows,) = {len(transaction.before.rows(BRIDGE_HOST)), len(me.reading(goal).rows(BRIDGE_HOST))}
    assert rows == 1, "of this machine"


def test_the_whole_table_is_longer_than_an_answer_may_be(full: Crs812Process, tmp_path: Path) -> None:
    """What the commands do not ask for: without this, the other tests prove nothing."""
    row = {".id": "*1FBD0", "mac-address": "06:00:00:01:FB:D0", "on-interface": "sfp56-1", "local": "false"}
    words = "".join(f"={name}={value}" for name, value in row.items())
    assert ROWS * (len("!re") + len(words) + len(row) + 2) > MOST_BYTES
    with Operator(tmp_path, full).open() as session:
        (answer,) = session.talk(f"{BRIDGE_HOST.path}/print", "=count-only=")
        assert int(answer["ret"]) > ROWS


def test_a_record_of_the_unit_counts_it(full: Crs812Process, tmp_path: Path) -> None:
    with Operator(tmp_path, full).open() as session:
        found = read_probe(session)
    assert found.hosts["all"] > ROWS
    assert found.hosts["own"] == 34
    assert BRIDGE_HOST.path not in found.tables
    assert len(json.dumps(list(found.everything))) < MOST_BYTES / 4
