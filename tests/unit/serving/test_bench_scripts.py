"""The scripts around a measurement, in a shell whose `kill` takes an empty process ID for its own group (busybox)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sparkrack.serving.bench import CLEAN_UP, FOLDER, PREPARE

KILL = """\
kill() {
    for word; do :; done
    [ -n "$word" ] || { echo killed the own group; return 0; }
    command kill "$@"
}
"""


def printed(script: str, folder: Path) -> str:
    """What a script prints with its folder elsewhere."""
    text = KILL + script.replace(FOLDER, str(folder))
    return subprocess.run(["sh", "-c", text], capture_output=True, text=True).stdout.strip()


def test_without_a_measurement_none_runs_and_nothing_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    assert printed(PREPARE, folder) == "prepared"
    assert printed(CLEAN_UP, folder) == ""
    assert not folder.exists()


def test_a_measurement_that_runs_is_seen_and_ended(tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    folder.mkdir()
    with subprocess.Popen(["sleep", "60"]) as tool:
        (folder / "pid").write_text(f"{tool.pid}\n")
        assert printed(PREPARE, folder) == "running"
        printed(CLEAN_UP, folder)
        assert tool.wait(10) == -15
