"""Whatever goes wrong in a run, the switch is left as it was."""

from __future__ import annotations

import signal

import pytest

from tests.emulator.switch_runs import SET, MakeDesk, Workdir, unharmed, waits_for
from tests.emulator.test_switch_api import open_session

# Whole pyinfra runs for the kinds of step; every single write is gone through in test_every_write.py.
STEPS = [("/safe-mode/take", 0), (SET, 1), ("/safe-mode/release", 0)]


@pytest.mark.parametrize(("match", "after"), STEPS)
def test_a_refused_sentence(workdir: Workdir, match: str, after: int) -> None:
    before = workdir.tables()
    workdir.emulator.control(
        {"op": "fault", "kind": "trap", "match": match, "after": after, "message": "failure: no way"}
    )
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert ended.lines(f"{match}: failure: no way")
    assert workdir.tables() == before
    assert workdir.emulator.state()["safe_mode"]["holder"] is None
    if match != "/safe-mode/take":
        assert "reverted" in ended
        assert "looked again: the switch is as it was before the run" in ended


@pytest.mark.parametrize(
    ("match", "after", "executed"),
    [(SET, 1, False), ("/safe-mode/release", 0, True)],
)
def test_a_lost_connection(workdir: Workdir, match: str, after: int, executed: bool) -> None:
    before = workdir.tables()
    workdir.emulator.control({"op": "fault", "kind": "drop", "match": match, "after": after, "executed": executed})
    ended = workdir.run("-y")
    unharmed(ended, workdir, code=0 if executed else 1)
    assert "closed by the switch" in ended
    assert workdir.emulator.state()["safe_mode"]["holder"] is None
    if executed:
        assert "the switch is as declared, the release came through" in ended
        assert workdir.run("-y").lines("No changes")
    else:
        assert workdir.tables() == before


def test_a_switch_slow_to_notice_a_lost_session_is_watched(make_desk: MakeDesk) -> None:
    workdir = make_desk(unroll_delay=3)
    before = workdir.tables()
    workdir.emulator.control({"op": "fault", "kind": "drop", "match": SET, "after": 1})
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert "looked again: the switch is as it was before the run" in ended
    assert workdir.tables() == before


def test_a_write_that_is_answered_but_not_done(workdir: Workdir) -> None:
    before = workdir.tables()
    workdir.emulator.control({"op": "fault", "kind": "ignore", "match": "/system/identity/set"})
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert "does not read as expected at /system/identity" in ended
    assert workdir.tables() == before


def test_a_failed_unroll_closes_the_session(workdir: Workdir) -> None:
    before = workdir.tables()
    workdir.emulator.control({"op": "fault", "kind": "trap", "match": SET, "after": 1})
    workdir.emulator.control({"op": "fault", "kind": "trap", "match": "/safe-mode/unroll"})
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert "unroll failed (failure: injected), the connection was closed" in ended
    assert workdir.tables() == before


def test_a_leg_that_never_comes_up_undoes_the_run_before_the_second_cage(workdir: Workdir) -> None:
    before = workdir.tables()
    workdir.emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 3})
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert "leg crs812/qsfp56-dd-1-3 (lanes 3-4, to spark2/1) is no-link, should be up at 100G" in ended
    assert workdir.tables() == before
    assert len(workdir.sent(SET)) == 2, "the second cage is not touched when the first fails"


def test_no_other_can_log_in(make_desk: MakeDesk) -> None:
    workdir = make_desk(settle=2)
    before = workdir.tables()
    process = workdir.start("deploy.py", "-y")
    waits_for(lambda: bool(workdir.sent(SET)), process)
    with open_session(workdir.emulator) as session:
        (user,) = session.talk("/user/print", "=.proplist=.id", "?name=sparkrack")
        session.talk("/user/set", f"=.id={user['.id']}", "=password=changed-by-somebody")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "login as sparkrack refused" in text
    assert workdir.tables() == before


def test_killed_in_the_middle(make_desk: MakeDesk) -> None:
    workdir = make_desk(settle=20)
    before = workdir.tables()
    process = workdir.start("deploy.py", "-y")
    waits_for(lambda: len(workdir.sent(SET)) == 2, process)
    assert workdir.tables() != before
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    waits_for(lambda: workdir.emulator.state()["safe_mode"]["holder"] is None)
    assert workdir.tables() == before


def test_interrupted_by_the_user(make_desk: MakeDesk) -> None:
    workdir = make_desk(settle=20)
    before = workdir.tables()
    process = workdir.start("deploy.py", "-y")
    waits_for(lambda: len(workdir.sent(SET)) == 2, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)  # pyinfra exits 0 on Ctrl-C
    waits_for(lambda: workdir.emulator.state()["safe_mode"]["holder"] is None)
    assert workdir.tables() == before
