"""A rebuild that is interrupted anywhere resumes there, and nothing of it is done twice at the same time."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from core.ops.run_lock import new_holder
from sparkrack.rebuild.journal import newest
from sparkrack.rebuild.process_lock import LOCK, BusyError, exclusive
from tests.tiers import sampled
from tests.unit.rebuild.rebuild_folder import SECONDS, Workdir, until

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
def test_killed_in_a_verb(workdir: Workdir, verb: str) -> None:
    workdir.status(spark1=False, spark2=True)
    workdir.killed_in(verb, "--all")
    assert (workdir.folder / "ended").read_text() == f"{verb} {int(signal.SIGTERM)}\n", "the verb dies with the rebuild"
    before = len(workdir.calls)
    done = workdir.run("--all")
    assert done.returncode == 0, done.stderr
    assert workdir.verbs(before) == LEFT[verb]
    (journal,) = workdir.journals
    run = journal.stem
    assert f"resuming rebuild {run}, interrupted in phase {PHASE[verb]}" in done.stdout
    (resumed,) = [line for line in workdir.lines() if line["event"] == "resumed"]
    assert resumed["phase"] == PHASE[verb]


def test_killed_while_it_waits(workdir: Workdir) -> None:
    workdir.away("spark2")
    started = workdir.start("--all")
    until(lambda: bool(workdir.journals) and workdir.entered() == ["wait"], started)
    started.kill()
    started.communicate(timeout=SECONDS)
    assert workdir.calls == []
    workdir.back("spark2")
    done = workdir.run("--all")
    assert done.returncode == 0, done.stderr
    assert workdir.entered() == ["wait", "wait", "bootstrap", "apply", "reboot", "verify"]


def test_killed_in_every_phase_one_after_the_other(workdir: Workdir) -> None:
    workdir.status(spark1=False, spark2=True)
    for verb in ("bootstrap", "apply", "reboot", "verify"):
        workdir.killed_in(verb, "--all")
    done = workdir.run("--all", "--json")
    printed = json.loads(done.stdout)
    assert (printed["result"], printed["resumed"]) == ("done", "verify")
    assert {phase["phase"]: phase["tries"] for phase in printed["phases"]} == {
        "wait": 1,
        **dict.fromkeys(("bootstrap", "apply", "reboot", "verify"), 2),
    }
    assert len(workdir.journals) == 1


def test_a_node_is_restarted_once(workdir: Workdir) -> None:
    workdir.status(spark1=True, spark2=True)
    workdir.killed_in("verify", "--all")
    assert workdir.verbs().count("reboot") == 2
    # It went on from verify; and in the phase itself, who was restarted is not restarted for the same reason again.
    journal = workdir.journals[0]
    lines = [line for line in journal.read_text().splitlines() if '"phase": "verify"' not in line]
    kept = [line for line in lines if not ('"left"' in line and '"reboot"' in line)]
    journal.write_text("\n".join(kept) + "\n")
    done = workdir.run("--all")
    assert done.returncode == 0, done.stderr
    assert workdir.verbs().count("reboot") == 2
    assert "spark1: was restarted already and still asks for it" in done.stdout


def test_a_switch_that_was_begun_with_is_gone_through_again(workdir: Workdir) -> None:
    workdir.killed_in("bootstrap", "--switch")
    workdir.works = True
    before = len(workdir.calls)
    assert workdir.run("--switch").returncode == 0
    assert workdir.verbs(before) == ["bootstrap switch", "apply", "verify"]


def test_a_finished_one_is_never_gone_on_with(workdir: Workdir) -> None:
    assert workdir.run("spark2").returncode == 0
    before = len(workdir.calls)
    done = workdir.run("spark2")
    assert workdir.verbs(before) == workdir.verbs()[:before]
    assert "resuming rebuild" not in done.stdout
    assert len(workdir.journals) == 2


def test_fresh_begins_again(workdir: Workdir) -> None:
    workdir.killed_in("apply", "spark2")
    before = len(workdir.calls)
    assert workdir.run("spark2", "--fresh").returncode == 0
    assert workdir.verbs(before)[0] == "bootstrap nodes"
    assert len(workdir.journals) == 2


def test_another_request_begins_again_and_says_so(workdir: Workdir) -> None:
    workdir.killed_in("apply", "spark2")
    before = len(workdir.calls)
    done = workdir.run("--all")
    assert "an earlier rebuild (spark2) was not finished; this is another one and starts over" in done.stdout
    assert workdir.verbs(before)[:2] == ["bootstrap nodes", "bootstrap switch"]
    before = len(workdir.calls)
    done = workdir.run("spark2")
    assert "resuming rebuild" not in done.stdout, "things have moved since"
    assert workdir.verbs(before)[0] == "bootstrap nodes"


def test_the_newest_of_one_second_is_the_one_that_was_written_last(tmp_path: Path) -> None:
    for number, name in enumerate(("bbbbbbbb", "aaaaaaaa")):
        path = tmp_path / f"20261122T074500-{name}.ndjson"
        path.write_text("")
        os.utime(path, ns=(number, number))
    found = newest(tmp_path)
    assert found
    assert found[0].stem.endswith("aaaaaaaa")


def test_the_same_request_with_another_option_goes_on(workdir: Workdir) -> None:
    workdir.killed_in("bootstrap", "spark2")
    done = workdir.run("spark2", "--replace-host-key")
    assert "resuming rebuild" in done.stdout
    assert "--replace-host-key" in workdir.calls[-6]


@pytest.mark.parametrize("tail", sampled([b'{"run": "x", "at"', b"\xff\xfe", b'{"event": "left"'], 2))
def test_a_torn_last_line_is_left_out(workdir: Workdir, tail: bytes) -> None:
    workdir.killed_in("apply", "--all")
    with workdir.journals[0].open("ab") as file:
        file.write(tail)
    done = workdir.run("--all")
    assert done.returncode == 0, done.stderr
    assert "resuming rebuild" in done.stdout
    assert [line["event"] for line in workdir.lines()][-1] == "ended", "every line is whole again"


@pytest.mark.parametrize("line", sampled([b"not of ours\n", b'{"event": "left"}\n', b"\n", b"\xff\n"], 2))
def test_a_journal_with_a_foreign_line_is_not_trusted(workdir: Workdir, line: bytes) -> None:
    workdir.killed_in("apply", "--all")
    kept = workdir.journals[0].read_bytes() + line
    workdir.journals[0].write_bytes(kept)
    done = workdir.run("--all")
    assert done.returncode == 0, done.stderr
    assert f"{workdir.journals[0]}: is not a journal that can be resumed; starting over" in done.stdout
    assert workdir.journals[0].read_bytes() == kept
    assert len(workdir.journals) == 2


def test_a_second_one_is_refused_by_name(workdir: Workdir) -> None:
    with workdir.blocked_in("apply", "--all") as first:
        done = workdir.run("spark2")
        assert done.returncode == 1
        assert (
            f"(rebuild of the whole rack) (process {first.pid}) rebuilds this rack; nothing was started" in done.stderr
        )
        assert len(workdir.journals) == 1


def test_a_verb_that_outlives_its_rebuild_is_waited_for(workdir: Workdir) -> None:
    with workdir.blocked_in("apply", "--all", slow=True) as first:
        first.kill()
        first.wait(SECONDS)
        until((workdir.folder / "ending").exists)
        done = workdir.run("--all", "--timeout", "0")
        assert done.returncode == 1
        assert "has not ended within 0 s; nothing was started" in done.stderr
        (workdir.folder / "verbs/apply").write_text("{}")
        second = workdir.start("--all")
        assert second.stdout is not None
        assert "was killed, and its command is still completing a step; waiting for it" in second.stdout.readline()
        assert workdir.verbs().count("apply") == 1
        (workdir.folder / "let go").touch()
        reported, complained = second.communicate(timeout=SECONDS)
        assert second.returncode == 0, complained
        assert "resuming rebuild" in reported


def test_a_lock_that_is_released_in_time_is_taken(tmp_path: Path) -> None:
    """The process that took it is gone, and a command that inherited it ends while the next rebuild waits."""
    own = new_holder("rebuild of spark2")
    command = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(command, fcntl.LOCK_EX)
    os.write(command, json.dumps({"pid": os.getpid(), "born": "long ago", "is": "run 1"}).encode())
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        os.close(command)

    with exclusive(tmp_path, own, SECONDS, say):
        assert json.loads((tmp_path / LOCK).read_text())["is"] == str(own)
    assert said == ["run 1 was killed, and its command is still completing a step; waiting for it"]


def test_a_lock_whose_holder_cannot_be_read_is_not_taken(tmp_path: Path) -> None:
    """The file is empty until the one that took the lock has written who it is."""
    other = os.open(tmp_path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(other, fcntl.LOCK_EX)
    try:
        with (
            pytest.raises(BusyError, match=r"an unknown run \(process 0\) rebuilds this rack; nothing was started"),
            exclusive(tmp_path, new_holder("rebuild of spark2"), SECONDS, pytest.fail),
        ):
            pass
    finally:
        os.close(other)


def test_ctrl_c_lets_the_verb_end_and_then_ends(workdir: Workdir) -> None:
    with workdir.blocked_in("apply", "--all", slow=True) as first:
        # As a terminal does to all of its foreground; the SIGTERM after it tells when the rebuild has taken its SIGINT.
        os.kill(int((workdir.folder / "blocked").read_text()), signal.SIGINT)
        until((workdir.folder / "ending").exists, first)
        first.send_signal(signal.SIGINT)
        first.send_signal(signal.SIGTERM)
        got = workdir.folder / "signals"
        until(lambda: str(int(signal.SIGTERM)) in got.read_text().split(), first)
        (workdir.folder / "let go").touch()
        reported, complained = first.communicate(timeout=SECONDS)
        assert first.returncode == 1
    assert got.read_text().split() == ["2", "15"], "a second SIGINT would cut it off"
    assert "[3/5] apply: interrupted" in reported
    assert "Next, to resume: sparkrack rebuild --all" in complained
    assert workdir.lines()[-1]["result"] == "interrupted"
    assert "resuming rebuild" in workdir.run("--all").stdout


def test_sigterm_is_handed_on(workdir: Workdir) -> None:
    with workdir.blocked_in("apply", "--all") as first:
        first.terminate()
        first.communicate(timeout=SECONDS)
        assert first.returncode == 1
    assert (workdir.folder / "ended").read_text() == f"apply {int(signal.SIGTERM)}\n"


def test_nothing_of_it_is_for_others(workdir: Workdir) -> None:
    assert workdir.run("--all").returncode == 0
    folder = workdir.journals[0].parent
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
