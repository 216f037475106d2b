"""The rollback timer and the second session are tried before a run relies on them, and nothing is written without."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

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
    me, counts = operator(tmp_path, emulator), []

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
