"""Where a lab keeps its things: labs in two folders never meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.paths import LabPaths, cache, caller


def test_each_folder_has_its_own_namespace(tmp_path: Path) -> None:
    first, second = LabPaths(tmp_path / "a"), LabPaths(tmp_path / "b")
    assert first.namespace == LabPaths(tmp_path / "a").namespace != second.namespace
    assert first.namespace.startswith("sparkrack-")


def test_everything_lies_under_the_folder(tmp_path: Path) -> None:
    paths = LabPaths(tmp_path)
    found = [
        paths.rack,
        paths.plan,
        paths.key,
        paths.known_hosts,
        paths.packages,
        paths.images,
        paths.node("n"),
        paths.switch("s"),
    ]
    assert all(path.is_relative_to(tmp_path) for path in found)
    assert len(set(found)) == len(found)


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARKRACK_LAB", raising=False)
    assert LabPaths.here().folder == tmp_path / ".lab"
    monkeypatch.setenv("SPARKRACK_LAB", "other")
    assert LabPaths.here().folder == tmp_path / "other"


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARKRACK_CACHE", raising=False)
    assert cache() == tmp_path / "sparkrack"
    monkeypatch.setenv("SPARKRACK_CACHE", str(tmp_path / "named"))
    assert cache() == tmp_path / "named"


def test_who_called_through_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "99")
    assert caller() == (1234, 99)
