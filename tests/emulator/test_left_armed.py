"""A run that is killed after its release leaves an armed rollback timer: every later look sees it, and the next run
disarms it even when nothing else is to be done."""

from __future__ import annotations

import signal

import pytest

from tests.emulator.restore_fixtures import Restorer
from tests.emulator.switch_runs import MakeDesk, Workdir, waits_for
from tests.emulator.test_switch_api import open_session
from tests.unit.cli.runs import Ended, forked

RELEASE, DISARM = "/safe-mode/release", "/system/scheduler/remove"
FUSE_IS_OVER = 900


def timers(workdir: Workdir) -> set[str]:
    tables = workdir.emulator.state()["tables"]
    return {row["name"] for path in ("/system/scheduler", "/system/script") for row in tables[path]}


def sparkrack(workdir: Workdir, *words: str) -> Ended:
    """A command of the program in the operator's folder."""
    rack = workdir.folder / "rack.yaml"
    state = str(workdir.folder / "state")
    return forked(
        "sparkrack",
        *words,
        *("--rack", str(rack)),
        *("--limit", "crs812"),
        CRS812_PASSWORD=workdir.emulator.password,
        XDG_STATE_HOME=state,
    )


@pytest.fixture
def killed(make_desk: MakeDesk) -> Workdir:
    """A desk whose run was killed between the release and the disarming."""
    workdir = make_desk()
    workdir.emulator.control({"op": "fault", "kind": "hang", "match": DISARM})
    process = workdir.start("deploy.py", "-y")
    waits_for(lambda: bool(workdir.sent(DISARM)), process)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert len(timers(workdir)) == 1
    assert workdir.sent(RELEASE)
    return workdir


def test_a_preview_tells_it_and_leaves_it(killed: Workdir) -> None:
    (name,) = timers(killed)
    ended = killed.run("--dry", "--diff")
    assert ended.code == 0, ended.text
    assert ended.lines(f"disarm {name}, which an interrupted run left: it would undo that run")
    assert timers(killed) == {name}


def test_a_run_with_nothing_else_to_do_disarms_it(killed: Workdir) -> None:
    (name,) = timers(killed)
    before, sets = killed.tables(), len(killed.sent("/interface/ethernet/set"))
    ended = killed.run("-y")
    assert ended.code == 0, ended.text
    assert ended.lines(f"disarmed {name}; the switch is as declared")
    assert timers(killed) == set()
    killed.emulator.control({"op": "pass", "seconds": FUSE_IS_OVER})
    assert killed.tables() == before
    assert len(killed.sent("/interface/ethernet/set")) == sets
    assert killed.run("-y").lines("No changes")


@pytest.mark.parametrize("verb", ["plan", "drift"])
def test_plan_and_drift_say_that_it_is_pending(killed: Workdir, verb: str) -> None:
    (name,) = timers(killed)
    ended = sparkrack(killed, verb)
    assert ended.code == 2, ended.text
    assert f"disarm {name}" in ended.text


def test_status_says_that_it_will_undo_a_run(killed: Workdir) -> None:
    (name,) = timers(killed)
    ended = sparkrack(killed, "status")
    assert f"rollback timer {name} is armed and will undo an interrupted run" in ended.text


def test_while_a_session_holds_safe_mode_it_is_left_alone(killed: Workdir) -> None:
    (name,) = timers(killed)
    killed.emulator.control({"op": "heal"})
    with open_session(killed.emulator) as other:
        other.talk("/safe-mode/take", "=on-error=abort")
        ended = killed.run("-y")
        assert ended.code == 1
        assert f"rollback timer {name} is armed and sparkrack" in ended
        assert "holds safe mode: a run is in progress; nothing was written" in ended
    assert timers(killed) == {name}


def test_a_restore_with_nothing_else_to_do_disarms_it(restorer: Restorer) -> None:
    restorer.add("/system/script", name="sparkrack-undo-20260101T000000-0001", source=":log info x", policy="read")
    dry = restorer.restore("--last", "--dry")
    assert dry.code == 2
    assert "disarm sparkrack-undo-20260101T000000-0001" in dry.text
    ended = restorer.restore("--last", "-y")
    assert ended.code == 0, ended.text
    assert "disarmed sparkrack-undo-20260101T000000-0001; the switch is as in the backup" in ended.text
    assert restorer.emulator.state()["tables"]["/system/script"] == []
