"""Which state of the rack file a report is about."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.util.provenance import origin, revision


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rack file that git keeps, and nothing else."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "desk"
    folder.mkdir()
    rack = folder / "rack.yaml"
    rack.write_text("rack: one\n")
    git(folder, "init", "-q")
    git(folder, "add", "rack.yaml")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "one")
    return rack


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True)


def test_a_file_that_is_committed(kept: Path) -> None:
    assert re.fullmatch(r"[0-9a-f]{12}", revision(kept))


def test_looking_writes_nothing(kept: Path) -> None:
    index = kept.parent / ".git/index"
    os.utime(kept, (0, 0))  # git would note the new time in its index
    before = index.read_bytes()
    assert revision(kept)
    assert index.read_bytes() == before


@pytest.mark.parametrize("name", ["rack.yaml", "more.yaml"])
def test_a_folder_with_changes(kept: Path, name: str) -> None:
    (kept.parent / name).write_text("rack: two\n")
    assert re.fullmatch(r"[0-9a-f]{12}\+", revision(kept))


def test_a_file_that_git_does_not_keep(kept: Path) -> None:
    (kept.parent / ".gitignore").write_text("other.yaml\n")
    other = kept.parent / "other.yaml"
    other.write_text("rack: two\n")
    assert revision(other) == ""


def test_outside_git(tmp_path: Path) -> None:
    (tmp_path / "rack.yaml").touch()
    assert revision(tmp_path / "rack.yaml") == ""


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert revision(tmp_path / "rack.yaml") == ""


def test_without_git(kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert revision(kept) == ""


def test_no_program_of_the_repository_is_started(kept: Path) -> None:
    program = kept.parent.parent / "monitor"
    program.write_text(f"#!/bin/sh\ntouch {kept.parent.parent}/started\n")
    program.chmod(0o755)
    git(kept.parent, "config", "core.fsmonitor", str(program))
    assert revision(kept)
    assert not (kept.parent.parent / "started").exists()


def test_who_and_when(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = origin(kept)
    assert timedelta(0) <= datetime.now(UTC) - found.when < timedelta(minutes=1)
    assert re.fullmatch(r"\S+@\S+", found.by)
    assert found.file == str(kept)

    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert origin(kept).by.startswith(f"{os.getuid()}@")
