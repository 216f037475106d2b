"""Someone else is there, or the switch is not meant, not fit or not known: it is not written to."""

from __future__ import annotations

from typing import Any

import pytest

from core.routeros.api import ApiSession
from core.routeros.errors import SentenceError
from tests.emulator.switch_runs import MODES, OPERATION, SET, MakeDesk, Workdir, run, unharmed, waits_for
from tests.emulator.test_switch_api import open_session
from tests.tiers import crossed


def held_by_another(workdir: Workdir) -> ApiSession:
    session = open_session(workdir.emulator)
    session.talk("/safe-mode/take", "=on-error=abort")
    return session


def test_safe_mode_held_by_another(workdir: Workdir) -> None:
    with held_by_another(workdir):
        ended = workdir.run("-y")
        unharmed(ended, workdir)
        assert ended.lines("safe mode is held by sparkrack (")
        assert "nothing was written" in ended
        assert workdir.emulator.writes() == 0
        assert workdir.emulator.state()["safe_mode"]["holder"]


@pytest.mark.parametrize("taken", ["release", "unroll"])
def test_safe_mode_taken_away_in_the_middle(make_desk: MakeDesk, taken: str) -> None:
    workdir = make_desk(settle=2)
    process = workdir.start("deploy.py", "-y")
    waits_for(lambda: len(workdir.sent(SET)) == 2, process)
    with open_session(workdir.emulator) as session:
        session.talk("/safe-mode/take", f"=on-error={taken}")
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "safe mode is not ours any more (held by sparkrack" in text
    assert len(workdir.sent(SET)) == 2
    assert workdir.sent("/safe-mode/unroll") == []
    if taken == "release":
        assert "another session has taken safe mode" in text
        assert "safe mode is still held by" in text
        assert "undoes this run in" in text
        assert "ROLLBACK NOT PROVEN" in text


def test_a_switch_changed_after_the_plan_was_made(workdir: Workdir) -> None:
    workdir.emulator.control({"op": "fault", "kind": "delay", "match": "/safe-mode/take", "seconds": 3})
    process = workdir.start("deploy.py", "-y")
    waits_for(lambda: bool(workdir.emulator.stats()["reads"].get("/safe-mode")), process)
    with open_session(workdir.emulator) as session:
        session.talk(SET, "=.id=*4", "=l2mtu=2000")
    before = workdir.tables()
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "does not read as expected at /interface/ethernet qsfp56-dd-1-1" in text
    assert len(workdir.sent(SET)) == 1
    assert "nothing of this run is left on the switch; another session changed it during the run" in text
    assert workdir.tables() == before
    assert workdir.emulator.state()["tables"]["/system/scheduler"] == []


# What is not meant, not fit or not known is not written to


def refused_before_any_write(workdir: Workdir, reported: str, mode: str) -> None:
    ended = run(workdir, mode)
    unharmed(ended, workdir)
    (line,) = ended.lines(reported)
    assert "[@routeros/crs812]" in line
    assert "No change" not in "".join(ended.lines(OPERATION))
    assert "nothing was written" in line
    assert workdir.emulator.writes() == 0
    assert workdir.sent("/safe-mode/take") == []


WRONG: tuple[tuple[dict[str, str], dict[str, Any], str], ...] = (
    ({}, {"model": "CRS804-4DDQ"}, "is a CRS804-4DDQ; the rack file means a CRS812-8DS-2DQ-2DDQ"),
    ({"serial": "HX1"}, {"serial": "HX2"}, "has serial number HX2; the rack file means HX1"),
    ({}, {"version": "7.22.1 (stable)"}, "runs RouterOS 7.22.1 (stable); at least 7.23 is needed"),
    ({}, {"packages": ["routeros"]}, "package switch-marvell is not installed"),
    ({"bridge": "other"}, {}, "has no bridge other; its bridges: bridge"),
)
"""Keys of rack.yaml, what the emulator is, and the message."""
UNKNOWN = (
    ({"kind": "garbage", "match": "/interface/bridge/print"}, "/interface/bridge/print: "),
    ({"kind": "trap", "match": "/system/routerboard", "message": "no such command prefix"}, "no such command prefix"),
    ({"kind": "ignore", "match": "/interface/ethernet/print"}, "/interface/ethernet has no rows"),
    ({"kind": "ignore", "match": "/system/identity"}, "/system/identity should have one row and has 0"),
    ({"kind": "fatal", "match": "/interface/ethernet/print", "message": "bad day"}, "bad day"),
    ({"kind": "drop", "match": "/system/resource"}, "closed by the switch"),
)
"""A fault of the emulator, and the message."""


