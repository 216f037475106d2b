"""What is kept on this machine -> what the screen says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkrack.engine.journal import OperationFinished, RunFinished, RunJournal, RunResult, RunStarted
from sparkrack.status.history import StatusHistoryError, last_drift, last_run

DRIFT = {
    "schema": "sparkrack.drift/1",
    "rack": "spark8",
    "made": "2026-11-22T08:00:00Z",
    "machines": [
        {
            "name": "spark1",
            "kind": "node",
            "told": True,
            "roles": [
                {"role": "memory", "findings": [{"kind": "declared", "text": "x"}, {"kind": "runtime", "text": "y"}]},
                {"role": "docker", "findings": [{"kind": "declared", "text": "z"}]},
            ],
        },
        {"name": "spark2", "kind": "node", "told": False, "why": "gone", "roles": []},
    ],
}
BEGAN = '{"at": "2026-11-22T08:00:00.000+00:00", "event": "began", "schema": "sparkrack.journal/1"'
BEGAN += ', "who": "a@b", "what": "c"}\n'


def kept(state: Path, folder: str, name: str, text: str) -> Path:
    path = state / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_nothing_yet(tmp_path: Path) -> None:
    assert (last_drift(tmp_path / "never"), last_run(tmp_path / "never")) == (None, None)


def test_the_newest_look(tmp_path: Path) -> None:
    kept(tmp_path, "drift", "20261122T080000.000Z.json", json.dumps(DRIFT))
    kept(tmp_path, "drift", "20261121T080000.000Z.json", "an old one that no one opens")
    kept(tmp_path, "drift", "20261123T080000.000Z.json.part", "another thing")
    found = last_drift(tmp_path)
    assert found
    assert (found.hosts, found.roles) == (("spark1", "spark2"), ("memory", "docker"))
    assert (found.run, found.unknown_hosts) == ("20261122T080000.000Z", ("spark2",))
    assert found.counts == {"declared": 2, "broken": 1}
    assert found.made.hour == 8


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '"\x1b"', json.dumps({**DRIFT, "schema": "sparkrack.drift/9"}), "\udcff"),
        json.dumps({**DRIFT, "made": "2026-11-22T08:00:00"}),
        json.dumps({**DRIFT, "machines": [{"name": "a"}]}),
    ],
)
def test_a_look_that_cannot_be_understood(text: str, tmp_path: Path) -> None:
    path = kept(tmp_path, "drift", "20261122T080000.000Z.json", "")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(StatusHistoryError, match="is not what sparkrack has kept") as raised:
        last_drift(tmp_path)
    assert str(raised.value).isprintable()


def test_the_schema_of_today_is_read_as_the_one_before(tmp_path: Path) -> None:
    kept(tmp_path / "1", "drift", "20261122T080000.000Z.json", json.dumps(DRIFT))
    today = (
        json.dumps({**DRIFT, "schema": "sparkrack.drift/2"})
        .replace('"told"', '"complete"')
        .replace('"machines"', '"hosts"')
    )
    kept(tmp_path / "2", "drift", "20261122T080000.000Z.json", today.replace('"runtime"', '"broken"'))
    assert last_drift(tmp_path / "1") == last_drift(tmp_path / "2")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "drift/20261122T080000.000Z.json").mkdir(parents=True)
    (tmp_path / "runs/20261122T080000-aaaa.ndjson").mkdir(parents=True)
    for look in (last_drift, last_run):
        with pytest.raises(StatusHistoryError, match="cannot be read: Is a directory"):
            look(tmp_path)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(StatusHistoryError, match="cannot be read: Not a directory"):
        last_run(tmp_path)


@pytest.mark.parametrize("result", ["done", "failed", None])
def test_the_newest_run(result: RunResult | None, tmp_path: Path) -> None:
    kept(tmp_path, "runs", "20261121T080000-ffff.ndjson", "an old one")
    journal = RunJournal(tmp_path / "runs", "20261122T080000-0000")
    run = journal.run
    journal.write(RunStarted(run=run, operator="ann@desk", scope="spark1: memory", file="f", revision="", plan=""))
    journal.write(
        OperationFinished(run=run, host="spark1", role="memory", operation="x", result="changed", seconds=1.0)
    )
    if result:
        journal.write(RunFinished(run=run, result=result, failed=(), in_progress={}))
    journal.close()
    found = last_run(tmp_path)
    assert found
    assert (found.run, found.operator, found.scope) == (journal.run, "ann@desk", "spark1: memory")
    assert (found.result, found.ended is None) == (result, result is None)


def test_a_journal_that_ends_in_the_middle_of_a_line(tmp_path: Path) -> None:
    kept(tmp_path, "runs", "20261122T080000-0000.ndjson", BEGAN + '{"event": "run_finished", "at": "20')
    found = last_run(tmp_path)
    assert found
    assert found.result is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "{}\n", "[]\n", "7\n", "\x1b\n", "[" * 9999 + "\n", '{"event": "began"}\n'),
        BEGAN.replace("journal/1", "journal/9"),
        BEGAN.replace("2026-", "year "),
        BEGAN.replace(".000+00:00", ""),
        BEGAN + "null\n",
        BEGAN + '{"event": "run_finished"}\n',
    ],
)
def test_a_journal_that_is_none(text: str, tmp_path: Path) -> None:
    kept(tmp_path, "runs", "20261122T080000-0000.ndjson", text)
    with pytest.raises(StatusHistoryError, match="is not what sparkrack has kept"):
        last_run(tmp_path)
