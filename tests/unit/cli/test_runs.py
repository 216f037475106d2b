"""`sparkrack runs`: which runs this machine has a journal of, and one of them step by step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.util.event import Event, EventKind
from sparkrack.cli.main import sparkrack
from sparkrack.engine.journal import (
    HostError,
    HostMessage,
    OperationFinished,
    RunFinished,
    RunJournal,
    RunResult,
    RunStarted,
)
from tests.unit.model.racks import RING

ENDED, KILLED = "20261122T080000-0000aaaa", "20261123T080000-0000bbbb"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the journals of rack `ring`, which the environment names."""
    (tmp_path / "rack.yaml").write_text(RING)
    monkeypatch.setenv("RACK", str(tmp_path / "rack.yaml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/sparkrack/ring/runs"


def journal(folder: Path, run: str, result: RunResult | None = "failed") -> RunJournal:
    """An open journal of a run with two operations, the second of which failed."""
    made = RunJournal(folder, run)
    made.write(RunStarted(run=run, operator="ann@desk", scope="spark1: \x1bmemory", file="f", revision="", plan="4f1d"))
    event = Event(EventKind.NOTE, "memory", detail="a \x1b[31mreboot is needed")
    made.write(HostMessage.of(run, "spark1", event))
    step = OperationFinished(
        run=run, host="spark1", role="memory", operation="Turn it off", result="changed", seconds=1
    )
    made.write(step)
    made.write(HostError(run=run, host="spark1", reason="the connection was lost"))
    if result:
        made.write(step.model_copy(update={"operation": "Keep it off", "result": "failed"}))
        made.write(RunFinished(run=run, result=result, failed=("spark1",), in_progress={}))
    return made


def runs(*words: str) -> Result:
    done = CliRunner().invoke(sparkrack, ["runs", *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "\x1b" not in done.output
    return done


def test_no_run_yet(folder: Path) -> None:
    done = runs()
    assert (done.exit_code, done.output) == (0, "0 runs, 0 unreadable\n")
    assert not folder.exists()


def test_the_newest_is_first(folder: Path) -> None:
    for run, result in ((ENDED, "done"), (KILLED, None)):
        journal(folder, run, "done" if result else None).close()
    done = runs()
    assert done.exit_code == 0, done.output
    head, first, second, last = done.stdout.splitlines()
    assert head.split() == ["run", "began", "result", "duration", "operator", "scope"]
    assert (first.split()[0], second.split()[0]) == (KILLED, ENDED)
    assert " interrupted  -  " in first
    assert " done         0s " in second
    assert second.endswith("ann@desk  spark1: \\x1bmemory")
    assert last == "2 runs, 0 unreadable"


def test_a_run_is_in_progress_as_long_as_its_process_lives(folder: Path) -> None:
    code = "import sys; from pathlib import Path; from tests.unit.cli.test_runs import journal\n"
    code += "made = journal(Path(sys.argv[1]), sys.argv[2], None); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder), KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout
        running.stdout.readline()
        assert [one["result"] for one in json.loads(runs("--json").stdout)["runs"]] == ["in progress"]
        os.kill(running.pid, signal.SIGKILL)
    found = json.loads(runs("--json").stdout)
    assert [(one["result"], one["seconds"]) for one in found["runs"]] == [("interrupted", None)]


def test_a_file_system_without_locks_is_unknown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(folder, KILLED, None).close()

    def refuse(handle: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert " unknown " in runs().output


@pytest.mark.parametrize("text", ["", "{\n", "\udcff\n", '{"event": "began"}\n', "[" * 9999 + "\n"])
def test_an_unreadable_journal_is_one_line(folder: Path, text: str) -> None:
    journal(folder, ENDED).close()
    path = folder / f"{KILLED}.ndjson"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = runs()
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[1].startswith(ENDED)
    assert lines[2].startswith(f"{path}: is not what sparkrack has kept")
    assert lines[3:] == ["1 run, 1 unreadable"]
    (lost,) = json.loads(runs("--json").stdout)["unreadable"]
    assert (lost["file"], lost["reason"].splitlines()[0][:27]) == (str(path), "is not what sparkrack has k")
    one = runs(KILLED)
    assert (one.exit_code, one.stdout, len(one.stderr.splitlines())) == (1, "", 1)


def test_what_cannot_be_opened_is_one_line(folder: Path) -> None:
    (folder / f"{ENDED}.ndjson").mkdir(parents=True)
    os.mkfifo(folder / f"{KILLED}.ndjson")
    done = runs()
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        f"{folder}/{KILLED}.ndjson: cannot be read: is a FIFO, not a regular file",
        f"{folder}/{ENDED}.ndjson: cannot be read: Is a directory",
        "0 runs, 2 unreadable",
    ]


def test_step_by_step(folder: Path) -> None:
    journal(folder, ENDED).close()
    done = runs(ENDED)
    assert done.exit_code == 0, done.output
    head, *lines = done.stdout.splitlines()
    assert head.startswith(f"{ENDED} of ann@desk, ")
    assert head.endswith(" (spark1: \\x1bmemory): failed after 0s")
    assert lines == [
        "file f; revision none; plan 4f1d",
        "spark1: memory: Turn it off: changed, 1.0 s",
        "  note: a \\x1b[31mreboot is needed",
        "spark1: memory: Keep it off: failed, 1.0 s",
        "  error: the connection was lost",
        f"2 operations, 1 changed; failed on spark1; journal: {folder}/{ENDED}.ndjson",
        "log: none",
    ]
    found = json.loads(runs(ENDED, "--json").stdout)
    assert (found["schema"], found["run"]["result"], len(found["steps"])) == ("sparkrack.run/1", "failed", 2)
    assert found["steps"][0]["messages"][0]["kind"] == "note"
    assert found["steps"][1]["errors"] == ["the connection was lost"]


def test_an_operation_that_did_not_end(folder: Path) -> None:
    journal(folder, KILLED, None).close()
    assert "spark1: role unknown: operation unknown: did not end" in runs(KILLED).stdout
    made = journal(folder, ENDED, None)
    made.write(RunFinished(run=ENDED, result="interrupted", failed=(), in_progress={"spark1": "memory: Keep it off"}))
    made.close()
    assert "spark1: memory: Keep it off: did not end" in runs(ENDED).stdout


@pytest.mark.parametrize("run", ["no-such", "../../x", "", "\x1b"])
def test_an_id_that_no_run_has(folder: Path, run: str) -> None:
    journal(folder, ENDED).close()
    done = runs(run)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.endswith(f": no run of ring has this ID; the newest is {ENDED}\n")


def test_a_journal_of_before_is_listed(folder: Path) -> None:
    folder.mkdir(parents=True)
    at = '"at": "2026-11-22T08:00:00.000+00:00"'
    began = f'{{{at}, "event": "began", "schema": "sparkrack.journal/1", "who": "a@b", "what": "c"}}\n'
    (folder / f"{ENDED}.ndjson").write_text(began + f'{{{at}, "event": "ended", "result": "cut off"}}\n')
    assert " interrupted  0s " in runs().stdout
    done = runs(ENDED)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "line 1 is none of sparkrack.journal/2" in done.stderr