@pytest.mark.parametrize(("case", "mode"), crossed(WRONG, tuple(MODES)))
def test_the_wrong_switch(make_desk: MakeDesk, case: tuple[dict[str, str], dict[str, Any], str], mode: str) -> None:
    switch, emulator, reported = case
    refused_before_any_write(make_desk(switch, **emulator), reported, mode)


@pytest.mark.parametrize(("case", "mode"), crossed(UNKNOWN, tuple(MODES)))
def test_an_unknown_state(workdir: Workdir, case: tuple[dict[str, str], str], mode: str) -> None:
    fault, reported = case
    workdir.emulator.control({"op": "fault", "times": 0, **fault})
    refused_before_any_write(workdir, reported, mode)


def test_what_was_unknown_in_the_preview_is_not_written_later(workdir: Workdir) -> None:
    workdir.emulator.control({"op": "fault", "kind": "trap", "match": "/interface/ethernet/print"})
    refused_before_any_write(workdir, "/interface/ethernet/print: failure: injected", "asked")


def test_a_wrong_password(workdir: Workdir) -> None:
    ended = workdir.run("-y", "-vvv", "--debug", password="canary-password")
    unharmed(ended, workdir)
    assert len(ended.lines("login as sparkrack refused: invalid user name or password (6)")) == 1
    assert "canary" not in ended
    assert workdir.emulator.writes() == 0


def test_the_password_is_nowhere_in_a_good_run(workdir: Workdir) -> None:
    ended = workdir.run("-y", "-vvv", "--debug", "--diff")
    assert ended.code == 0
    assert ended.lines(">>> /interface/ethernet/set '=.id=*4,")
    assert workdir.emulator.password not in ended
    text, _ = workdir.start("debug-inventory").communicate(timeout=60)
    assert workdir.emulator.password not in text


def test_another_certificate(make_desk: MakeDesk) -> None:
    workdir = make_desk({"tls": {"sha256": "ab" * 32}})
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    (line,) = ended.lines("ab" * 32)
    assert workdir.emulator.fingerprint in line
    assert not [entry for entry in workdir.emulator.log() if entry.get("command")]


def test_what_routeros_would_refuse_at_the_end_is_refused_before_a_cage_restarts(make_desk: MakeDesk) -> None:
    workdir = make_desk()
    with open_session(workdir.emulator) as session:
        ids = ",".join(row[".id"] for row in session.talk("/interface/ethernet/print", "=.proplist=.id"))
        session.talk("/interface/ethernet/set", f"=.id={ids}", "=l2mtu=9500")
        session.talk("/interface/bridge/set", "=numbers=bridge", "=mtu=9000", "=disabled=yes")
        session.talk("/interface/ethernet/set", "=numbers=ether1", "=l2mtu=1592")
        with pytest.raises(SentenceError, match="could not set mtu"):
            session.talk("/interface/bridge/set", "=numbers=bridge", "=disabled=no")
    writes = workdir.emulator.writes()
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert ended.lines("bridge bridge has mtu 9000 of its own and its port ether1 has l2mtu 1592")
    assert workdir.emulator.writes() == writes


def test_a_device_that_would_run_no_rollback_timer(make_desk: MakeDesk) -> None:
    workdir = make_desk(device_mode="home")
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert ended.lines("device mode home keeps the scheduler off")
    assert "press the reset or mode button of the device" in ended
    assert workdir.emulator.writes() == 0
