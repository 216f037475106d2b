"""The journal of a run: whole lines at every moment, private, the newest kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparkrack.run.journal import EVENTS, MOST, Journal

HOSTILE = "\x1b[2J\x9b\u2028\u2029\r\n\x00\ud800 ä \"'{}"
WRITER = """\
import sys
from pathlib import Path
from sparkrack.run.journal import Journal
journal = Journal(Path(sys.argv[1]), "run")
while True:
    journal.write("said", host="spark1", text="x" * 3000)
"""


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def test_a_line_is_there_at_once(tmp_path: Path) -> None:
    one = Journal(tmp_path / "runs", "20260314T091500-3fa2")
    for number, event in enumerate(EVENTS, 1):
        one.write(event, host="spark1", seconds=0.25)
        assert len(read(one.path)) == number
    one.close()
    first = read(one.path)[0]
    assert list(first) == ["run", "at", "event", "host", "seconds"]
    assert (first["run"], first["event"]) == ("20260314T091500-3fa2", "began")
    assert first["at"].endswith("+00:00")
    assert first["at"][-10] == ".", "milliseconds"


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        one = Journal(tmp_path / "state/runs", "run")
    finally:
        os.umask(before)
    assert f"{one.path.stat().st_mode & 0o777:o}" == "600"
    assert f"{one.path.parent.stat().st_mode & 0o777:o}" == "700"


def test_whatever_a_machine_says_is_one_line_of_ascii(tmp_path: Path) -> None:
    one = Journal(tmp_path, "run")
    one.write("said", host="spark1", text=HOSTILE)
    content = one.path.read_bytes()
    assert content.isascii()
    assert content.decode().isprintable() or content.decode()[:-1].isprintable()
    assert len(content.splitlines()) == 1
    assert read(one.path)[0]["text"] == HOSTILE


def test_killed_in_the_middle_every_whole_line_parses(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    path, until = tmp_path / "run.ndjson", time.monotonic() + 10
    while time.monotonic() < until and (not path.exists() or path.stat().st_size < 100_000):
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait(10)
    lines = read(path)
    assert len(lines) > 30
    assert {line["text"] for line in lines} == {"x" * 3000}


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, real = Journal(tmp_path, "run"), os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
    one.write("said", host="spark1", text="more than seven")
    monkeypatch.undo()
    assert read(one.path)[0]["text"] == "more than seven"


def test_a_disk_that_is_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Journal(tmp_path, "run")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        one.write("said")


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for number in range(MOST + 7):
        (tmp_path / f"2026{number:04}.ndjson").touch()
    (tmp_path / "notes.txt").touch()
    Journal(tmp_path, "20270101")
    left = sorted(path.name for path in tmp_path.glob("*.ndjson"))
    assert len(left) == MOST
    assert (left[0], left[-1]) == ("20260008.ndjson", "20270101.ndjson")
    assert (tmp_path / "notes.txt").exists()


def test_few_are_all_kept(tmp_path: Path) -> None:
    for number in range(3):
        Journal(tmp_path, f"run{number}")
    assert len(list(tmp_path.iterdir())) == 3


def test_no_run_writes_into_that_of_another(tmp_path: Path) -> None:
    Journal(tmp_path, "run")
    with pytest.raises(FileExistsError):
        Journal(tmp_path, "run")
