"""Real pyinfra runs that bring the emulated switch to its declared state, or leave it exactly as it was."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from switch.api import Session
from tests.emulator.conftest import MakeSwitch
from tests.emulator.switch_runs import Desk, Ended
from tests.emulator.test_switch_api import open_session

OPERATION = "Bring crs812 to its declared state"
SET = "/interface/ethernet/set"
MODES = {"dry": (["--dry"], ""), "asked": ([], "\n\n"), "yes": (["-y"], "")}
"""Arguments of a run, and what is typed when it asks whether to go on, and again when a host failed."""
MakeDesk = Callable[..., Desk]


@pytest.fixture
def make_desk(tmp_path: Path, make_switch: MakeSwitch) -> MakeDesk:
    """An operator's folder and a switch; `switch` replaces keys of rack.yaml, the rest sets up the
    emulator."""

    def make(switch: dict[str, Any] | None = None, **emulator: Any) -> Desk:
        folder = tmp_path / "desk"
        folder.mkdir()
        return Desk(folder, make_switch(**emulator), switch or {})

    return make


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk()


@pytest.fixture
def applied(desk: Desk) -> Desk:
    """A desk whose switch was brought to its declared state."""
    ended = desk.run("-y")
    assert ended.code == 0, ended.text
    return desk


def run(desk: Desk, mode: str) -> Ended:
    arguments, typed = MODES[mode]
    return desk.run(*arguments, typed=typed)


def unharmed(ended: Ended, desk: Desk) -> None:
    """The run failed in a way a user can read: the other host went on, no traceback, no secret."""
    assert ended.code == 1, ended.text
    assert "Traceback" not in ended
    assert desk.emulator.password not in ended
    assert ended.lines("[@fake/spark1]")[-1].endswith(("Success", "Ready: deploy.py")), ended.text


# From the factory to the declared state, and no further


@pytest.mark.parametrize("mode", ["asked", "yes"])
def test_from_the_factory(desk: Desk, mode: str) -> None:
    ended = run(desk, mode)
    assert ended.code == 0, ended.text
    for cage in (1, 2):
        for lane in range(1, 9):
            row = desk.row(f"qsfp56-dd-{cage}-{lane}")
            assert (row["disabled"], row["mtu"], row["l2mtu"]) == ("false", "9000", "9500")
            if lane % 2:
                assert (row["auto-negotiation"], row["speed"], row["fec-mode"]) == (
                    "false",
                    "100G-baseCR2",
                    "fec91",
                )
    assert desk.row("qsfp56-1-1")["l2mtu"] == "1584"
    links = desk.emulator.links()
    assert all(links[f"qsfp56-dd-{cage}-{lane}"] == "link-ok" for cage in (1, 2) for lane in (1, 3, 5, 7))
    assert desk.tables()["/system/identity"] == [{"name": "crs812"}]
    assert desk.emulator.state()["safe_mode"]["holder"] is None
    assert ended.lines("restarts cage qsfp56-dd-1 (spark1, spark2, spark3, spark4)")
    assert ended.lines("bounces all 34 ports")


def test_in_this_order(applied: Desk) -> None:
    assert [sentence.split()[0] for sentence in applied.sent(SET, "/safe-mode/take", "/safe-mode/release")] == [
        *("/safe-mode/take", SET, SET, SET, "/safe-mode/release")
    ]
    sizes, one, two = applied.sent(SET)
    assert "=l2mtu=9500" in sizes
    assert sizes.split()[1].count("*") == 16
    assert [desk_row in one for desk_row in ("*4", "*6", "*8", "*A")] == [True] * 4
    assert "l2mtu" not in one + two


@pytest.mark.parametrize("mode", MODES)
def test_a_second_run_writes_nothing(applied: Desk, mode: str) -> None:
    writes, taken = applied.emulator.writes(), len(applied.sent("/safe-mode/take"))
    ended = run(applied, mode)
    assert ended.code == 0, ended.text
    assert applied.emulator.writes() == writes
    assert len(applied.sent("/safe-mode/take")) == taken
    assert not ended.lines("restarts cage")
    assert mode == "yes" or "[@routeros/crs812]" not in ended.lines(OPERATION)[0]


def test_a_run_without_changes_asks_seven_questions(applied: Desk) -> None:
    before = sum(applied.emulator.stats()["reads"].values())
    applied.run("-y")
    assert sum(applied.emulator.stats()["reads"].values()) - before == 7


def test_a_preview_shows_every_field_and_writes_nothing(desk: Desk) -> None:
    before = desk.tables()
    ended = desk.run("--dry", "--diff")
    assert ended.code == 0, ended.text
    for text in (
        "/interface/ethernet qsfp56-dd-1-1: l2mtu 1584 -> 9500, mtu 1500 -> 9000",
        "qsfp56-dd-2-7: auto-negotiation true -> no, speed (none) -> 100G-baseCR2, fec-mode auto -> fec91",
        "/system/identity: name MikroTik -> crs812",
        "cage qsfp56-dd-1, auto-negotiated -> 4x100G copper: restarts cage qsfp56-dd-1",
    ):
        assert text in ended
    assert desk.emulator.writes() == 0
    assert desk.sent("/safe-mode/take") == []
    assert desk.tables() == before


def test_one_lane_wrong_by_hand_rewrites_its_cage_only(applied: Desk) -> None:
    with open_session(applied.emulator) as session:
        session.talk(SET, "=.id=*E", "=fec-mode=off")
    downs = {name: link["downs"] for name, link in applied.emulator.state()["links"].items()}
    before = len(applied.sent(SET))
    ended = applied.run("-y", "--diff")
    assert ended.code == 0, ended.text
    assert "qsfp56-dd-2-3: fec-mode off -> fec91" in ended
    (sentence,) = applied.sent(SET)[before:]
    assert "=.id=*E =fec-mode=fec91" in sentence
    after = {name: link["downs"] for name, link in applied.emulator.state()["links"].items()}
    assert {name for name in after if after[name] != downs[name]} <= {f"qsfp56-dd-2-{lane}" for lane in range(1, 9)}


def test_from_another_split_and_back_into_the_bridge(applied: Desk) -> None:
    with open_session(applied.emulator) as session:
        session.talk(SET, "=.id=*4,*6,*8,*A", "=speed=200G-baseCR4")
        session.talk(SET, "=.id=*5", "=disabled=yes")
        session.talk(SET, "=.id=*6", "=name=to-spark2")
        ports = session.talk("/interface/bridge/port/print", "=.proplist=.id", "?interface=qsfp56-dd-1-1")
        session.talk("/interface/bridge/port/remove", f"=.id={ports[0]['.id']}")
    ended = applied.run("-y", "--diff")
    assert ended.code == 0, ended.text
    assert "+ /interface/bridge/port qsfp56-dd-1-1: interface (none) -> qsfp56-dd-1-1" in ended
    assert "cage qsfp56-dd-1, lane 1 200G-baseCR4, lane 2 disabled, lane 3 200G-baseCR4, lane 4 auto" in ended
    assert applied.row("qsfp56-dd-1-3")["name"] == "to-spark2"
    assert applied.run("-y").lines("No changes")


def test_the_plain_api_for_first_contact(make_desk: MakeDesk) -> None:
    desk = make_desk({"tls": False})
    desk.switch["port"] = desk.emulator.plain_port
    assert desk.run("-y").code == 0


def test_sentences_and_facts_from_the_command_line(desk: Desk) -> None:
    process = desk.start("exec", "--limit", "switches", "--", "/system/identity/print")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '{"name": "MikroTik"}' in text
    process = desk.start("fact", "--limit", "switches", "--json", "switch.facts.Rows", "path=/system/identity")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '"name": "MikroTik"' in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["inventory.py", "exec", "--limit", "switches", "--", "ls", "-la"], "ls -la: not an API sentence"),
        (["@routeros/crs812", "exec", "--", "/system/identity/print"], "is the switch in the inventory?"),
        (["inventory.py", "-y", "--data", "routeros_port=http", "deploy.py"], "routeros_port"),
    ],
)
def test_what_is_typed_wrongly_is_told(desk: Desk, arguments: list[str], said: str) -> None:
    process = desk.start(*arguments[1:], inventory=arguments[0])
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said in text
    assert "Traceback" not in text
    assert desk.emulator.writes() == 0


def test_a_password_that_is_not_there(desk: Desk) -> None:
    desk.switch["password"] = {"env": "NOT_SET_ANYWHERE"}
    ended = desk.run("-y")
    unharmed(ended, desk)
    assert ended.lines("environment variable NOT_SET_ANYWHERE is not set")


# Whatever goes wrong, the switch is as it was

STEPS = [
    ("/safe-mode/take", 0),
    *((SET, number) for number in range(3)),
    ("/system/identity/set", 0),
    ("/safe-mode/release", 0),
]


@pytest.mark.parametrize(("match", "after"), STEPS)
def test_a_refused_sentence(desk: Desk, match: str, after: int) -> None:
    before = desk.tables()
    desk.emulator.control({"op": "fault", "kind": "trap", "match": match, "after": after, "message": "failure: no way"})
    ended = desk.run("-y")
    unharmed(ended, desk)
    assert ended.lines(f"{match}: failure: no way")
    assert desk.tables() == before
    assert desk.emulator.state()["safe_mode"]["holder"] is None
    if match != "/safe-mode/take":
        assert "taken back" in ended
        assert "looked again: the switch is as it was before the run" in ended


@pytest.mark.parametrize(
    ("match", "after", "executed"),
    [*((match, after, False) for match, after in STEPS), (SET, 1, True), ("/safe-mode/release", 0, True)],
)
def test_a_lost_connection(desk: Desk, match: str, after: int, executed: bool) -> None:
    before = desk.tables()
    desk.emulator.control({"op": "fault", "kind": "drop", "match": match, "after": after, "executed": executed})
    ended = desk.run("-y")
    unharmed(ended, desk)
    assert "closed by the switch" in ended
    assert desk.emulator.state()["safe_mode"]["holder"] is None
    if match == "/safe-mode/release" and executed:
        assert "the switch is as declared, the release came through" in ended
        assert desk.run("-y").lines("No changes")
    else:
        assert desk.tables() == before


def test_a_switch_slow_to_notice_a_lost_session_is_watched(make_desk: MakeDesk) -> None:
    desk = make_desk(unroll_delay=3)
    before = desk.tables()
    desk.emulator.control({"op": "fault", "kind": "drop", "match": SET, "after": 1})
    ended = desk.run("-y")
    unharmed(ended, desk)
    assert "looked again: the switch is as it was before the run" in ended
    assert desk.tables() == before


def test_a_write_that_is_answered_but_not_done(desk: Desk) -> None:
    before = desk.tables()
    desk.emulator.control({"op": "fault", "kind": "ignore", "match": "/system/identity/set"})
    ended = desk.run("-y")
    unharmed(ended, desk)
    assert "does not read as expected at /system/identity" in ended
    assert desk.tables() == before


def test_a_failed_unroll_closes_the_session(desk: Desk) -> None:
    before = desk.tables()
    desk.emulator.control({"op": "fault", "kind": "trap", "match": SET, "after": 1})
    desk.emulator.control({"op": "fault", "kind": "trap", "match": "/safe-mode/unroll"})
    ended = desk.run("-y")
    unharmed(ended, desk)
    assert "unroll failed (failure: injected), the connection was closed" in ended
    assert desk.tables() == before


def test_a_leg_that_never_comes_up(desk: Desk) -> None:
    before = desk.tables()
    desk.emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 3})
    ended = desk.run("-y")
    unharmed(ended, desk)
    assert "leg crs812/qsfp56-dd-1-3 (lanes 3-4, to spark2/1) is no-link, should be up at 100G" in ended
    assert desk.tables() == before


def test_the_second_cage_is_not_touched_when_the_first_fails(desk: Desk) -> None:
    desk.emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-1", "lane": 3})
    desk.run("-y")
    assert len(desk.sent(SET)) == 2


def test_nobody_else_can_log_in(make_desk: MakeDesk) -> None:
    desk = make_desk(settle=2)
    before = desk.tables()
    process = desk.start("deploy.py", "-y")
    waits_for(lambda: bool(desk.sent(SET)), process)
    with open_session(desk.emulator) as session:
        (user,) = session.talk("/user/print", "=.proplist=.id", "?name=sparkrack")
        session.talk("/user/set", f"=.id={user['.id']}", "=password=changed-by-somebody")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "login as sparkrack refused" in text
    assert desk.tables() == before


def test_killed_in_the_middle(make_desk: MakeDesk) -> None:
    desk = make_desk(settle=20)
    before = desk.tables()
    process = desk.start("deploy.py", "-y")
    waits_for(lambda: len(desk.sent(SET)) == 2, process)
    assert desk.tables() != before
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    waits_for(lambda: desk.emulator.state()["safe_mode"]["holder"] is None)
    assert desk.tables() == before


def test_interrupted_by_the_user(make_desk: MakeDesk) -> None:
    desk = make_desk(settle=20)
    before = desk.tables()
    process = desk.start("deploy.py", "-y")
    waits_for(lambda: len(desk.sent(SET)) == 2, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)  # pyinfra exits 0 on Ctrl-C
    waits_for(lambda: desk.emulator.state()["safe_mode"]["holder"] is None)
    assert desk.tables() == before


# Somebody else is there


def held_by_another(desk: Desk) -> Session:
    session = open_session(desk.emulator)
    session.talk("/safe-mode/take", "=on-error=abort")
    return session


def test_safe_mode_held_by_another(desk: Desk) -> None:
    with held_by_another(desk):
        ended = desk.run("-y")
        unharmed(ended, desk)
        assert ended.lines("safe mode is held by sparkrack (")
        assert "nothing was written" in ended
        assert desk.emulator.writes() == 0
        assert desk.emulator.state()["safe_mode"]["holder"]


@pytest.mark.parametrize("taken", ["release", "unroll"])
def test_safe_mode_taken_away_in_the_middle(make_desk: MakeDesk, taken: str) -> None:
    desk = make_desk(settle=2)
    process = desk.start("deploy.py", "-y")
    waits_for(lambda: len(desk.sent(SET)) == 2, process)
    with open_session(desk.emulator) as session:
        session.talk("/safe-mode/take", f"=on-error={taken}")
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "safe mode is not ours any more (held by sparkrack" in text
    assert len(desk.sent(SET)) == 2
    assert desk.sent("/safe-mode/unroll") == []
    if taken == "release":
        assert "NOTHING IS TAKEN BACK" in text
        assert "ROLLBACK NOT PROVEN" in text


def test_a_switch_changed_after_the_plan_was_made(desk: Desk) -> None:
    desk.emulator.control({"op": "fault", "kind": "delay", "match": "/safe-mode/take", "seconds": 3})
    process = desk.start("deploy.py", "-y")
    waits_for(lambda: bool(desk.emulator.stats()["reads"].get("/safe-mode")), process)
    with open_session(desk.emulator) as session:
        session.talk(SET, "=.id=*4", "=l2mtu=2000")
    before = desk.tables()
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "does not read as expected at /interface/ethernet qsfp56-dd-1-1" in text
    assert len(desk.sent(SET)) == 1
    assert desk.tables() == before


# What is not meant, not fit or not known is not written to


def refused_before_any_write(desk: Desk, said: str, mode: str) -> None:
    ended = run(desk, mode)
    unharmed(ended, desk)
    (line,) = ended.lines(said)
    assert "[@routeros/crs812]" in line
    assert "No change" not in "".join(ended.lines(OPERATION))
    assert "nothing was written" in line
    assert desk.emulator.writes() == 0
    assert desk.sent("/safe-mode/take") == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("switch", "emulator", "said"),
    [
        ({}, {"model": "CRS804-4DDQ"}, "is a CRS804-4DDQ; the rack file means a CRS812-8DS-2DQ-2DDQ"),
        ({"serial": "HX1"}, {"serial": "HX2"}, "has serial number HX2; the rack file means HX1"),
        ({}, {"version": "7.22.1 (stable)"}, "runs RouterOS 7.22.1 (stable); at least 7.23 is needed"),
        ({}, {"packages": ["routeros"]}, "package switch-marvell is not installed"),
        ({"bridge": "other"}, {}, "has no bridge other; its bridges: bridge"),
    ],
)
def test_the_wrong_switch(
    make_desk: MakeDesk, switch: dict[str, str], emulator: dict[str, Any], said: str, mode: str
) -> None:
    refused_before_any_write(make_desk(switch, **emulator), said, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "garbage", "match": "/interface/bridge/print"}, "/interface/bridge/print: "),
        (
            {"kind": "trap", "match": "/system/routerboard", "message": "no such command prefix"},
            "no such command prefix",
        ),
        ({"kind": "ignore", "match": "/interface/ethernet/print"}, "/interface/ethernet has no rows"),
        ({"kind": "ignore", "match": "/system/identity"}, "/system/identity should have one row and has 0"),
        ({"kind": "fatal", "match": "/interface/ethernet/print", "message": "bad day"}, "bad day"),
        ({"kind": "drop", "match": "/system/resource"}, "closed by the switch"),
    ],
)
def test_an_unknown_state(desk: Desk, fault: dict[str, str], said: str, mode: str) -> None:
    desk.emulator.control({"op": "fault", "times": 0, **fault})
    refused_before_any_write(desk, said, mode)


def test_what_was_unknown_in_the_preview_is_not_written_later(desk: Desk) -> None:
    desk.emulator.control({"op": "fault", "kind": "trap", "match": "/interface/ethernet/print"})
    refused_before_any_write(desk, "/interface/ethernet/print: failure: injected", "asked")


def test_a_wrong_password(desk: Desk) -> None:
    ended = desk.run("-y", "-vvv", "--debug", password="canary-password")
    unharmed(ended, desk)
    assert len(ended.lines("login as sparkrack refused: invalid user name or password (6)")) == 1
    assert "canary" not in ended
    assert desk.emulator.writes() == 0


def test_the_password_is_nowhere_in_a_good_run(desk: Desk) -> None:
    ended = desk.run("-y", "-vvv", "--debug", "--diff")
    assert ended.code == 0
    assert ended.lines(">>> /interface/ethernet/set '=.id=*4,")
    assert desk.emulator.password not in ended
    text, _ = desk.start("debug-inventory").communicate(timeout=60)
    assert desk.emulator.password not in text


def test_another_certificate(make_desk: MakeDesk) -> None:
    desk = make_desk({"tls": {"sha256": "ab" * 32}})
    ended = desk.run("-y")
    unharmed(ended, desk)
    (line,) = ended.lines("ab" * 32)
    assert desk.emulator.fingerprint in line
    assert not [entry for entry in desk.emulator.log() if entry.get("command")]


def waits_for(condition: Callable[[], bool], process: Any = None) -> None:
    """Wait until something holds; a process that ends before is a failure with its output."""
    end = time.monotonic() + 40
    while not condition():
        if process is not None and process.poll() is not None:
            pytest.fail(f"the run ended before: {process.communicate()[0]}")
        if time.monotonic() > end:
            pytest.fail("waited in vain")
        time.sleep(0.05)
