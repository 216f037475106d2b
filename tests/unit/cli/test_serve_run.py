"""`sparkrack serve start|stop|restart|recreate`, with nodes that are shells of this machine."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from sparkrack.engine import subcommands
from tests.tiers import crossed
from tests.unit.cli.cli_fixtures import settings
from tests.unit.cli.serve_rack import ServeRack, answer
from tests.unit.cli.terminal import on_terminal
from tests.unit.model.serving_racks import unit
from tests.unit.roles.watch_tools import AMTOOL, silenced

DOWN = answer("down", desired_state="down")
READY = answer("down", "gating", "starting", "ready", figures={"gates_s": 10.0, "completion_s": 0.8})


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeRack:
    monkeypatch.delenv(subcommands.WITHIN, raising=False)
    return ServeRack(tmp_path, monkeypatch)


def test_each_phase_is_printed_once_with_its_seconds(rack: ServeRack) -> None:
    gating, starting = answer("down", "gating"), answer("down", "gating", "starting")
    rack.answers(DOWN, gating, gating, starting, READY)
    done = rack.run("start", "qwen")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "unit qwen is asked to go up",
        "qwen: gating: reason 1 (down took 10.0 s)",
        "qwen: starting: reason 2 (gating took 10.0 s)",
        "qwen: ready: reason 3 (starting took 10.0 s)",
        "qwen: ready, generation 7; the latest completion took 0.8 s",
    ]
    assert "Next: sparkrack serve status qwen --rack" in done.stderr
    assert rack.asked() == ["qwen up"]
    assert not rack.lock.exists()


@pytest.mark.parametrize("noun", ["embedding", "ranking"])
def test_a_unit_that_pools_says_what_its_latest_answer_took(rack: ServeRack, noun: str) -> None:
    rack.answers(DOWN, answer("down", "ready", figures={"gates_s": 10.0, f"{noun}_s": 0.2}))
    done = rack.run("start", "qwen")
    assert done.stdout.splitlines()[-1] == f"qwen: ready, generation 7; the latest {noun} took 0.2 s"


def test_a_unit_that_serves_already_is_a_success(rack: ServeRack) -> None:
    busy = answer("ready", "busy")
    rack.answers(busy)
    done = rack.run("start", "qwen")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "unit qwen is asked to go up",
        "qwen: busy, generation 7; its counters rise",
    ]


def test_failed_gates_are_a_line_for_each_node(rack: ServeRack) -> None:
    gates = {"n0": "12 GiB are available\x1b[2J, 103 GiB are needed", "n1": "the image differs"}
    rack.answers(DOWN, answer("down", "gating", "held", failed_gates=gates))
    done = rack.run("start", "qwen")
    assert done.exit_code == 1
    assert "qwen: held (gating took 10.0 s)" in done.stdout
    lines = done.stderr.splitlines()
    at = lines.index("n0: 12 GiB are available\\x1b[2J, 103 GiB are needed")
    assert lines[at + 1 : at + 3] == ["n1: the image differs", "qwen: not started: a gate failed"]
    assert lines[-1].startswith("Next, when this is fixed: sparkrack serve start qwen")


def test_a_start_that_fails_later_names_the_reason_and_the_logs(rack: ServeRack) -> None:
    rack.answers(DOWN, answer("down", "gating", "starting", "stopping", "held"))
    done = rack.run("start", "qwen")
    assert done.exit_code == 1
    assert "qwen: held: reason 4" in done.stderr.splitlines()
    assert "Next: sparkrack serve logs qwen" in done.stderr


def test_the_end_of_the_time_of_a_restart_names_the_state_and_not_the_stop(rack: ServeRack) -> None:
    rack.answers(answer("ready"), DOWN, DOWN, answer("down", "gating"))
    done = rack.run("restart", "qwen", "--timeout", "1")
    assert done.exit_code == 1
    assert "qwen: not ready within 1 s: unit qwen is gating, and its coordinator continues" in done.stderr
    assert "Next: sparkrack serve status qwen" in done.stderr


def test_the_end_of_the_time_leaves_the_unit_as_it_is(rack: ServeRack) -> None:
    rack.answers(DOWN, answer("down", "gating", "starting"))
    done = rack.run("start", "qwen", "--timeout", "1")
    assert done.exit_code == 1
    assert "qwen: not ready within 1 s: unit qwen is starting, and its coordinator continues" in done.stderr
    assert "Next: sparkrack serve status qwen" in done.stderr
    assert rack.asked() == ["qwen up"]
    assert not rack.lock.exists()


def test_a_refusal_is_the_sentence_of_the_coordinator(rack: ServeRack) -> None:
    rack.answers(DOWN)
    rack.fail("refusal", "n1 ended without a clean shutdown; reboot n1, or use --anyway")
    done = rack.run("start", "qwen")
    assert done.exit_code == 1
    assert "Error: n0: n1 ended without a clean shutdown; reboot n1, or use --anyway\n" in done.stderr
    (rack.folder / "n0/refusal").unlink()
    rack.answers(DOWN, READY)
    assert rack.run("start", "qwen", "--anyway").exit_code == 0
    assert rack.asked() == ["qwen up", "qwen up --anyway"]


def test_stop_waits_until_every_rank_is_stopped(rack: ServeRack) -> None:
    stopping = answer("ready", "stopping", desired_state="down", unconfirmed=["n1"])
    rack.answers(answer("ready"), stopping, stopping, answer("ready", "stopping", "down", desired_state="down"))
    done = rack.run("stop", "qwen")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "unit qwen is asked to go down",
        "qwen: stopping: reason 1 (ready took 10.0 s)",
        "qwen: down: reason 2 (stopping took 10.0 s)",
        "qwen: down, every rank is stopped",
    ]
    assert rack.asked() == ["qwen down"]


@pytest.mark.parametrize("verb", ["start", "stop", "restart"])
def test_a_unit_that_is_stopped_on_purpose_is_silent_for_that_long(rack: ServeRack, verb: str) -> None:
    """Until when a unit that starts may take is in its metrics."""
    rack.declare({"qwen": unit()}, watch={"server": "n2"})
    rack.program("bin/amtool", AMTOOL)
    down, ready = (
        answer("ready", "stopping", "down", desired_state="down"),
        answer("stopping", "down", "gating", "ready"),
    )
    rack.answers(
        *((answer("down", desired_state="down"), ready) if verb == "start" else (answer("ready"), down, down, ready))
    )
    done = rack.run(verb, "qwen")
    assert done.exit_code == 0, done.output
    silence = f'{verb} of unit qwen: unit=~"qwen"'
    assert silenced(rack.folder) == ([] if verb == "start" else [silence, silence, "expire id-of-a-silence"])


def test_a_rank_that_is_not_confirmed_is_named(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkrack.serving.unit_run._stop_seconds", lambda _: 1)
    left = "left of the rank: 4112 vllm (D)"
    ranks = [
        {"rank": 0, "node": "n0", "state": "idle", "age_s": 0.1, "detail": "the coordinator ordered it"},
        {"rank": 1, "node": "n1", "state": "stopping", "age_s": 0.1, "detail": left},
    ]
    rack.answers(answer("ready"), answer("ready", "stopping", desired_state="down", unconfirmed=["n1"], ranks=ranks))
    done = rack.run("stop", "qwen")
    assert done.exit_code == 1
    assert f"n1: {left}" in done.stderr
    assert "the coordinator ordered it" not in done.stderr
    assert "every rank is stopped" not in done.output
    assert "qwen: not down within 1 s: n1 is not confirmed as stopped; the coordinator continues" in done.stderr


def test_restart_stops_first_and_then_starts(rack: ServeRack) -> None:
    down = answer("ready", "stopping", "down", desired_state="down")
    rack.answers(answer("ready"), down, down, answer("stopping", "down", "gating", "starting", "ready"))
    done = rack.run("restart", "qwen")
    assert done.exit_code == 0, done.output
    assert rack.asked() == ["qwen down", "qwen up"]


def test_restart_starts_nothing_that_is_not_stopped(rack: ServeRack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkrack.serving.unit_run._stop_seconds", lambda _: 1)
    rack.answers(answer("ready"), answer("ready", "stopping", desired_state="down"))
    assert rack.run("restart", "qwen", "--timeout", "1").exit_code == 1
    assert rack.asked() == ["qwen down"]


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "recreate"])
def test_not_while_another_run_changes_the_rack(rack: ServeRack, verb: str) -> None:
    rack.answers(DOWN)
    rack.lock.parent.mkdir()
    rack.lock.write_text("{}")
    done = rack.run(verb, "qwen")
    assert done.exit_code == 1
    assert "; if that run is dead: sparkrack unlock unknown" in done.output
    assert rack.asked() == []
    assert rack.lock.read_text() == "{}"


@pytest.mark.parametrize("verb", ["start", "stop", "restart", "recreate", "status", "logs"])
def test_an_unknown_unit_is_refused_before_any_connection(rack: ServeRack, verb: str) -> None:
    rack.program("bin/ssh", '#!/bin/sh\ntouch "$NODES/connected"\n')
    done = rack.run(verb, "qwem")
    assert done.exit_code == 1
    assert f"Error: {rack.file} has no unit qwem; its units are qwen; did you mean qwen?\n" in done.stderr
    assert not (rack.folder / "connected").exists()
    assert not (rack.folder / "state").exists()


FAULTS = {
    "no files": ("absent", "n0: has no files of unit qwen; run `sparkrack apply`"),
    "head off": ("off", "the lock of the rack cannot be taken: ssh: connect: No route to host"),
    "no coordinator": (
        "serve-coordinator: the coordinator of unit qwen does not answer at 10.0.0.1:29400: Connection refused",
        "Connection refused; see `systemctl status sparkrack-serve-qwen-coordinator.service` there",
    ),
    "traceback": (
        "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'serve_unit'",
        "n0: ModuleNotFoundError: No module named 'serve_unit'; see `systemctl status",
    ),
}


@pytest.mark.parametrize(("case", "verb"), crossed(FAULTS, ("start", "stop")))
def test_a_fault_of_the_coordinator_is_one_line(rack: ServeRack, case: str, verb: str) -> None:
    kind, expected = FAULTS[case]
    rack.answers(DOWN)
    if kind == "off":
        rack.off("n0")
    elif kind == "absent":
        (rack.folder / "n0/etc/sparkrack/serve/qwen.json").unlink()
    else:
        rack.fail("fault", kind)
    done = rack.run(verb, "qwen")
    assert done.exit_code == 1
    assert expected in done.stderr
    assert "Traceback" not in done.output
    assert rack.asked() == []
    assert not rack.lock.exists()


GARBAGE = {
    "no JSON": "what is this \x1b[2J",
    "empty": "",
    "a list": "[]",
    "another state": json.dumps(answer("sleeping")),
    "no number": json.dumps(answer("ready", since="yesterday")),
    "not a number": json.dumps(answer("ready", clock=float("nan"))),
    "another unit": json.dumps(answer("ready", name="other")),
}


@pytest.mark.parametrize("case", GARBAGE)
def test_an_answer_that_is_garbage_starts_nothing(rack: ServeRack, case: str) -> None:
    rack.answers(GARBAGE[case])
    done = rack.run("start", "qwen")
    assert done.exit_code == 1
    assert "Error: n0: the " in done.stderr
    assert "\x1b" not in done.output
    assert rack.asked() == []


def test_a_coordinator_that_is_lost_during_the_wait_ends_it(rack: ServeRack) -> None:
    rack.answers(DOWN, answer("down", "gating"), "garbage")
    done = rack.run("start", "qwen")
    assert done.exit_code == 1
    assert "the answer of the coordinator cannot be read" in done.stderr
    assert "; unit qwen is gating, and its coordinator continues\n" in done.stderr


def test_a_coordinator_that_is_silent_at_the_end_of_the_time_is_not_a_state(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkrack.serving.unit_run.SILENCE_SECONDS", 60.0)
    rack.answers(DOWN, "garbage")
    done = rack.run("start", "qwen", "--timeout", "1")
    assert done.exit_code == 1
    assert "; unit qwen was asked to start, and its coordinator continues\n" in done.stderr
    assert "qwen: down" not in done.output


def test_a_coordinator_that_answers_again_in_time_ends_nothing(
    rack: ServeRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkrack.serving.unit_run.SILENCE_SECONDS", 60.0)
    rack.answers(DOWN, answer("down", "gating"), "garbage", READY)
    assert rack.run("start", "qwen").exit_code == 0


def test_the_head_of_the_unit_need_not_store_the_lock(rack: ServeRack) -> None:
    rack.declare({"qwen": unit(nodes=["n2", "n1"])})
    rack.answers(DOWN, READY, head="n2")
    assert rack.run("start", "qwen").exit_code == 0
    assert rack.asked("n2") == ["qwen up"]
    assert rack.asked("n0") == []


def test_journal_and_debug_log_are_kept(rack: ServeRack) -> None:
    rack.answers(DOWN, answer("down", "gating", "starting", "stopping", "held"))
    assert rack.run("start", "qwen").exit_code == 1
    (path,) = (rack.folder / "state").rglob("*.ndjson")
    listed = CliRunner().invoke(sparkrack, ["runs", "--rack", str(rack.file), "--json"])
    (one,) = json.loads(listed.stdout)["runs"]
    assert (one["run"], one["result"], one["scope"]) == (path.stem, "failed", "start of unit qwen on n0, n1")
    log = path.with_suffix(".log")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "printed: qwen: starting: reason 2" in log.read_text()


def test_ctrl_c_ends_the_wait_and_not_the_unit(rack: ServeRack) -> None:
    """As a process of its own, on a terminal; the unit goes on starting."""
    rack.answers(DOWN, answer("down", "gating", "starting"))
    words = ["serve", "start", "qwen", "--rack", str(rack.file)]
    with on_terminal(words, settings(rack.folder)) as screen:
        screen.until(r"start unit qwen, \d+ s")
        screen.until("n1  running")
        screen.process.send_signal(signal.SIGINT)
        assert screen.finish() == 1
    assert "ended; unit qwen is starting, and its coordinator continues" in screen.shown
    assert "Next: sparkrack serve status qwen" in screen.shown
    assert rack.asked() == ["qwen up"]
    assert not rack.lock.exists()
