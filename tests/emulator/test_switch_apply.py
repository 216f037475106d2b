"""Real pyinfra runs that bring the emulated switch to its declared state, and no further."""

from __future__ import annotations

import pytest

from tests.emulator.switch_runs import MODES, OPERATION, SET, MakeDesk, Workdir, run, unharmed
from tests.emulator.test_switch_api import open_session
from tests.tiers import sampled


@pytest.mark.parametrize("mode", sampled(["asked", "yes"], 2))
def test_from_the_factory(workdir: Workdir, mode: str) -> None:
    ended = run(workdir, mode)
    assert ended.code == 0, ended.text
    for cage in (1, 2):
        for lane in range(1, 9):
            row = workdir.row(f"qsfp56-dd-{cage}-{lane}")
            assert (row["disabled"], row["mtu"], row["l2mtu"]) == ("false", "9000", "9500")
            if lane % 2:
                assert (row["auto-negotiation"], row["speed"], row["fec-mode"]) == (
                    "false",
                    "100G-baseCR2",
                    "fec91",
                )
    assert workdir.row("qsfp56-1-1")["l2mtu"] == "1584"
    links = workdir.emulator.links()
    assert all(links[f"qsfp56-dd-{cage}-{lane}"] == "link-ok" for cage in (1, 2) for lane in (1, 3, 5, 7))
    assert workdir.tables()["/system/identity"] == [{"name": "crs812"}]
    assert workdir.emulator.state()["safe_mode"]["holder"] is None
    assert ended.lines("restarts cage qsfp56-dd-1 (spark1, spark2, spark3, spark4)")
    assert ended.lines("bounces all 34 ports")


def test_in_this_order(applied: Workdir) -> None:
    assert [sentence.split()[0] for sentence in applied.sent(SET, "/safe-mode/take", "/safe-mode/release")] == [
        *("/safe-mode/take", SET, SET, SET, "/safe-mode/release")
    ]
    sizes, one, two = applied.sent(SET)
    assert "=l2mtu=9500" in sizes
    assert sizes.split()[1].count("*") == 16
    assert [desk_row in one for desk_row in ("*4", "*6", "*8", "*A")] == [True] * 4
    assert "l2mtu" not in one + two


@pytest.mark.parametrize("mode", sampled(MODES, 3, 2))
def test_a_second_run_writes_nothing(applied: Workdir, mode: str) -> None:
    writes, taken = applied.emulator.writes(), len(applied.sent("/safe-mode/take"))
    ended = run(applied, mode)
    assert ended.code == 0, ended.text
    assert applied.emulator.writes() == writes
    assert len(applied.sent("/safe-mode/take")) == taken
    assert not ended.lines("restarts cage")
    assert mode == "yes" or "[@routeros/crs812]" not in ended.lines(OPERATION)[0]


def test_a_run_without_changes_asks_each_menu_once_and_the_monitor(applied: Workdir) -> None:
    before, monitored = applied.emulator.stats()["reads"], len(applied.sent("/interface/ethernet/monitor"))
    applied.run("-y")
    after = applied.emulator.stats()["reads"]
    asked = {menu: after[menu] - before.get(menu, 0) for menu in after if after[menu] != before.get(menu, 0)}
    # Three sentences more: the monitor of all cabled legs, whether they link as they are set, and the counters of
    # their frames before and after.
    assert asked.pop("/interface/ethernet") == 4
    assert set(asked.values()) == {1}
    assert len(asked) == 17
    assert len(applied.sent("/interface/ethernet/monitor")) == monitored + 1


def test_a_preview_shows_every_field_and_writes_nothing(workdir: Workdir) -> None:
    before = workdir.tables()
    ended = workdir.run("--dry", "--diff")
    assert ended.code == 0, ended.text
    for text in (
        "/interface/ethernet qsfp56-dd-1-1: l2mtu 1584 -> 9500, mtu 1500 -> 9000",
        "qsfp56-dd-2-7: auto-negotiation true -> no, speed (none) -> 100G-baseCR2, fec-mode auto -> fec91",
        "/system/identity: name MikroTik -> crs812",
        "cage qsfp56-dd-1, auto-negotiated -> 4x100G copper: restarts cage qsfp56-dd-1",
    ):
        assert text in ended
    assert workdir.emulator.writes() == 0
    assert workdir.sent("/safe-mode/take") == []
    assert workdir.tables() == before


def test_one_lane_wrong_by_hand_rewrites_its_cage_only(applied: Workdir) -> None:
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


def test_from_another_split_and_back_into_the_bridge(applied: Workdir) -> None:
    with open_session(applied.emulator) as session:
        session.talk(SET, "=.id=*4,*6,*8,*A", "=speed=200G-baseCR4")
        session.talk(SET, "=.id=*5", "=disabled=yes")
        session.talk(SET, "=.id=*6", "=name=to-spark2")
        ports = session.talk("/interface/bridge/port/print", "=.proplist=.id", "?interface=qsfp56-dd-1-1")
        session.talk("/interface/bridge/port/remove", f"=.id={ports[0]['.id']}")
    ended = applied.run("-y", "--diff")
    assert ended.code == 0, ended.text
    assert "+ /interface/bridge/port qsfp56-dd-1-1: bridge bridge" in ended
    assert "cage qsfp56-dd-1, lane 1 200G-baseCR4, lane 2 disabled, lane 3 200G-baseCR4, lane 4 auto" in ended
    assert applied.row("qsfp56-dd-1-3")["name"] == "to-spark2"
    assert applied.run("-y").lines("No changes")


def test_the_plain_api_for_first_contact(make_desk: MakeDesk) -> None:
    workdir = make_desk({"tls": False})
    workdir.switch["port"] = workdir.emulator.plain_port
    assert workdir.run("-y").code == 0


def test_sentences_and_facts_from_the_command_line(workdir: Workdir) -> None:
    process = workdir.start("exec", "--limit", "switches", "--", "/system/identity/print")
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '{"name": "MikroTik"}' in text
    process = workdir.start(
        "fact", "--limit", "switches", "--json", "core.routeros.pyinfra_facts.Rows", "path=/system/identity"
    )
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '"name": "MikroTik"' in text


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["inventory.py", "exec", "--limit", "switches", "--", "ls", "-la"], "ls -la: not an API sentence"),
        (["@routeros/crs812", "exec", "--", "/system/identity/print"], "is the switch in the inventory?"),
        (["inventory.py", "-y", "--data", "routeros_port=http", "deploy.py"], "routeros_port"),
    ],
)
def test_what_is_typed_wrongly_is_reported(workdir: Workdir, arguments: list[str], reported: str) -> None:
    process = workdir.start(*arguments[1:], inventory=arguments[0])
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert reported in text
    assert "Traceback" not in text
    assert workdir.emulator.writes() == 0


def test_a_password_that_is_not_there(workdir: Workdir) -> None:
    workdir.switch["password"] = {"env": "NOT_SET_ANYWHERE"}
    ended = workdir.run("-y")
    unharmed(ended, workdir)
    assert ended.lines("environment variable NOT_SET_ANYWHERE is not set")
