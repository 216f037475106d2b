"""Texts that stand as files of a package: placeholders, directives, and every file in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.util import resources
from tests.unit.test_project import PACKAGES, TOP


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package with the template `templates/a.sh`."""
    (tmp_path / "own_package/templates").mkdir(parents=True)
    (tmp_path / "own_package/__init__.py").touch()
    (tmp_path / "own_package/templates/a.sh").write_text(
        '# shellcheck shell=sh\n# one\n    # shellcheck disable=SC1000 # reason\necho @ONE@ @TWO@ @ONE@ "$@" %i@x@%\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "own_package"


def test_placeholders_get_their_values(package: str) -> None:
    text = resources.file_text(package, "templates/a.sh", one="@TWO@", two=2)
    assert text == '# one\necho @TWO@ 2 @TWO@ "$@" %i@x@%\n', "a value is not searched for placeholders"
    assert resources.shell_text(package, "templates/a.sh", one="@TWO@", two=2) == text[:-1]


@pytest.mark.parametrize("values", [{"one": 1}, {"one": 1, "two": 2, "three": 3}], ids=["missing", "unused"])
def test_placeholders_and_values_match(package: str, values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"placeholders and values differ in (TWO|THREE)$"):
        resources.file_text(package, "templates/a.sh", **values)


def test_a_file_that_is_missing(package: str) -> None:
    with pytest.raises(FileNotFoundError):
        resources.file_text(package, "templates/b.sh")


def test_every_file_is_used_by_its_package() -> None:
    """A file in `files/` or `templates/` is named by its package, and one without a placeholder is not a template."""
    for top in PACKAGES:
        for path in (*(TOP / top).rglob("files/*"), *(TOP / top).rglob("templates/*")):
            if path.name == "__pycache__":
                continue
            package = path.parents[1]
            modules = "".join(module.read_text() for module in package.glob("*.py"))
            assert f'"{path.parent.name}/{path.name}"' in modules, path
            placeholders = bool(re.search(resources._PLACEHOLDER, path.read_text()))
            assert placeholders == (path.parent.name == "templates"), path
