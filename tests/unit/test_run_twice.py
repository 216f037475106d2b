"""What `make test` makes of tests that fail, and what its last lines say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.end_of_run import SLOWEST
from tests.generated import REPOSITORY
from tests.run_twice import MOST

# Each test fails as often as the file beside it says.
TESTS = """\
import pathlib
import pytest

@pytest.mark.parametrize("name", {names})
def test_some(name):
    left = pathlib.Path(name)
    count = int(left.read_text()) if left.exists() else 0
    left.write_text(str(count - 1))
    assert count <= 0
"""
CONFTEST = """\
import pytest
from tests.end_of_run import EndOfRun
from tests.tiers import Tiers

def pytest_configure(config):
    tiers = Tiers(config)
    config.pluginmanager.register(tiers)
    config.pluginmanager.register(EndOfRun(config, tiers))

def pytest_runtest_makereport(item, call):
    # For each of the three phases of a test; they do not depend on this machine.
    call.duration = {seconds}.get(item.path.name, 0)
"""
"""For a run with these seconds for each phase of a test, by the name of the file."""
SUMMED = re.compile(r" *(\d+) s +(\d+) tests  (\S+)")


def run(folder: Path, *words: str, **failures: int) -> tuple[int, str]:
    """Run tests that fail this often; return the exit status and what was printed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(TESTS.format(names=sorted(failures)))
    for name, count in failures.items():
        (folder / name).write_text(str(count))
    done = subprocess.run(
        [sys.executable, "-m", "tests.run_twice", "-q", *words],
        cwd=folder,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


def test_tests_that_pass_run_once(tmp_path: Path) -> None:
    status, output = run(tmp_path, a=0, b=0)
    assert (status, "once more" in output, (tmp_path / "a").read_text()) == (0, False, "-1")


def test_one_that_passes_alone_is_named_as_unstable(tmp_path: Path) -> None:
    status, output = run(tmp_path, a=0, b=1)
    assert status == 0
    assert "unstable: test_some.py::test_some[b] failed beside other tests and passed alone" in output
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("-1", "-1"), "only b ran twice"


def test_one_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    status, output = run(tmp_path, a=2, b=1)
    assert (status, "unstable" in output) == (1, False)


@pytest.mark.parametrize("more", [0, 1])
def test_failures_in_many_files_are_no_accident(tmp_path: Path, more: int) -> None:
    for number in range(MOST - 1 + more):
        (tmp_path / f"test_more{number}.py").write_text(TESTS.format(names=[f"more{number}"]))
        (tmp_path / f"more{number}").write_text("1")
    status, output = run(tmp_path, a=1, b=1, c=1, d=1)
    assert (status, "once more" in output) == ((1, False) if more else (0, True))


def test_an_error_of_the_run_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text("import no_such_module\n")
    status, output = run(tmp_path, a=1)
    assert (status, "once more" in output) == (2, False)


def test_a_failure_of_an_earlier_run_is_forgotten(tmp_path: Path) -> None:
    assert run(tmp_path, a=2)[0] == 1
    (tmp_path / "a").write_text("0")
    status, output = run(tmp_path, b=1)
    assert (status, output.count("unstable:"), "test_some[b]" in output) == (0, 1, True)


def timed(folder: Path, seconds: Mapping[str, int]) -> None:
    """Add files with two tests each, whose phases take these seconds, and the plugin that prints the last lines."""
    (folder / "conftest.py").write_text(CONFTEST.format(seconds=dict(seconds)))
    for name in seconds:
        (folder / name).write_text("def test_first(): pass\ndef test_second(): pass\n")


def slowest(output: str) -> list[tuple[str, ...]]:
    """The seconds, tests and name of each file that the last lines of a run name."""
    return [found.groups() for line in output.splitlines() if (found := SUMMED.fullmatch(line))]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "workers"])
def test_a_run_ends_with_its_time_and_the_ten_slowest_files(tmp_path: Path, workers: tuple[str, ...]) -> None:
    timed(tmp_path, {f"test_file{number}.py": number for number in range(1, SLOWEST + 3)})
    status, output = run(tmp_path, *workers, a=0)
    assert status == 0
    expected = [(str(6 * number), "2", f"test_file{number}.py") for number in range(SLOWEST + 2, 2, -1)]
    assert slowest(output) == expected
    assert re.search(r" passed in .*\n\nthe run took \d+ min \d+ s\nits slowest files:\n", output)
    assert output.endswith(f"  {expected[-1][2]}\n"), "nothing comes after it"


def test_the_slowest_files_are_named_again_after_the_second_run(tmp_path: Path) -> None:
    timed(tmp_path, {"test_slow.py": 7})
    status, output = run(tmp_path, a=0, b=1)
    assert status == 0
    last = output.rpartition(" s for both runs\n")[2]
    assert slowest(last) == [("42", "2", "test_slow.py"), ("0", "2", "test_some.py")]
    assert last.splitlines()[-1].startswith("unstable: ")
