"""The page of the acceptance checks: each check has a command, and what a command selects is there."""

from __future__ import annotations

import ast
import re
import shlex

import pytest

from tests.generated import REPOSITORY

PAGE = REPOSITORY / "docs/evidence/serving-acceptance.md"
PROGRAM = ".venv/bin/pytest"
ALL = ["-m", "soak or not soak"]
"""Options of a command that also runs the soak tests of a whole file."""


def rows(page: str, title: str) -> list[list[str]]:
    """The cells of the rows of the table below a title, without its head."""
    section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def commands(page: str) -> dict[int, list[str]]:
    """The words of each command, by the number of its check."""
    block = page.partition("\n## Commands\n")[2]
    found: dict[int, list[str]] = {}
    for number, line in re.findall(r"^    # ([0-9]+)\n    (\S.*)$", block, re.MULTILINE):
        assert int(number) not in found, f"check {number} has two commands"
        found[int(number)] = shlex.split(line)
    assert len(found) * 2 == len(re.findall(r"^    \S", block, re.MULTILINE)), "a line is of no command"
    return found


def faults(words: list[str]) -> list[str]:
    """What of a command selects no test."""
    options = words[1:3] if words[1:3] == ALL else []
    chosen = words[1 + len(options) :]
    found = [] if words[0] == PROGRAM and chosen else [f"no command: {shlex.join(words)}"]
    for one in chosen:
        file, _, name = one.partition("::")
        path = REPOSITORY / file
        if not path.is_file() or not path.name.startswith("test_"):
            found.append(f"{file} is not a file of tests")
            continue
        tests = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
        if not [test for test in tests if test.startswith("test_") and name in ("", test)]:
            found.append(f"{one} is not a test")
    return found


def test_each_check_with_levels_has_a_command_that_selects_tests() -> None:
    page = PAGE.read_text()
    known = {row[0] for row in rows(page, "Levels")}
    checks = {int(row[0]): [one for one in row[2].split(", ") if one] for row in rows(page, "Checks")}
    assert list(checks) == list(range(1, 25))
    assert set().union(*checks.values()) == known
    written = commands(page)
    assert list(written) == [number for number, levels in checks.items() if levels]
    assert {number: found for number, words in written.items() if (found := faults(words))} == {}


@pytest.mark.parametrize(
    ("level", "folder"),
    [
        ("lab", "tests/lab/"),
        ("Ray", "tests/serving/test_ray_"),
        ("parsers", "tests/unit/serving/engines/test_real_"),
        ("nginx", "tests/serving/test_one_"),
        ("llama.cpp", "tests/serving/test_llama_"),
    ],
)
def test_a_level_is_that_of_the_tests_that_the_command_selects(level: str, folder: str) -> None:
    page = PAGE.read_text()
    named = {int(row[0]) for row in rows(page, "Checks") if level in row[2].split(", ")}
    assert named == {number for number, words in commands(page).items() if folder in " ".join(words)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{PROGRAM} tests/unit/test_absent.py", "tests/unit/test_absent.py is not a file of tests"),
        (f"{PROGRAM} tests/unit/test_tiers.py::test_absent", "tests/unit/test_tiers.py::test_absent is not a test"),
        (f"{PROGRAM} tests/unit/test_tiers.py::ran", "tests/unit/test_tiers.py::ran is not a test"),
        (f"{PROGRAM} tests/tiers.py", "tests/tiers.py is not a file of tests"),
        (f"{PROGRAM} -k lease tests/unit/test_tiers.py", "-k is not a file of tests"),
        (PROGRAM, f"no command: {PROGRAM}"),
        ("python tests/unit/test_tiers.py", "no command: python tests/unit/test_tiers.py"),
    ],
)
def test_a_command_that_selects_nothing_is_found(line: str, expected: str) -> None:
    assert expected in faults(shlex.split(line))
