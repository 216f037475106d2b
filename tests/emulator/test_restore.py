"""A kept backup is put back through the same transaction as a deploy, or not at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from switch.transaction import Say
from tests.emulator.fork_server import ForkedProgram
from tests.emulator.restore_fixtures import NAME, READER, SECRETS, MakeRestorer, Restorer
from tests.emulator.switch_runs import waits_for
from tests.tiers import sampled
from tests.unit.cli.cli_fixtures import settings
from tests.unit.cli.terminal import ERASED, on_terminal
from tests.unit.cli.test_reboot import SSH
from tests.unit.roles.watch_tools import AMTOOL, silenced


def _list_interface_writes(restorer: Restorer) -> list[str]:
    """What was written to interfaces since the start."""
    lines = [line for line in restorer.emulator.log() if line.get("command") == "/interface/ethernet/set"]
    return [" ".join(line["words"]) for line in lines]


def test_what_was_spoilt_by_hand_comes_back_and_a_second_time_nothing_is_written(restorer: Restorer) -> None:
    before = restorer.reading()
    restorer.spoil()
    assert len(restorer.differs(restorer.reading(), before)) >= 15
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    assert restorer.differs(restorer.reading(), before) == []
    assert "crs812: the switch is as in the backup" in ended.text
    assert "cage qsfp56-dd-1, 2x200G copper -> 4x100G copper: restarts cage qsfp56-dd-1 (spark1, spark2" in ended.text
    assert "restarts cage qsfp56-dd-2 (spark5, spark6, spark7, spark8)" in ended.text
    assert "bounces all 34 ports" in ended.text
    assert restorer.emulator.state()["safe_mode"]["holder"] is None
    tables = restorer.emulator.state()["tables"]
    assert not tables["/system/scheduler"]
    assert not tables["/system/script"]
    written = restorer.emulator.writes()
    again = restorer.restore(NAME, "-y")
    assert again.code == 0, again.text
    assert "nothing to do" in again.text
    assert restorer.emulator.writes() == written


def test_alerts_of_the_switch_and_of_the_links_to_it_are_silent(
    restorer: Restorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made at the server of the watch, spark5, before the first write. The nodes are folders."""
    nodes = tmp_path / "nodes"
    (nodes / "bin").mkdir(parents=True)
    for name, text in {"ssh": SSH, "bin/amtool": AMTOOL}.items():
        (nodes / name).write_text(text)
        (nodes / name).chmod(0o755)
    (nodes / "spark5/run").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{nodes}:{os.environ['PATH']}")
    monkeypatch.setenv("NODES", str(nodes))
    file = restorer.folder / "rack.yaml"
    declared = file.read_text()
    file.write_text(f"{declared}watch: {{server: spark5}}\n")
    assert "nothing to do" in restorer.restore(NAME, "-y").text
    assert not (nodes / "silenced").exists(), "nothing is silent for a restore that writes nothing"
    restorer.write("/system/identity", name="somebody-else")
    ended = restorer.restore(NAME, "-y")
    file.write_text(declared)
    assert ended.code == 0, ended.text
    assert "not silenced" not in ended.text
    made = silenced(nodes)
    assert made[0] == 'restore of crs812: switch=~"crs812"'
    assert len({line for line in made if "Link.+" in line}) == 8
    assert made[-1].startswith("expire ")


def test_all_ports_bounce_once(restorer: Restorer) -> None:
    restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-1-1", l2mtu="9216")
    restorer.write("/interface/ethernet", "?default-name=sfp56-4", l2mtu="9400", mtu="1400")
    sets = len(_list_interface_writes(restorer))
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    sent = _list_interface_writes(restorer)[sets:]
    assert ["l2mtu" in words for words in sent] == [True, True]


