"""Every key that rack.yaml has for a switch, in whole pyinfra runs: what it costs, and that no secret leaves."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.switch_runs import SET, MakeDesk, Workdir, waits_for
from tests.emulator.test_switch_api import open_session
from tests.emulator.transactions import WHOLE

SECRETS = ("reader", "authentication", "encryption")


@pytest.fixture
def whole(make_desk: MakeDesk, tmp_path: Path) -> Workdir:
    """A desk whose rack.yaml has every key about the switch, with a canary in the place of each secret."""
    workdir = make_desk()
    for name in SECRETS:
        path = tmp_path / f"secret-{name}"
        path.write_text(f"canary-{name}-Xq7Zp2Lm9")
        path.chmod(0o600)
    places = {name: {"file": str(tmp_path / f"secret-{name}")} for name in SECRETS}
    workdir.switch |= {
        **WHOLE,
        "reader": {"password": places["reader"]},
        "snmp": {"user": "monitor", "authentication": places["authentication"], "encryption": places["encryption"]},
    }
    return workdir


def test_from_the_factory_to_every_key(whole: Workdir) -> None:
    """The figures of a full change: one write of all l2mtu and no other bounce of all ports, one restart a
    cage, and a second run that writes nothing."""
    ended = whole.run("-y")
    assert ended.code == 0, ended.text
    sets = whole.sent(SET)
    assert ["l2mtu" in words for words in sets] == [True, False, False]
    assert whole.emulator.state()["links"]["ether1"]["downs"] == 1
    writes = sum(whole.emulator.stats()["writes"].values())
    assert writes < 60
    print(f"{writes} writes from the factory to every key")

    again = whole.run("-y")
    assert again.code == 0, again.text
    assert sum(whole.emulator.stats()["writes"].values()) == writes
    assert "left alone, not managed: /user admin" in again


@pytest.mark.parametrize("secret", SECRETS)
def test_a_missing_secret_stops_the_run_before_the_first_write(whole: Workdir, tmp_path: Path, secret: str) -> None:
    """The preview refuses and names the line of rack.yaml and the fix; the switch gets no write."""
    file = tmp_path / f"secret-{secret}"
    file.unlink()
    for arguments in (("--dry",), ("-y",)):
        ended = whole.run(*arguments)
        assert ended.code == 1, ended.text
        key = "reader.password" if secret == "reader" else f"snmp.{secret}"
        (line,) = set(re.findall(r"\S*rack\.yaml:\d+: .*", ended.text))
        number = int(line[line.index("rack.yaml:") :].split(":")[1])
        declared = (whole.folder / "rack.yaml").read_text().splitlines()[number - 1]
        assert declared.strip().startswith("password:" if secret == "reader" else f"{secret}:")
        assert f"switches.crs812.{key}: file {file} does not exist; create it: (umask 077; " in line
        assert "nothing was written" in line
        assert "canary" not in ended
    assert sum(whole.emulator.stats()["writes"].values()) == 0


def test_a_change_of_one_cage_restarts_it_once_and_no_other(applied: Workdir) -> None:
    applied.switch["cages"] = {"qsfp56-dd-1": {"split": "4x100G"}, "qsfp56-dd-2": {"split": "4x100G"}}
    with open_session(applied.emulator) as session:
        for lane in ("*4", "*6", "*8", "*A"):
            session.talk(SET, f"=.id={lane}", "=fec-mode=auto")
    before = {name: link["downs"] for name, link in applied.emulator.state()["links"].items()}
    assert applied.run("-y").code == 0
    after = {name: link["downs"] for name, link in applied.emulator.state()["links"].items()}
    restarted = {name for name in after if after[name] != before[name]}
    assert restarted == {f"qsfp56-dd-1-{lane}" for lane in (1, 3, 5, 7)}
    assert all(after[name] - before[name] == 1 for name in restarted)


def test_the_second_operator_is_reported_who_holds_the_switch(make_desk: MakeDesk) -> None:
    workdir = make_desk(settle=3)
    first = workdir.start("deploy.py", "-y")
    waits_for(lambda: workdir.emulator.state()["safe_mode"]["holder"] is not None, first)
    second = workdir.run("-y")
    assert second.code == 1
    # Its timer may be armed by then, which the plan tells, or not yet.
    (line,) = second.lines("safe mode is held by") or second.lines("holds safe mode")
    assert re.search(
        r"held by sparkrack \(.*\), logged in since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d; nothing was written"
        r"|rollback timer \S+ is armed and sparkrack \(.*\) holds safe mode: a run is in progress",
        line,
    )
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 0, text


def test_no_secret_is_seen_anywhere(whole: Workdir, tmp_path: Path) -> None:
    """The password of the login, the reader's, and both of SNMP: in no output at the highest verbosity, no
    argument of any process, no file of the operator's, no log of the switch."""
    canaries = [(tmp_path / f"secret-{name}").read_text() for name in SECRETS] + [whole.emulator.password]
    seen: set[str] = set()
    done = threading.Event()
    watch = threading.Thread(target=lambda: seen.update(_find_canaries(canaries, done)))
    watch.start()
    texts = [whole.run(*arguments).text for arguments in (("-y", "-vvv", "--debug"), ("--dry", "--diff", "-vvv"))]
    # A run that fails late, with everything it has to say about it.
    whole.emulator.control({"op": "reset"})
    whole.emulator.control({"op": "fault", "on": "write", "after": 30, "kind": "drop"})
    texts.append(whole.run("-y", "-vvv", "--debug").text)
    done.set()
    watch.join()
    assert seen == set()
    assert "stopped at: writing" in texts[-1]
    for text in texts:
        assert not [canary for canary in canaries if canary in text]
    for place in (whole.folder, whole.emulator.folder):
        for path in place.rglob("*"):
            if path.is_file() and not path.is_socket() and path.name != "password":
                data = path.read_bytes()
                assert not [canary for canary in canaries if canary.encode() in data], path


