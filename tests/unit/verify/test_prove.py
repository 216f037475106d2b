"""A proof of a tiny rack by verify files of the test's own: every outcome is reported, and nothing passes by
silence."""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from core.verify.checked_roles import verify_files
from core.verify.outcomes import Outcome
from core.verify.runner import run_checks, session
from tests.unit.model.racks import SWITCH, loaded

RACK = loaded(SWITCH)
ALL = ["spark1", "spark2", "crs812"]


@pytest.fixture
def verify(tmp_path: Path) -> Path:
    """The verify file of a role called wire; the test writes it."""
    (tmp_path / "wire").mkdir()
    return tmp_path / "wire/verify.py"


def proven(verify: Path, text: str, machines: list[str] = ALL, junit: Path | None = None) -> list[Outcome]:
    verify.write_text(text)
    return run_checks(RACK, [verify], machines, junit)


def alone(verify: Path, text: str, machine: str = "spark1", excluded: frozenset[str] = frozenset()) -> list[Outcome]:
    """The same about one machine, in this process: that takes less long."""
    verify.write_text(text)
    return session(RACK, [str(verify)], machine, verify.with_suffix(".xml"), False, excluded)


def reported(outcomes: list[Outcome]) -> list[tuple[str, str, bool, str]]:
    return [(outcome.machine, outcome.role, outcome.passed, outcome.why) for outcome in outcomes]


def test_a_check_runs_for_each_node(verify: Path) -> None:
    text = "def test_name(node, rack):\n    assert node.name == 'spark1', f'{node.name} is not it\\nat all'\n"
    assert reported(proven(verify, text)) == [
        ("spark1", "wire", True, ""),
        ("spark2", "wire", False, "spark2 is not it"),
    ]


@pytest.mark.parametrize(
    ("argument", "machines"),
    [
        ("node", ["spark1", "spark2"]),
        ("address", ["spark1", "spark1", "spark2", "spark2"]),
        ("pair", ["spark1", "spark1", "spark2", "spark2"]),
        ("switch", ["crs812"]),
        ("leg", ["spark1", "spark2"]),
    ],
)
def test_a_check_runs_for_each_part_that_it_asks_for(verify: Path, argument: str, machines: list[str]) -> None:
    text = f"def test_it({argument}):\n    assert {argument}\n"
    outcomes = [outcome for machine in ALL for outcome in alone(verify, text, machine)]
    assert [outcome.machine for outcome in outcomes] == machines
    assert all(outcome.passed for outcome in outcomes)


@pytest.mark.parametrize("argument", ["node", "address", "pair"])
def test_limited_to_one_node(verify: Path, argument: str) -> None:
    outcomes = alone(verify, f"def test_it({argument}):\n    pass\n", "spark2")
    assert {outcome.machine for outcome in outcomes} == {"spark2"}


def test_limited_to_the_switch(verify: Path) -> None:
    text = "def test_it(node):\n    pass\ndef test_other(switch):\n    pass\n"
    assert [outcome.machine for outcome in alone(verify, text, "crs812") if outcome.passed] == ["crs812"]


def test_a_fixture_that_fails_is_a_failed_check(verify: Path) -> None:
    text = (
        "import pytest\n@pytest.fixture\ndef it():\n    raise OSError('no way in')\ndef test_it(node, it):\n    pass\n"
    )
    assert reported(alone(verify, text, "spark1")) == [("spark1", "wire", False, "OSError: no way in")]


def test_a_fixture_that_fails_in_the_end_is_a_failed_check(verify: Path) -> None:
    text = (
        "import pytest\n@pytest.fixture\ndef it():\n    yield\n    raise OSError('left open')\n"
        "def test_it(node, it):\n    pass\n"
    )
    outcomes = reported(alone(verify, text, "spark1"))
    assert outcomes[-1] == ("spark1", "wire", False, "OSError: left open")


@pytest.mark.parametrize("text", ["import no_such_module\n", "def test_it(:\n", "raise RuntimeError('x')\n"])
def test_a_file_that_cannot_be_read_proves_nothing(verify: Path, text: str) -> None:
    (outcome,) = alone(verify, text, "spark1")
    assert not outcome.passed
    assert outcome.why
    assert "\n" not in outcome.why


