"""What `make test` makes of tests that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def run(folder: Path, **failures: int) -> tuple[int, str]:
    """Run tests that fail this often; return the exit status and what was printed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_some.py").write_text(TESTS.format(names=sorted(failures)))
    for name, count in failures.items():
        (folder / name).write_text(str(count))
    done = subprocess.run(
        [sys.executable, "-m", "tests.run_twice", "-q"],
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
