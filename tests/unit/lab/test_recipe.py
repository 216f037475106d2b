"""The name of an image: another recipe, another name; the same recipe, the same name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lab.image import build


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the recipe that a test may change."""
    copy = tmp_path / "lab"
    shutil.copytree(build.RECIPE.parent, copy, ignore=shutil.ignore_patterns("__pycache__", "crs812"))
    monkeypatch.setattr(build, "RECIPE", copy / "image")
    return copy


def test_a_copy_has_the_same_name(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied = build.recipe_hash()
    monkeypatch.undo()
    assert build.recipe_hash() == copied
    assert len(copied) == 16


def test_time_does_not_matter(recipe: Path) -> None:
    before = build.recipe_hash()
    for path in recipe.rglob("*"):
        os.utime(path, (1, 1))
    assert build.recipe_hash() == before


@pytest.mark.parametrize(
    "file",
    [
        "image/packages.txt",
        "image/customize.sh",
        "image/rootfs/etc/fstab",
        "image/vendor.toml",
        "image/vendor/packagekit/usr/lib/systemd/system/packagekit.service",
        "image/apt_packages.py",
    ],
)
def test_content_matters(recipe: Path, file: str) -> None:
    before = build.recipe_hash()
    with (recipe / file).open("a") as opened:
        opened.write(" ")
    assert build.recipe_hash() != before


def test_names_modes_and_new_files_matter(recipe: Path) -> None:
    names = {build.recipe_hash()}
    fstab = recipe / "image/rootfs/etc/fstab"
    fstab.chmod(0o755)
    names.add(build.recipe_hash())
    fstab.rename(fstab.with_name("fstab2"))
    names.add(build.recipe_hash())
    fstab.touch()
    names.add(build.recipe_hash())
    assert len(names) == 4


@pytest.mark.parametrize(("name", "value"), [("RELEASE", "sid"), ("SIZE", 4 * 1024**3), ("OPTIONS", ())])
def test_settings_matter(recipe: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    before = build.recipe_hash()
    monkeypatch.setattr(build, name, value)
    assert build.recipe_hash() != before
