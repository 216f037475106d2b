"""scripts/release.py: each check fails closed, and a release has the same version everywhere."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.generated import REPOSITORY

FILES = {
    "pyproject.toml": '[project]\nname = "x"\nversion = "0.1.0"\n',
    "CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n### Added\n- a thing\n\n## [0.1.0] - 2026-01-01\n- first\n",
    "docs/upgrading.md": "# Upgrade notes\n\n## 0.2.0\n\nNothing.\n\n## 0.1.0\n",
}


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, about a repository of its own."""
    spec = importlib.util.spec_from_file_location("release", REPOSITORY / "scripts/release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TOP", tmp_path)
    monkeypatch.setattr(module, "installed_version", module.project_version)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "ann@example.org")
    (tmp_path / "docs").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit(tmp_path)
    return module


def commit(folder: Path) -> None:
    subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
    subprocess.run(["git", "-C", folder, "commit", "-qm", "x"], check=True)


def test_a_release(release: Any, tmp_path: Path) -> None:
    release.prepare("0.2.0")
    text = (tmp_path / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n\n## [0.2.0] - 20" in text
    assert release.sections()["0.2.0"].strip() == "### Added\n- a thing"
    assert release.project_version() == "0.2.0"
    commit(tmp_path)
    release.tag("0.2.0", "make test")
    message = release.git("for-each-ref", "--format=%(objecttype)%0a%(contents)", "refs/tags/v0.2.0")
    assert message.startswith("tag\nsparkrack 0.2.0\n\nTests that passed on ")
    assert ": make test\n\n### Added\n- a thing" in message
    with pytest.raises(release.ReleaseError, match="exists"):
        release.tag("0.2.0", "make test")


def _edit_file(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        commit(folder)

    return edit


@pytest.mark.parametrize(
    ("version", "spoil", "why"),
    [
        ("0.2", lambda _: None, "is not a version like"),
        ("0.2.0", lambda folder: (folder / "new").touch(), "not clean"),
        ("0.3.0", lambda _: None, "upgrading.md has no section `## 0.3.0`"),
        ("0.1.0", lambda _: None, "has a section"),
        ("0.2.0", _edit_file("CHANGELOG.md", "### Added\n- a thing\n", ""), "empty"),
        ("0.2.0", _edit_file("pyproject.toml", "version = ", "versions = "), "0 lines"),
    ],
)
def test_what_cannot_be_prepared(
    release: Any, tmp_path: Path, version: str, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(tmp_path)
    before = {name: (tmp_path / name).read_text() for name in FILES}
    with pytest.raises(release.ReleaseError, match=why):
        release.prepare(version)
    assert before == {name: (tmp_path / name).read_text() for name in FILES}


@pytest.mark.parametrize(
    ("spoil", "tests", "why"),
    [
        (lambda _: None, " ", "--tests is empty"),
        (_edit_file("pyproject.toml", "0.2.0", "0.2.1"), "make test", r"pyproject\.toml has 0\.2\.1"),
        (_edit_file("CHANGELOG.md", "[0.2.0]", "[0.2.2]"), "make test", r"CHANGELOG\.md has 0\.2\.2"),
        (_edit_file("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n- late\n"), "make test", "is not empty"),
        (lambda folder: (folder / "new").touch(), "make test", "not clean"),
    ],
)
def test_what_cannot_be_tagged(
    release: Any, tmp_path: Path, spoil: Callable[[Path], None], tests: str, why: str
) -> None:
    release.prepare("0.2.0")
    commit(tmp_path)
    spoil(tmp_path)
    with pytest.raises(release.ReleaseError, match=why):
        release.tag("0.2.0", tests)
    assert release.git("tag", "--list") == ""


def test_what_is_installed_must_be_the_version(release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release.prepare("0.2.0")
    commit(tmp_path)
    monkeypatch.setattr(release, "installed_version", lambda: "0.1.0")
    with pytest.raises(release.ReleaseError, match=r"sparkrack --version has 0\.1\.0"):
        release.tag("0.2.0", "make test")
