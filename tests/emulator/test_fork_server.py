"""A forked program prints, ends and sees what one that is started does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from core.util.progress import WITHOUT_PROGRESS
from tests.emulator.fork_server import ForkedProgram
from tests.emulator.switch_runs import Workdir, waits_for
from tests.unit.cli.runs import command, forked

COMMANDS = {
    "a switch is planned": ("sparkrack", "plan", "--limit", "crs812"),
    "a verb without gevent": ("sparkrack", "check"),
    "wrong words": ("sparkrack", "apply", "--no-such-word"),
    "pyinfra": ("pyinfra", "inventory.py", "fact", "--limit", "nodes", "server.Hostname"),
    "pyinfra, wrong words": ("pyinfra", "--no-such-word"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_prints_and_ends_as_one_that_is_started(workdir: Workdir, name: str) -> None:
    workdir.write()
    environment: dict[str, Any] = {
        "CRS812_PASSWORD": workdir.emulator.password,
        "XDG_STATE_HOME": str(workdir.folder / "state"),
        "RACK": "rack.yaml",
        WITHOUT_PROGRESS: "1",
    }
    started = command(*COMMANDS[name], cwd=workdir.folder, **environment)
    made = forked(*COMMANDS[name], cwd=workdir.folder, **environment)
    assert (made.code, made.stdout, made.stderr) == (started.code, started.stdout, started.stderr)


def test_one_that_is_killed_has_ended_by_that_signal(workdir: Workdir) -> None:
    workdir.emulator.control({"op": "fault", "kind": "hang", "match": "/safe-mode/take"})
    process = workdir.start("deploy.py", "-y")
    waits_for(lambda: bool(workdir.emulator.stats()["reads"].get("/safe-mode")), process)
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()


def test_one_that_runs_for_too_long_is_killed(workdir: Workdir) -> None:
    workdir.emulator.control({"op": "fault", "kind": "hang", "match": "/system/identity/print"})
    process = workdir.start("deploy.py", "-y")
    with pytest.raises(TimeoutError, match="still ran after 1 s"):
        process.communicate(timeout=1)
    assert process.returncode == -signal.SIGKILL


def test_bytes_that_are_no_text_reach_its_environment(tmp_path: Path) -> None:
    secret = b"Xq7Zp2Lm9V\xe9kR4tWs8Hd3"
    rack = tmp_path / "rack.yaml"
    rack.write_text("rack: one\n")
    name = os.fsencode(tmp_path / "no-such-\udce9.yaml")
    process = ForkedProgram("sparkrack", ["check"], env={**os.environ, "SECRET": secret, "RACK": name})
    text, _ = process.communicate_bytes()
    assert process.returncode == 1
    assert b"no-such-" in text
    assert b"rack: one" not in text
