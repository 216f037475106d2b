"""`sparkrack lab` as a user starts it: on another system, through sudo, and ended by a signal."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab import namespace
from lab.paths import LabPaths
from sparkrack.cli.lab import lab
from sparkrack.engine.subcommands import CALL

PROJECT = Path(__file__).parents[3]
PATIENCE = 60.0
USER = pwd.getpwnam("nobody").pw_uid
GROUP = pwd.getpwnam("nobody").pw_gid
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user and a network namespace need root")


@pytest.mark.parametrize("verb", ["up", "down", "status", "reset spark1", "reboot spark1", "run true", "ssh spark1"])
def test_on_another_system_it_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    done = CliRunner().invoke(lab, verb.split())
    assert done.exit_code == 1
    assert str(done.exception) == "the virtual rack runs on Linux only, and this is darwin"


@needs_root
def test_through_sudo_no_file_of_root_is_left_among_those_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words for sudo are those of this process as another user; root runs them as sudo does."""
    for name in ("core", "serving", "roles", "switch", "sparkrack", "lab"):
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [tmp_path, *tmp_path.rglob("*")]:
        os.chown(path, USER, USER)
    for name, value in {"HOME": tmp_path, "PYTHONPATH": tmp_path, "SUDO_UID": USER, "SUDO_GID": GROUP}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    def sudo(_: str, words: list[str]) -> None:
        assert words[:3] == ["sudo", "--preserve-env", "env"]
        done = subprocess.run(words[2:], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "there is no lab in" in done.stderr
        sys.exit(done.returncode)

    monkeypatch.setattr(os, "execvp", sudo)
    monkeypatch.setattr(os, "geteuid", lambda: USER)
    monkeypatch.setattr(sys, "argv", ["sparkrack", "lab", "status"])
    assert CliRunner().invoke(lab, ["status"]).exit_code == 1
    assert [path for path in tmp_path.rglob("*") if path.lstat().st_uid != USER] == []


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a lab whose network namespace is there, without machines."""
    paths = LabPaths(tmp_path / ".lab")
    namespace.create(paths.namespace)
    own = {"SPARKRACK_LAB": str(paths.folder), "SUDO_UID": str(USER), "SUDO_GID": str(GROUP)}
    yield {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "sparkrack-lab"}
    namespace.delete(paths.namespace)


@needs_root
def test_a_command_in_the_lab_is_the_users_and_keeps_its_bytecode(running: dict[str, str]) -> None:
    script = 'id -u; id -g; echo "$PYTHONDONTWRITEBYTECODE"; exit 7'
    command = [*CALL, "lab", "run", "--", "sh", "-c", script]
    done = subprocess.run(command, env=running, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, f"{USER}\n{GROUP}\n\n")
    chosen = {**running, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=chosen, capture_output=True, text=True, check=False)
    assert done.stdout == f"{USER}\n{GROUP}\n1\n"


@needs_root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_lab_run_ends_its_command(running: dict[str, str], number: signal.Signals) -> None:
    seconds = f"1000.{uuid.uuid4().int % 10**12}"

    def sleeping() -> list[int]:
        found = Path("/proc").glob("[0-9]*/cmdline")
        return [int(path.parent.name) for path in found if _read_content(path) == f"sleep\0{seconds}\0".encode()]

    with subprocess.Popen([*CALL, "lab", "run", "--", "sleep", seconds], env=running) as process:
        until = time.monotonic() + PATIENCE
        while not sleeping():
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(PATIENCE) == -number
        left = sleeping()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert left == []


def _read_content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