def test_a_file_that_is_not_there_proves_nothing(tmp_path: Path) -> None:
    outcomes = session(RACK, [str(tmp_path / "verify.py")], "spark1", tmp_path / "out.xml", bandwidth=False)
    assert [(outcome.passed, outcome.unknown) for outcome in outcomes] == [(False, True)]


def test_one_bad_file_does_not_hide_the_rest(verify: Path, tmp_path: Path) -> None:
    other = tmp_path / "other/verify.py"
    other.parent.mkdir()
    other.write_text("import no_such_module\n")
    verify.write_text("def test_it(node):\n    pass\n")
    outcomes = session(RACK, [str(other), str(verify)], "spark1", tmp_path / "out.xml", bandwidth=False)
    assert any(not outcome.passed for outcome in outcomes)


UNREACHABLE = "from core.ssh.root_shell import UnreachableError\n"
UNKNOWN = "from core.probes.protocol import UnknownError\n"
FIXTURE = "import pytest\n@pytest.fixture\ndef it():\n    {}\n"


@pytest.mark.parametrize(
    ("text", "why", "unknown"),
    [
        ("def test_it(node):\n    assert False, 'swap is on'\n", "swap is on", False),
        ("import pytest\ndef test_it(node):\n    pytest.fail('swap is on')\n", "swap is on", False),
        (FIXTURE.format("assert 0, 'none'") + "def test_it(node, it):\n    pass\n", "none", False),
        ("def test_it(node, report):\n    report.judge(['swap is on'])\n", "swap is on", False),
        (
            f"{UNREACHABLE}def test_it(node):\n    raise UnreachableError('spark1', 'no route')\n",
            "spark1: cannot be asked: no route",
            True,
        ),
        (f"{UNKNOWN}def test_it(node):\n    raise UnknownError('not readable')\n", "not readable", True),
        ("def test_it(node, report):\n    report.judge([], ['not readable'])\n", "not readable", True),
        ("import json\ndef test_it(node):\n    json.loads('garbage')\n", "json.decoder.JSONDecodeError: Ex", True),
        ("def test_it(node):\n    raise TimeoutError('late')\n", "TimeoutError: late", True),
        (FIXTURE.format("raise OSError('no way in')") + "def test_it(node, it):\n    pass\n", "OSError: no w", True),
        (FIXTURE.format("yield\n    raise OSError('left open')") + "def test_it(node, it):\n    pass\n", "OSErr", True),
        ("import no_such_module\n", "", True),
    ],
)
def test_what_is_otherwise_and_what_is_not_known(verify: Path, text: str, why: str, unknown: bool) -> None:
    *_, last = alone(verify, text)
    assert last.why.startswith(why)
    assert (last.passed, last.failed, last.unknown) == (False, not unknown, unknown)


def test_what_is_not_known_is_marked_in_junit(verify: Path) -> None:
    alone(verify, f"{UNREACHABLE}def test_it(node):\n    raise UnreachableError('spark1', 'no route')\n")
    marks = [
        (one.get("name"), one.get("value"))
        for one in ET.parse(verify.with_suffix(".xml")).iter("property")  # noqa: S314 - written above
    ]
    assert ("ended", "UnreachableError") in marks


def test_a_proof_that_ends_early_is_not_known(verify: Path) -> None:
    text = "import pytest\ndef test_a(node):\n    pass\ndef test_b(node):\n    pytest.exit('enough')\n"
    *_, last = alone(verify, text)
    assert (last.machine, last.unknown) == ("spark1", True)
    assert "ended early" in last.why


def test_a_proof_that_is_killed_is_not_known(verify: Path) -> None:
    text = "import os\ndef test_it(node):\n    if node.name == 'spark2': os._exit(9)\ndef test_sw(switch): pass\n"
    outcomes = proven(verify, text)
    assert {outcome.machine for outcome in outcomes} == set(ALL), "no machine is lost"
    (killed,) = (outcome for outcome in outcomes if outcome.machine == "spark2")
    assert (killed.unknown, killed.why) == (True, "the verification was interrupted before it was complete")
    assert not any(outcome.failed for outcome in outcomes)


