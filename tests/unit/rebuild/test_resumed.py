"""A rebuild that is cut off anywhere goes on where it was, and nothing of it is done at the same time twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from sparkrack.rebuild.journal import newest
from tests.tiers import sampled
from tests.unit.rebuild.desk import SECONDS, Desk, until

LEFT = {
    "bootstrap": ["bootstrap nodes", "bootstrap switch", "apply", "status", "reboot", "verify"],
    "apply": ["apply", "status", "reboot", "verify"],
    "status": ["status", "reboot", "verify"],
    "reboot": ["status", "reboot", "verify"],
    "verify": ["verify"],
}
"""What is called by the run after the one that was killed in that verb."""
PHASE = {"bootstrap": "bootstrap", "apply": "apply", "status": "reboot", "reboot": "reboot", "verify": "verify"}


@pytest.mark.parametrize("verb", sampled(LEFT, 2))
def test_killed_in_a_verb(desk: Desk, verb: str) -> None:
    desk.status(spark1=False, spark2=True)
    desk.killed_in(verb, "--all")
    assert (desk.folder / "ended").read_text() == f"{verb} {int(signal.SIGTERM)}\n", "the verb dies with the rebuild"
    before = len(desk.calls)
    done = desk.run("--all")
    assert done.returncode == 0, done.stderr
    assert desk.verbs(before) == LEFT[verb]
    (journal,) = desk.journals
    run = journal.stem
    assert f"goes on with rebuild {run}, which was cut off in phase {PHASE[verb]}" in done.stdout
    (resumed,) = [line for line in desk.lines() if line["event"] == "resumed"]
    assert resumed["phase"] == PHASE[verb]


def test_killed_while_it_waits(desk: Desk) -> None:
    desk.away("spark2")
    started = desk.start("--all")
    until(lambda: bool(desk.journals) and desk.entered() == ["wait"], started)
    started.kill()
    started.communicate(timeout=SECONDS)
    assert desk.calls == []
    desk.back("spark2")
    done = desk.run("--all")
    assert done.returncode == 0, done.stderr
    assert desk.entered() == ["wait", "wait", "bootstrap", "apply", "reboot", "verify"]


def test_killed_in_every_phase_one_after_the_other(desk: Desk) -> None:
    desk.status(spark1=False, spark2=True)
    for verb in ("bootstrap", "apply", "reboot", "verify"):
        desk.killed_in(verb, "--all")
    done = desk.run("--all", "--json")
    told = json.loads(done.stdout)
    assert (told["result"], told["resumed"]) == ("done", "verify")
    assert {phase["phase"]: phase["tries"] for phase in told["phases"]} == {
        "wait": 1,
        **dict.fromkeys(("bootstrap", "apply", "reboot", "verify"), 2),
    }
    assert len(desk.journals) == 1


def test_a_node_is_restarted_once(desk: Desk) -> None:
    desk.status(spark1=True, spark2=True)
    desk.killed_in("verify", "--all")
    assert desk.verbs().count("reboot") == 2
    # It went on from verify; and in the phase itself, who was restarted is not restarted for the same reason again.
    journal = desk.journals[0]
    lines = [line for line in journal.read_text().splitlines() if '"phase": "verify"' not in line]
    kept = [line for line in lines if not ('"left"' in line and '"reboot"' in line)]
    journal.write_text("\n".join(kept) + "\n")
    done = desk.run("--all")
    assert done.returncode == 0, done.stderr
    assert desk.verbs().count("reboot") == 2
    assert "spark1: was restarted already and still asks for it" in done.stdout


def test_a_switch_that_was_begun_with_is_gone_through_again(desk: Desk) -> None:
    desk.killed_in("bootstrap", "--switch")
    desk.works = True
    before = len(desk.calls)
    assert desk.run("--switch").returncode == 0
    assert desk.verbs(before) == ["bootstrap switch", "apply", "verify"]


def test_a_finished_one_is_never_gone_on_with(desk: Desk) -> None:
    assert desk.run("spark2").returncode == 0
    before = len(desk.calls)
    done = desk.run("spark2")
    assert desk.verbs(before) == desk.verbs()[:before]
    assert "goes on" not in done.stdout
    assert len(desk.journals) == 2


def test_fresh_begins_anew(desk: Desk) -> None:
    desk.killed_in("apply", "spark2")
    before = len(desk.calls)
    assert desk.run("spark2", "--fresh").returncode == 0
    assert desk.verbs(before)[0] == "bootstrap nodes"
    assert len(desk.journals) == 2


def test_another_request_begins_anew_and_says_so(desk: Desk) -> None:
    desk.killed_in("apply", "spark2")
    before = len(desk.calls)
    done = desk.run("--all")
    assert "an earlier rebuild (spark2) was not finished; this is another one, and begins anew" in done.stdout
    assert desk.verbs(before)[:2] == ["bootstrap nodes", "bootstrap switch"]
    before = len(desk.calls)
    done = desk.run("spark2")
    assert "goes on" not in done.stdout, "things have moved since"
    assert desk.verbs(before)[0] == "bootstrap nodes"


def test_the_newest_of_one_second_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    for number, name in enumerate(("bbbbbbbb", "aaaaaaaa")):
        path = tmp_path / f"20261122T074500-{name}.ndjson"
        path.write_text("")
        os.utime(path, ns=(number, number))
    found = newest(tmp_path)
    assert found
    assert found[0].stem.endswith("aaaaaaaa")


def test_the_same_request_with_another_option_goes_on(desk: Desk) -> None:
    desk.killed_in("bootstrap", "spark2")
    done = desk.run("spark2", "--replace-host-key")
    assert "goes on" in done.stdout
    assert "--replace-host-key" in desk.calls[-6]


@pytest.mark.parametrize("tail", sampled([b'{"run": "x", "at"', b"\xff\xfe", b'{"event": "left"'], 2))
def test_a_torn_last_line_is_left_out(desk: Desk, tail: bytes) -> None:
    desk.killed_in("apply", "--all")
    with desk.journals[0].open("ab") as file:
        file.write(tail)
    done = desk.run("--all")
    assert done.returncode == 0, done.stderr
    assert "goes on" in done.stdout
    assert [line["event"] for line in desk.lines()][-1] == "ended", "every line is whole again"


@pytest.mark.parametrize("line", sampled([b"not of ours\n", b'{"event": "left"}\n', b"\n", b"\xff\n"], 2))
def test_a_journal_with_a_foreign_line_is_not_trusted(desk: Desk, line: bytes) -> None:
    desk.killed_in("apply", "--all")
    kept = desk.journals[0].read_bytes() + line
    desk.journals[0].write_bytes(kept)
    done = desk.run("--all")
    assert done.returncode == 0, done.stderr
    assert f"{desk.journals[0]}: is no journal that can be gone on with; beginning anew" in done.stdout
    assert desk.journals[0].read_bytes() == kept
    assert len(desk.journals) == 2


def test_a_second_one_is_refused_by_name(desk: Desk) -> None:
    with desk.blocked_in("apply", "--all") as first:
        done = desk.run("spark2")
        assert done.returncode == 1
        assert f"(rebuild of the whole rack) (process {first.pid}) rebuilds this rack; nothing was begun" in done.stderr
        assert len(desk.journals) == 1


def test_a_verb_that_outlives_its_rebuild_is_waited_for(desk: Desk) -> None:
    with desk.blocked_in("apply", "--all", slow=True) as first:
        first.kill()
        first.wait(SECONDS)
        until((desk.folder / "ending").exists)
        done = desk.run("--all", "--patience", "0")
        assert done.returncode == 1
        assert "has not ended within 0 s; nothing was begun" in done.stderr
        (desk.folder / "verbs/apply").write_text("{}")
        second = desk.start("--all")
        assert second.stdout is not None
        assert "was killed, and what it called still ends its step; waiting for that" in second.stdout.readline()
        assert desk.verbs().count("apply") == 1
        (desk.folder / "let go").touch()
        said, complained = second.communicate(timeout=SECONDS)
        assert second.returncode == 0, complained
        assert "goes on" in said


def test_ctrl_c_lets_the_verb_end_and_then_ends(desk: Desk) -> None:
    with desk.blocked_in("apply", "--all", slow=True) as first:
        # As a terminal does to all of its foreground; the SIGTERM after it tells when the rebuild has taken its SIGINT.
        os.kill(int((desk.folder / "blocked").read_text()), signal.SIGINT)
        until((desk.folder / "ending").exists, first)
        first.send_signal(signal.SIGINT)
        first.send_signal(signal.SIGTERM)
        got = desk.folder / "signals"
        until(lambda: str(int(signal.SIGTERM)) in got.read_text().split(), first)
        (desk.folder / "let go").touch()
        said, _ = first.communicate(timeout=SECONDS)
        assert first.returncode == 1
    assert got.read_text().split() == ["2", "15"], "a second SIGINT would cut it off"
    assert "[3/5] apply: cut off" in said
    assert "cut off; to go on: sparkrack rebuild --all" in said
    assert desk.lines()[-1]["result"] == "cut off"
    assert "goes on" in desk.run("--all").stdout


def test_sigterm_is_handed_on(desk: Desk) -> None:
    with desk.blocked_in("apply", "--all") as first:
        first.terminate()
        first.communicate(timeout=SECONDS)
        assert first.returncode == 1
    assert (desk.folder / "ended").read_text() == f"apply {int(signal.SIGTERM)}\n"


def test_nothing_of_it_is_for_others(desk: Desk) -> None:
    assert desk.run("--all").returncode == 0
    folder = desk.journals[0].parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
