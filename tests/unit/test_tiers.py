"""Which tests a run of pytest takes of the two tiers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.generated import REPOSITORY
from tests.tiers import PARTS, TURNS, commits_of, part_of

CONFTEST = """\
import pytest
from tests.end_of_run import EndOfRun
from tests.tiers import Tiers

def pytest_configure(config):
    config.addinivalue_line("markers", "soak: of the long rest")
    tiers = Tiers(config)
    config.pluginmanager.register(tiers)
    config.pluginmanager.register(EndOfRun(config, tiers))
"""
TESTS = """\
import pytest

@pytest.mark.soak
@pytest.mark.parametrize("case", range(200))
def test_long(case):
    pass

def test_short():
    pass
"""
CASES = 200
"""So many that each part has some."""
NODES = [f"test_some.py::test_long[{case}]" for case in range(CASES)]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def ran(suite: Path, *words: str, code: int = 0) -> tuple[set[str], str]:
    """The tests that passed, and all that was printed; pytest ends with 5 when no test is selected."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words],
        cwd=suite,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    passed = r"^(\S*test_some\.py::\S+) PASSED|PASSED (\S*test_some\.py::\S+)"
    return {"".join(found) for found in re.findall(passed, done.stdout, re.MULTILINE)}, done.stdout


def commit(folder: Path, times: int) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q", "."], cwd=folder, check=True)
    for _ in range(times):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], cwd=folder, check=True)


def test_a_run_takes_the_first_tier_and_the_part_of_its_commit(suite: Path) -> None:
    commit(suite, 3)
    expected = {node for node in NODES if part_of(node) == 3}
    assert 0 < len(expected) < len(NODES)
    found, reported = ran(suite)
    assert found == expected | {"test_some.py::test_short"}
    chosen = "part 3 of 20 and turn 3 of 14, chosen by the number of commits"
    assert f"soak tests: {len(expected)} of {CASES} selected ({chosen}); " in reported
    assert reported.endswith(f"; {CASES - len(expected)} are left to `make soak`\n")
    assert f"{CASES - len(expected)} deselected" in reported


def test_workers_of_xdist_take_the_same_and_say_it_once(suite: Path) -> None:
    commit(suite, 22)
    found, reported = ran(suite, "-p", "xdist", "-n", "2")
    assert found == {node for node in NODES if part_of(node) == 2} | {"test_some.py::test_short"}
    assert reported.count(f"soak tests: {len(found) - 1} of {CASES} selected (part 2 of 20") == 1


def test_outside_a_git_checkout_it_is_part_0(suite: Path) -> None:
    found, _ = ran(suite)
    assert found == {node for node in NODES if part_of(node) == 0} | {"test_some.py::test_short"}


def test_make_soak_takes_all_soak_tests_and_no_other(suite: Path) -> None:
    found, reported = ran(suite, "-m", "soak")
    assert found == set(NODES)
    assert f"soak tests: {CASES} of {CASES} selected (all)\n" in reported


def test_a_soak_test_that_needs_more_is_in_no_part(suite: Path) -> None:
    large = "test_some.py::test_large"
    (suite / "test_some.py").write_text(f"{TESTS}\n@pytest.mark.soak(sampled=False)\ndef test_large():\n    pass\n")
    commit(suite, part_of(large) or PARTS)
    assert large not in ran(suite)[0]
    assert large in ran(suite, "-m", "soak")[0]
    assert ran(suite, large)[0] == {large}


def test_a_soak_test_of_the_virtual_rack_is_in_no_part(suite: Path) -> None:
    (suite / "tests/lab").mkdir(parents=True)
    (suite / "test_some.py").rename(suite / "tests/lab/test_some.py")
    found, reported = ran(suite)
    assert found == {"tests/lab/test_some.py::test_short"}
    assert f"soak tests: 0 of {CASES} selected" in reported
    assert ran(suite, "-m", "soak")[0] == {f"tests/lab/{node}" for node in NODES}


def test_files_that_take_turns_run_in_one_of_fourteen_commits(suite: Path) -> None:
    (suite / "test_some.py").write_text(
        TESTS.replace("import pytest", "import pytest\n\npytestmark = pytest.mark.soak(turn=1)")
    )
    commit(suite, 1)
    assert ran(suite)[0] == {node for node in NODES if part_of(node) == 1} | {"test_some.py::test_short"}
    for _ in range(TURNS - 1):
        commit(suite, 1)
        assert ran(suite, code=5)[0] == set()
    commit(suite, 1)
    assert "test_some.py::test_short" in ran(suite)[0]
    assert ran(suite, "-m", "soak")[0] == {*NODES, "test_some.py::test_short"}


def test_a_file_can_take_every_second_turn(suite: Path) -> None:
    (suite / "test_some.py").write_text(
        "import pytest\n\n@pytest.mark.soak(turn=1, of=2)\ndef test_often():\n    pass\n"
    )
    for _ in range(2):
        commit(suite, 1)
        assert ran(suite)[0] == {"test_some.py::test_often"}
        commit(suite, 1)
        assert ran(suite, code=5)[0] == set()


def test_each_turn_has_files_of_the_virtual_rack() -> None:
    """A turn without any would be a mistake of a number."""
    text = "".join(path.read_text() for path in (REPOSITORY / "tests/lab").glob("test_*.py"))
    assert {int(turn) for turn in re.findall(r"soak\(turn=(\d+)\)", text)} == set(range(TURNS))


@pytest.mark.parametrize("words", [(NODES[7],), ("-k", "7")])
def test_a_soak_test_that_is_named_runs(suite: Path, words: tuple[str, ...]) -> None:
    found, _ = ran(suite, *words)
    assert NODES[7] in found


def test_twenty_commits_in_a_row_run_every_soak_test() -> None:
    assert {part_of(node) for node in NODES} == set(range(PARTS))
    assert part_of("tests/x.py::test_y") == 0, "it is the same for every Python"


def test_the_commits_of_this_repository(tmp_path: Path) -> None:
    assert commits_of(REPOSITORY) > 0
    assert commits_of(tmp_path) == 0