def test_nothing_is_sent_to_who_is_excluded(verify: Path) -> None:
    text = "def test_it(pair):\n    pass\ndef test_node(node, excluded):\n    assert excluded == {'spark2'}\n"
    (outcome,) = alone(verify, text, excluded=frozenset({"spark2"}))
    assert outcome.passed
    assert "test_node" in outcome.check


def test_an_error_without_text(verify: Path) -> None:
    (outcome,) = alone(verify, "def test_it(node):\n    raise ValueError\n", "spark1")
    assert not outcome.passed
    assert outcome.why


def test_a_skipped_check_is_no_proof(verify: Path) -> None:
    text = "import pytest\ndef test_it(node):\n    pytest.skip('not here')\n"
    outcomes = [outcome for machine in ALL for outcome in alone(verify, text, machine)]
    assert not any(outcome.passed for outcome in outcomes)
    assert {(outcome.machine, outcome.why, outcome.skipped) for outcome in outcomes} == {
        ("spark1", "not here", True),
        ("spark2", "not here", True),
    }


def test_junit_is_written(verify: Path, tmp_path: Path) -> None:
    junit = tmp_path / "new folder/verify.xml"
    proven(verify, "def test_it(node):\n    assert node.name == 'spark1', 'no'\n", junit=junit)
    suites = ET.parse(junit).getroot().findall("testsuite")  # noqa: S314 - written above
    counts = {suite.get("name"): (suite.get("tests"), suite.get("failures")) for suite in suites}
    assert counts["spark1"] == ("1", "0")
    assert counts["spark2"] == ("1", "1")


def test_where_the_user_stands_does_not_matter(verify: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    (tmp_path / "conftest.py").write_text("raise RuntimeError('read')\n")
    workdir = tmp_path / "desk"
    workdir.mkdir()
    (workdir / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such-option'\n")
    (workdir / "conftest.py").write_text("raise RuntimeError('read')\n")
    monkeypatch.chdir(workdir)
    (tmp_path / "conftest.py").unlink()
    assert reported(alone(verify, "def test_it(node):\n    pass\n", "spark1")) == [("spark1", "wire", True, "")]


@pytest.mark.parametrize("file", verify_files(), ids=lambda file: file.parent.name)
def test_each_assertion_has_a_message(file: Path) -> None:
    """Verify files are loaded before their sessions, so pytest adds no reason to an assertion."""
    asserted = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Assert)]
    assert asserted, f"{file}: it has no assertion"
    assert not [node.lineno for node in asserted if node.msg is None], f"{file}: an assertion without a message"


@pytest.mark.parametrize("junit", [True, False])
def test_only_a_junit_report_has_tracebacks(verify: Path, tmp_path: Path, junit: bool) -> None:
    """Their making costs most of the CPU time of a check that fails."""
    text = "from pathlib import Path\n\n\ndef test_it(node):\n    Path('/no/such').read_text()\n"
    path = tmp_path / "junit.xml"
    (outcome,) = proven(verify, text, ["spark1"], path if junit else None)
    assert outcome.why == "FileNotFoundError: [Errno 2] No such file or directory: '/no/such'"
    assert path.exists() == junit
    if junit:
        assert "Path('/no/such').read_text()" in path.read_text()


def test_a_plugin_of_another_package_does_not_matter(
    verify: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "installed/other_plugin-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Name: other-plugin\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[pytest11]\nother = other_plugin\n")
    text = "def pytest_runtest_call(item):\n    raise RuntimeError('of another package')\n"
    (tmp_path / "installed/other_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path / "installed")
    assert reported(alone(verify, "def test_it(node):\n    pass\n")) == [("spark1", "wire", True, "")]


@pytest.mark.parametrize(("name", "value"), [("PYTEST_ADDOPTS", "-k nothing -v"), ("PYTEST_PLUGINS", "no_such_one")])
def test_the_habits_of_the_user_do_not_matter(
    verify: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert reported(proven(verify, "def test_name(node):\n    assert False, 'no'\n", ["spark1"])) == [
        ("spark1", "wire", False, "no")
    ]