def test_the_reader_has_its_password_again(restorer: Restorer) -> None:
    restorer.remove("/user", "?name=sparkrack-reader")
    assert restorer.restore(NAME, "-y").code == 0
    (row,) = [row for row in restorer.emulator.state()["tables"]["/user"] if row["name"] == "sparkrack-reader"]
    assert row["group"] == "sparkrack-reader"
    sent = [line["words"] for line in restorer.emulator.log() if line.get("command") == "/user/add"]
    assert any(word.startswith("=password=") for word in sent[-1])


def test_no_secret_is_shown_or_kept(restorer: Restorer) -> None:
    restorer.spoil()
    ended = restorer.restore(NAME, "-y")
    assert ended.code == 0, ended.text
    kept = [path for path in (restorer.folder / "state").rglob("*") if path.is_file()]
    assert len([path for path in kept if path.is_relative_to(restorer.backups)]) >= 6
    assert {".ndjson", ".log"} <= {path.suffix for path in kept}, "the journal and the debug log"
    for secret in (restorer.emulator.password, READER, *SECRETS.values(), "let-me-in-again"):
        assert secret not in ended.text
        assert [path for path in kept if secret.encode() in path.read_bytes()] == []
    assert "password (environment variable TEST_READER_PASSWORD)" in ended.text


def test_a_dry_run_writes_nothing_and_says_that_there_is_something(restorer: Restorer) -> None:
    restorer.spoil()
    written = restorer.emulator.writes()
    ended = restorer.restore(NAME, "--dry")
    assert ended.code == 2, ended.text
    assert "~ /system/identity: name somebody-else -> crs812" in ended.text
    assert "- /user mallory" in ended.text
    assert restorer.emulator.writes() == written
    assert len(list(restorer.backups.iterdir())) == 1


def test_a_factory_switch_is_a_factory_switch_again(make_restorer: MakeRestorer) -> None:
    restorer = make_restorer()
    restorer.keep()
    before = restorer.reading()
    restorer.deploy()
    ended = restorer.restore("--last", "-y")
    assert ended.code == 0, ended.text
    assert restorer.differs(restorer.reading(), before) == []
    lane = next(
        row for row in restorer.emulator.state()["tables"]["/interface/ethernet"] if row["name"].endswith("dd-1-1")
    )
    assert lane["auto-negotiation"] == "true"
    assert restorer.restore("--last", "--dry").code == 0, "a speed that is ignored is not a difference"
    assert "in rack.yaml: its links are not waited for" in ended.text


def test_the_last_is_the_last_of_a_deploy_also_after_a_restore(restorer: Restorer) -> None:
    restorer.write("/system/identity", name="spoilt")
    assert restorer.restore("--last", "-y").code == 0
    kept = sorted(path.name for path in restorer.backups.iterdir())
    assert len(kept) == 2
    assert kept[1].endswith("-restore")
    again = restorer.restore("--last", "-y")
    assert "nothing to do" in again.text
    # What was there before the restore can be had back, too.
    assert restorer.restore(kept[1], "-y").code == 0
    assert restorer.emulator.state()["tables"]["/system/identity"][0]["name"] == "spoilt"


def test_the_list_names_each_with_its_unit(restorer: Restorer) -> None:
    ended = restorer.restore("--list")
    assert ended.code == 0
    assert ended.stdout.split() == [NAME, "RouterOS", "7.24.6", "CRS812-8DS-2DQ-2DDQ", "HK70AB12CD3"]


def test_without_a_terminal_nothing_is_written_unasked(restorer: Restorer) -> None:
    restorer.write("/system/identity", name="spoilt")
    ended = restorer.restore(NAME)
    assert ended.code == 1
    assert "there is no terminal for a prompt" in ended.stderr
    assert restorer.emulator.state()["tables"]["/system/identity"][0]["name"] == "spoilt"


