"""A new role is a folder, one line of the registry, one line of deploy.py and a page; all else follows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest

from tests.generated import REPOSITORY

HERE = Path(__file__).parent
PARTS = (
    *("core", "serving", "roles", "switch", "sparkrack", "lab", "tests", "docs", "group_data"),
    *("deploy.py", "inventory.py", "config.py", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml"),
)
COMPILED = shutil.ignore_patterns("__pycache__")
FILES = {f"roles/toy/{path.name}" for path in HERE.glob("toy/*.py")}
README = "tests/unit/test_readme.py::test_the_roles_"
GENERATED = (
    f"{README}are_those_of_the_registry",
    f"{README}that_are_tried_on_one_machine_first_are_named",
    *(
        f"tests/unit/cli/test_cli_document.py::test_the_help_of_a_verb[{verb}]"
        for verb in ("plan", "apply", "drift", "verify")
    ),
)
"""Tests that renew what documents show of the roles."""


def after(path: Path, line: str, new: str) -> None:
    """Put a line behind another one."""
    text = path.read_text()
    assert text.count(line) == 1
    path.write_text(text.replace(line, line + new))


def contents(project: Path) -> dict[str, str]:
    names = (path for path in project.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(project)): path.read_text(errors="replace") for path in names}


def run(project: Path, *words: str, **environment: str) -> str:
    done = subprocess.run(
        words,
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the toy."""
    copy = tmp_path_factory.mktemp("project")
    for part in PARTS:
        if (REPOSITORY / part).is_dir():
            shutil.copytree(REPOSITORY / part, copy / part, ignore=COMPILED)
        else:
            shutil.copy(REPOSITORY / part, copy / part)
    return copy


@pytest.fixture(scope="module")
def difference(project: Path) -> Mapping[str, list[str]]:
    """Adds the toy. Gives the lines that came and went, by file."""
    before = contents(project)
    shutil.copytree(HERE / "toy", project / "roles/toy", ignore=COMPILED)
    shutil.copy(HERE / "toy.md", project / "docs/roles/toy.md")
    after(project / "roles/registry.py", '    "roles.watch",\n', '    "roles.toy",\n')
    after(project / "deploy.py", 'apply_role("watch")\n', 'apply_role("toy")\n')
    run(project, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *GENERATED, UPDATE_DOCS="1")
    now = contents(project)
    assert before.keys() <= now.keys()
    changed = {name: (before.get(name, ""), text) for name, text in now.items() if before.get(name, "") != text}
    return {
        name: [line for line in ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]
        for name, (old, new) in changed.items()
    }


@pytest.fixture(scope="module")
def seen(project: Path, difference: Mapping[str, list[str]]) -> Mapping[str, Any]:
    """Where it appears."""
    found: dict[str, Any] = json.loads(run(project, sys.executable, "-m", "tests.unit.toy.exercise"))
    return found


def test_what_a_new_role_touches(difference: Mapping[str, list[str]]) -> None:
    generated = {"docs/roles/README.md", "docs/apply.md", "docs/cli.md"}
    by_hand = {"roles/registry.py", "deploy.py"}
    assert set(difference) == {*FILES, "docs/roles/toy.md", *by_hand, *generated}
    assert difference["roles/registry.py"] == ['+     "roles.toy",']
    assert difference["deploy.py"] == ['+ apply_role("toy")']
    assert difference["docs/roles/README.md"] == ["+ | [toy](toy.md) | a file with the declared level | `cat` |"]
    assert all("toy" in line for line in difference["docs/cli.md"] if line[0] == "+")


def test_it_is_in_the_plan_and_in_drift(seen: Mapping[str, Any]) -> None:
    assert seen["plan"] == ["toy: Write the level: modify /etc/toy.conf"]
    assert seen["drift"] == ["toy: modify /etc/toy.conf"]


def test_it_is_selected_and_left_alone(seen: Mapping[str, Any]) -> None:
    assert seen["only"] == [seen["plan"], ["preflight", "toy"]]
    assert seen["not asked for"] == []
    assert seen["left"] == []
    assert "|toy]" in seen["help"].replace("\n", "").replace(" ", "")


def test_it_is_verified(seen: Mapping[str, Any]) -> None:
    assert seen["verify"] == ["toy: True: ", "toy: False: spark1: the level is too high"]


def test_it_is_adopted(seen: Mapping[str, Any]) -> None:
    assert seen["adopt"][:2] == ["toy:", "  level: 5"]
    assert seen["adopt"][2] == "leave: [access, driver, memory, docker, lossless, rdma, images, toy]"


def test_its_section_is_part_of_the_rack_file(seen: Mapping[str, Any]) -> None:
    assert (seen["schema"]["default"], seen["schema"]["maximum"]) == (3, 9)
    assert seen["refused"][0] == "2: toy.level: 10 is too large; write at most 9"
    assert seen["refused"][1].startswith("2: leave.0: toi is not known; did you mean toy?")


def test_status_tells_whether_drift_has_looked_at_it(seen: Mapping[str, Any]) -> None:
    without, with_toy = seen["status"]
    assert without.endswith(" only): in sync")
    assert with_toy.endswith("(1 machine): in sync")


def test_its_flags_count(seen: Mapping[str, Any]) -> None:
    assert seen["risky"]
    assert seen["rebuild"][1].endswith("--only access --only toy")


def test_the_contracts_between_packages_hold_for_it(project: Path, seen: Mapping[str, Any]) -> None:
    run(project, str(Path(sys.executable).with_name("lint-imports")), "--no-cache")
