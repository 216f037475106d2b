"""A switch on a release that attackers use, and one that RouterOS has marked as compromised, at every command."""

from __future__ import annotations

from tests.emulator.switch_runs import MakeDesk, Workdir
from tests.emulator.test_switch_api import open_session
from tests.unit.cli.runs import Ended, forked

ATTACKED = "RouterOS 7.23.3 (long-term): attackers take switches over by SSH without a password"
MARKED = "RouterOS has marked this switch as compromised (flagged in /system/device-mode)"
RUNBOOK = "do not clear the mark, see docs/runbooks/switch-compromised.md"


def sparkrack(desk: Workdir, verb: str, *words: str) -> Ended:
    return forked(
        *("sparkrack", verb, *words, "--rack", str(desk.folder / "rack.yaml"), "--limit", "crs812"),
        CRS812_PASSWORD=desk.emulator.password,
        XDG_STATE_HOME=str(desk.folder / "state"),
    )


def test_a_release_that_attackers_use_is_a_fault_of_every_command_and_changes_are_applied(make_desk: MakeDesk) -> None:
    desk = make_desk(version="7.23.3 (long-term)")
    desk.write()
    before = sparkrack(desk, "plan")
    assert before.code == 2, before.text
    assert f"does not work: upgrade required: {ATTACKED}" in before.text
    assert "cage qsfp56-dd-1" in before.text, "a plan shows what it would change, too"
    done = desk.run("-y")
    assert done.code == 0, done.text
    assert done.lines(f"fault: {ATTACKED}")
    for verb in ("plan", "drift", "verify", "status"):
        ended = sparkrack(desk, verb)
        assert ended.code == 2, f"{verb}: {ended.text}"
        assert ATTACKED in ended.text, verb
        assert "take 7.24.6 (long-term) or 7.25.2 (stable)" in ended.text, verb
    assert "users of the group full that rack.yaml does not name: admin" in sparkrack(desk, "plan").text


def test_a_switch_that_routeros_has_marked_is_refused_by_every_command(make_desk: MakeDesk) -> None:
    desk = make_desk(flagged=True)
    desk.write()
    with open_session(desk.emulator) as session:
        session.talk("/user/add", "=name=ops", "=group=full", "=password=left-behind")
    writes = desk.emulator.writes()
    for verb, code in {"plan": 1, "drift": 2, "verify": 2, "status": 2}.items():
        ended = sparkrack(desk, verb)
        assert ended.code == code, f"{verb}: {ended.text}"
        assert MARKED in ended.text, verb
        assert RUNBOOK in ended.text, verb
        assert "flagged=no" not in ended.text, verb
    assert "users of the group full that rack.yaml does not name: admin, ops" in sparkrack(desk, "drift").text
    done = desk.run("-y")
    assert done.code == 1, done.text
    assert MARKED in done.text
    assert desk.emulator.writes() == writes
