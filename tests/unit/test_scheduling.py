"""Which worker runs which file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.generated import REPOSITORY
from tests.scheduling import most_racks, most_workers

CONFTEST = """\
import tests.scheduling
tests.scheduling.most_racks = lambda *_, **__: 1

def pytest_configure(config):
    config.pluginmanager.register(tests.scheduling.Workers())
"""
LAB, OTHERS = ("a", "b", "c"), ("d", "e", "f", "g")
# The first file with a rack and the first one without wait for each other.
TEST = """\
import json, os, time
from pathlib import Path

def test_it():
    Path({name!r}).write_text(json.dumps([time.time(), os.environ["PYTEST_XDIST_WORKER"]]))
    for _ in range(600):
        if Path({other!r}).exists():
            return
        time.sleep(0.1)
    raise AssertionError("the other one was not run meanwhile")

def test_more():
    pass
"""

COUNTED = """\
import os

import pytest

@pytest.mark.parametrize("number", [1, 2, 3])
def test_it(number):
    with open("ran", "a") as file:
        file.write(f"{{number}}\\n")
    if number == 2 and {crashes}:
        os._exit(1)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for folder, names in (("tests/lab", LAB), ("tests/unit", OTHERS)):
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            other = {"a": "d", "d": "a"}.get(name, name)
            (tmp_path / folder / f"test_{name}.py").write_text(TEST.format(name=name, other=other))
    return tmp_path


def run(suite: Path, *words: str) -> dict[str, tuple[float, str]]:
    """When each file began, and on which worker."""
    done = pytest_run(suite, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((suite / name).read_text()) for name in (*LAB, *OTHERS) if (suite / name).exists()}


def pytest_run(suite: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder with the scheduler."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", "--dist", "loadfile", *words],
        cwd=suite,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_files_of_the_rack_are_one_workers_while_the_others_run(suite: Path) -> None:
    found = run(suite, "-n", "3", "--no-loadscope-reorder")
    assert len(found) == len(LAB) + len(OTHERS)
    (worker,) = {found[name][1] for name in LAB}
    assert found["d"][1] != worker
    after = [began for began, ran in found.values() if ran == worker]
    assert after[: len(LAB)] == [found[name][0] for name in LAB] == sorted(after)[: len(LAB)], "the rack's come first"


def test_workers_without_a_rack_end_where_only_its_files_are_left(suite: Path) -> None:
    (suite / "tests/lab/test_a.py").unlink()
    found = run(suite, "-n", "3", "tests/lab")
    assert len({worker for _, worker in found.values()}) == 1
    assert found.keys() == {"b", "c"}


@pytest.mark.parametrize("folder", ["lab", "unit"])
def test_a_worker_that_crashes_costs_one_test(suite: Path, folder: str) -> None:
    """Another worker runs the rest of its file; what it has run before is not run again, and nothing waits for it."""
    names = {"lab": LAB, "unit": OTHERS}[folder]
    for name in names:
        (suite / f"tests/{folder}/test_{name}.py").write_text(COUNTED.format(crashes=name == names[-1]))
    done = pytest_run(suite, "-n", "2", "--no-loadscope-reorder", f"tests/{folder}")
    assert f"1 failed, {3 * len(names) - 1} passed" in done.stdout, done.stdout
    assert (suite / "ran").read_text().splitlines().count("2") == len(names)


def test_what_a_machine_has_room_for() -> None:
    assert [most_racks(gib, soak=True) for gib in (8, 13.9, 14, 64)] == [2, 2, 3, 3]
    assert [most_racks(gib, soak=False) for gib in (8, 64)] == [2, 2]
    assert [most_workers(*one, soak=False) for one in ((2, 8), (2, 14), (64, 64))] == [4, 5, 7]
    assert [most_workers(2, gib, soak=True) for gib in (8, 14)] == [2, 3]
