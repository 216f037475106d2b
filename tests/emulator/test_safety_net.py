"""The rollback timer and the second session are tried before a run relies on them, and nothing is written without."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from switch.backup import Keeper
from switch.transaction import Say, Step
from tests.emulator.conftest import MakeSwitch
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.transactions import Operator
from tests.emulator.wait import until

SCHEDULER, SCRIPT = "/system/scheduler", "/system/script"
FUSE = 20.0
TEN_YEARS = 10 * 365 * 86400.0


def operator(folder: Path, emulator: Crs812Process, **options: Any) -> Operator:
    return Operator(folder, emulator, {"mtu": 9000, "l2mtu": 9216} | options)


def timers(emulator: Crs812Process) -> list[str]:
    tables = emulator.state()["tables"]
    return [row["name"] for path in (SCHEDULER, SCRIPT) for row in tables[path]]


def written(emulator: Crs812Process) -> set[str]:
    """The menus that were written to, those of the rollback timer apart."""
    return set(emulator.stats()["writes"]) - {SCHEDULER, SCRIPT}


@pytest.mark.parametrize("version", ["7.24.4 (stable)", "7.24.6 (long-term)", "7.25.1 (stable)"])
def test_the_timer_of_a_run_has_counted_before_the_first_write(
    make_switch: MakeSwitch, tmp_path: Path, version: str
) -> None:
    """On 7.24.4, too, where a schedule with a date of 1970 would not."""
    emulator = make_switch(version=version, settle=0.0)
    me = operator(tmp_path, emulator)
    counts: list[int] = []

    def show(step: Step) -> None:
        if step.title == "taking safe mode":
            counts.extend(int(row["run-count"]) for row in emulator.state()["tables"][SCHEDULER])

    ended, _ = me.run(me.goal(), show)
    assert ended.done, ended.text
    assert len(counts) == 1
    assert counts[0] > 0
    assert timers(emulator) == []


def test_where_no_schedule_runs_nothing_is_written(
    make_switch: MakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switch.transaction.PROOF_SECONDS", 0.5)
    emulator = make_switch(version="7.24.4 (stable)", schedules="never")
    me = operator(tmp_path, emulator)
    ended, _ = me.run(me.goal())
    assert not ended.done
    assert "on this device with RouterOS 7.24.4, so nothing would undo a run that is cut off" in ended.text
    assert "looked again: the switch is as it was before the run" in ended.text
    assert written(emulator) == set()
    assert timers(emulator) == []


def test_where_the_limit_of_sessions_is_reached_nothing_is_written(make_switch: MakeSwitch, tmp_path: Path) -> None:
    emulator = make_switch()
    me = operator(tmp_path, emulator)
    goal = me.goal()
    with me.open() as session:
        session.talk("/ip/service/set", "=.id=api-ssl", "=max-sessions=1")
    before = emulator.writes()
    ended, _ = me.run(goal)
    assert not ended.done
    assert ended.text.startswith("stopped at: logging in a second time: no second session (")
    assert "max-sessions of the service in /ip/service" in ended.text
    assert emulator.writes() == before


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("moved", [-TEN_YEARS, TEN_YEARS])
def test_a_run_whose_time_server_moves_the_clock_by_years_is_undone_in_time(
    make_switch: MakeSwitch, tmp_path: Path, keeps: bool, moved: float
) -> None:
    emulator = make_switch(keeps_next_run=keeps, ntp_moves=moved, settle=0.0)
    me = operator(tmp_path, emulator, ntp=["10.77.0.1"])
    goal = me.goal()
    before = me.reading(goal)
    killed_after_the_release(me)
    assert not me.reading(goal).same(before, goal.menus)
    assert len(timers(emulator)) == 2
    emulator.control({"op": "pass", "seconds": FUSE})
    until(lambda: not timers(emulator))
    assert me.reading(goal).same(before, goal.menus)


def killed_after_the_release(me: Operator) -> None:
    child = os.fork()
    if child == 0:

        def show(step: Step) -> None:
            if not isinstance(step, Say) and step.title == "logging in again after the release":
                os.kill(os.getpid(), signal.SIGKILL)

        me.run(me.goal(), show, fuse=FUSE)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the run ended before it could be killed"


def test_a_full_flash_of_the_switch_is_named_and_nothing_is_written(make_switch: MakeSwitch, tmp_path: Path) -> None:
    emulator = make_switch()
    emulator.control({"op": "flash", "bytes": 100})
    me = operator(tmp_path, emulator)
    keeper = Keeper(tmp_path / "backups", 3, lambda: SecretStr("a-password"))
    ended, _ = me.run(me.goal(), keep=lambda line: line.say(str(keeper.keep(line, "run-1"))))
    assert ended.text == (
        "stopped at: keeping a backup: the switch gave no backup: failure: not enough space on the flash; its own "
        "flash is full, remove files there (/file/print)"
    )
    assert emulator.writes() == 0
    emulator.control({"op": "flash", "bytes": 10**6})
    ended, _ = me.run(me.goal(), keep=lambda line: line.say(str(keeper.keep(line, "run-1"))))
    assert ended.done, ended.text


ANOTHERS = [["/system/clock/set", f"=time-zone-name={zone}"] for zone in ("Asia/Tokyo", "Europe/Riga")]


def test_another_administrator_who_fills_the_history_is_named(make_switch: MakeSwitch, tmp_path: Path) -> None:
    """RouterOS ends safe mode without a word then; what was written stays, until the rollback timer reverts it."""
    emulator = make_switch(settle=0.0)
    me = operator(tmp_path, emulator)
    goal = me.goal()
    before = me.reading(goal)
    fault = {"kind": "admin", "match": "/interface/bridge/port/set", "sentences": ANOTHERS * 51}
    emulator.control({"op": "fault", **fault})
    ended, _ = me.run(goal)
    assert not ended.done
    assert "safe mode is not ours any more (held by no session): RouterOS ends it" in ended.text
    assert "of winbox:admin@192.0.2.200" in ended.text
    assert "another session has taken safe mode" not in ended.text
    assert "release came through" not in ended.text
    assert me.reading(goal).same(before, goal.menus)
    assert timers(emulator) == []


@pytest.mark.parametrize("match", ["/safe-mode/take", "/interface/bridge/port/set", "/system/scheduler/remove"])
def test_what_another_administrator_writes_elsewhere_meanwhile_stops_no_run(
    make_switch: MakeSwitch, tmp_path: Path, match: str
) -> None:
    """Before safe mode is taken, under it, and after its release."""
    emulator = make_switch(settle=0.0)
    emulator.control({"op": "fault", "kind": "admin", "match": match, "sentences": ANOTHERS})
    me = operator(tmp_path, emulator)
    ended, _ = me.run(me.goal())
    assert ended.done, ended.text
    assert emulator.state()["tables"]["/system/clock"][0]["time-zone-name"] == "Europe/Riga"


@pytest.mark.parametrize("match", ["/safe-mode/take", "/interface/bridge/port/set"])
def test_what_another_administrator_writes_to_the_same_rows_ends_a_run(
    make_switch: MakeSwitch, tmp_path: Path, match: str
) -> None:
    emulator = make_switch(settle=0.0)
    theirs = [["/interface/ethernet/set", "=numbers=qsfp56-dd-1-1", "=mtu=1400"]]
    emulator.control({"op": "fault", "kind": "admin", "match": match, "sentences": theirs})
    me = operator(tmp_path, emulator)
    ended, _ = me.run(me.goal())
    assert not ended.done
    assert "does not read as expected at /interface/ethernet qsfp56-dd-1-1" in ended.text
    assert timers(emulator) == []


def test_another_administrator_who_takes_safe_mode_first_is_named(make_switch: MakeSwitch, tmp_path: Path) -> None:
    emulator = make_switch(settle=0.0)
    fault = {"kind": "admin", "match": "/safe-mode/take", "sentences": [["/safe-mode/take"]]}
    emulator.control({"op": "fault", **fault})
    me = operator(tmp_path, emulator)
    ended, _ = me.run(me.goal())
    assert not ended.done
    assert "safe mode is held by winbox:admin@192.0.2.200" in ended.text
    assert written(emulator) == set()


def test_a_script_that_only_begins_like_ours_stays(make_switch: MakeSwitch, tmp_path: Path) -> None:
    emulator = make_switch(settle=0.0)
    with Operator(tmp_path, emulator).open() as session:
        session.talk("/system/script/add", "=name=sparkrack-undo-notes", "=source=:log info mine")
    me = operator(tmp_path, emulator)
    ended, _ = me.run(me.goal())
    assert ended.done, ended.text
    assert timers(emulator) == ["sparkrack-undo-notes"]