def _find_canaries(canaries: list[str], done: threading.Event) -> Iterator[str]:
    """Canaries in the arguments of any process, looked at again and again."""
    while not done.wait(0.02):
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            yield from (canary for canary in canaries if canary in text)


def test_backups_are_private_and_counted(applied: Workdir) -> None:
    applied.switch["backups"] = 2
    place = applied.folder / "state/sparkrack/spark8/crs812"
    for name in ("one", "two", "three"):
        applied.switch["identity"] = name
        ended = applied.run("-y")
        assert ended.code == 0, ended.text
        assert ended.lines(f"backup kept in {place}")
    kept = sorted(place.iterdir(), key=lambda folder: folder.stat().st_mtime_ns)  # two may be of one second
    assert len(kept) == 3, "the first one, which a removal puts back, and two more"
    assert b"name=one" not in (kept[0] / "export.rsc").read_bytes()
    for folder in kept:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
            "export.rsc": 0o600,
            "rows.json": 0o600,
            "unit.backup": 0o600,
        }
    assert b"name=two" in (kept[-1] / "export.rsc").read_bytes()
    assert applied.emulator.state()["tables"].get("/file", []) == []


def test_what_a_killed_run_left_on_the_flash_goes(workdir: Workdir) -> None:
    with open_session(workdir.emulator) as session:
        ours = [
            f"sparkrack-{word}20261119T101112-0a1b{end}"
            for word in ("", "undo-")
            for end in (".rsc", "-restore.backup")
        ]
        for name in (*ours, "sparkrack-notes.rsc", "sparkrack-undo-notes.rsc"):
            session.talk("/file/add", f"=name={name}", "=contents=x")
    assert workdir.run("-y").code == 0
    with open_session(workdir.emulator) as session:
        assert {row["name"] for row in session.talk("/file/print")} == {
            "sparkrack-notes.rsc",
            "sparkrack-undo-notes.rsc",
        }


def test_no_backup_no_change(workdir: Workdir) -> None:
    workdir.emulator.control({"op": "fault", "kind": "trap", "match": "/file/read", "message": "failure: no memory"})
    ended = workdir.run("-y")
    assert ended.code == 1
    assert "the switch gave no backup: failure: no memory" in ended
    assert workdir.sent(SET) == []
    assert not list((workdir.folder / "state").rglob("rows.json"))


def test_a_run_that_would_shut_itself_out_is_refused(workdir: Workdir) -> None:
    workdir.switch["management"] = ["10.77.0.0/24"]
    ended = workdir.run("-y")
    assert ended.code == 1
    assert "sparkrack is logged in from 127.0.0.1, which is outside of management (10.77.0.0/24)" in ended
    assert workdir.emulator.writes() == 0


def test_a_run_over_a_leg_of_its_own_cage_is_refused(workdir: Workdir) -> None:
    workdir.emulator.control({"op": "learn", "address": "127.0.0.1", "interface": "qsfp56-dd-1-3"})
    ended = workdir.run("-y")
    assert ended.code == 1
    assert "this machine reaches the switch through its port qsfp56-dd-1-3, which the plan takes down" in ended
    assert workdir.emulator.writes() == 0