def test_a_leg_that_does_not_come_up_undoes_it_unless_reported_not_to_wait(restorer: Restorer) -> None:
    restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-2-3", fec_mode="off")
    before = restorer.reading()
    restorer.emulator.control({"op": "cable", "do": "pull", "cage": "qsfp56-dd-2", "lane": 5})
    ended = restorer.restore(NAME, "-y", "--settle", "1")
    assert ended.code == 1
    assert "leg crs812/qsfp56-dd-2-5 (lanes 5-6, to spark7/1) is no-link" in ended.stderr
    assert "looked again: the switch is as it was before the run" in ended.stderr
    assert restorer.differs(restorer.reading(), before) == []
    assert restorer.restore(NAME, "-y", "--no-wait").code == 0


def test_a_terminal_shows_the_step_of_the_switch(restorer: Restorer) -> None:
    restorer.write("/interface/ethernet", "?default-name=qsfp56-dd-2-3", fec_mode="off")
    restorer.emulator.control({"op": "settle", "seconds": 3})
    environment = settings(restorer.folder, CRS812_PASSWORD=restorer.emulator.password)
    with on_terminal(restorer.words(NAME, "-y", "--settle", "30"), environment) as screen:
        screen.until(r"restore the switch, \d+ s: 0 of 1 hosts done\x1b")
        screen.until("crs812  waiting for links after ")
        screen.until_later("restore the switch")
        assert screen.finish() == 0, screen.shown
    phases = ("read the switch, ", "take the lock of the rack, ", "restore the switch, ")
    assert sorted(phases, key=screen.shown.index) == list(phases)
    assert f"{ERASED}crs812: spark1, which stores the lock of the rack, is unreachable: " in screen.shown
    assert screen.shown.rindex(ERASED) > screen.shown.rindex("restore the switch")
    assert screen.out.endswith("crs812: the switch is as in the backup\n")
    assert "restore the switch" not in screen.out


def test_killed_in_the_middle(make_restorer: MakeRestorer) -> None:
    restorer = make_restorer()
    restorer.deploy()
    restorer.keep()
    restorer.spoil()
    before = restorer.reading()
    restorer.emulator.control({"op": "settle", "seconds": 20})
    sets = len(_list_interface_writes(restorer))
    process = ForkedProgram(
        "sparkrack",
        ["switch", "restore", NAME, "-y", "--no-nodes", "--no-lock"],
        cwd=restorer.folder,
        env=os.environ | {"RACK": "rack.yaml", "XDG_STATE_HOME": str(restorer.folder / "state")},
    )
    waits_for(
        lambda: (
            len([line for line in restorer.emulator.log() if line.get("command") == "/interface/ethernet/set"]) > sets
        ),
        process,
    )
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    waits_for(lambda: restorer.emulator.state()["safe_mode"]["holder"] is None)
    assert restorer.differs(restorer.reading(), before) == []


STRIDE = 4


@pytest.mark.parametrize("first", sampled(range(STRIDE), STRIDE))
def test_a_connection_that_drops_at_any_write_leaves_the_old_state(make_restorer: MakeRestorer, first: int) -> None:
    restorer = make_restorer(settle=0.0)
    restorer.deploy()
    restorer.keep()
    new = restorer.reading()
    restorer.spoil()
    old = restorer.reading()
    restorer.operator.timeout = 0.5
    for number in count(first, STRIDE):
        steps = count()

        def break_it(step: object, steps: Iterator[int] = steps, number: int = number) -> None:
            if isinstance(step, Say) and not step.sentence[0].startswith("/safe-mode") and next(steps) == number:
                fault = {"kind": "drop", "match": step.sentence[0], "executed": number // STRIDE % 2 == 1}
                restorer.emulator.control({"op": "fault", **fault})

        ended, _ = restorer.operator.run(restorer.goal(), break_it, fuse=20)
        if ended.done:
            break
        assert "the switch is as it was before the run" in ended.text, number
        assert restorer.differs(restorer.reading(), old) == [], number
    assert number >= 30
    assert restorer.differs(restorer.reading(), new) == []
