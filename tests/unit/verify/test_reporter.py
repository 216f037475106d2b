"""A check that tells several things: each fault is a failure of its own, and notes come along."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from core.verify.outcomes import Outcome
from core.verify.runner import session
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.verify import reports


def proven(tmp_path: Path, text: str) -> list[Outcome]:
    verify = tmp_path / "wire/verify.py"
    verify.parent.mkdir()
    verify.write_text(text)
    return session(loaded(SWITCH), [str(verify)], "spark1", tmp_path / "out.xml", bandwidth=False)


def test_each_fault_is_a_failure(tmp_path: Path) -> None:
    outcomes = proven(tmp_path, "def test_it(node, report):\n    report.note('n')\n    report.judge(['one', 'two'])\n")
    assert [(o.passed, o.why, o.notes) for o in outcomes] == [(False, "one", ("n",)), (False, "two", ())]
    properties = {(p.get("name"), p.get("value")) for p in ET.parse(tmp_path / "out.xml").iter("property")}  # noqa: S314
    assert {("note", "n"), ("fault", "one"), ("fault", "two")} <= properties


def test_no_fault_is_one_pass(tmp_path: Path) -> None:
    outcomes = proven(tmp_path, "def test_it(node, report):\n    report.note('n')\n    report.judge(iter(()))\n")
    assert [(o.passed, o.why, o.notes) for o in outcomes] == [(True, "", ("n",))]


def test_what_goes_wrong_without_a_fault_reported_is_reported_itself(tmp_path: Path) -> None:
    outcomes = proven(tmp_path, "def test_it(node, report):\n    report.note('n')\n    assert 0, 'no'\n")
    assert [(o.passed, o.why, o.notes) for o in outcomes] == [(False, "no", ("n",))]


def test_a_fault_in_the_end_is_reported_itself(tmp_path: Path) -> None:
    text = (
        "import pytest\n@pytest.fixture\ndef it():\n    yield\n    raise OSError('left open')\n"
        "def test_it(node, it, report):\n    report.judge(['one'])\n"
    )
    assert [o.why for o in proven(tmp_path, text)] == ["one", "OSError: left open"]


@pytest.mark.parametrize("line", ["pytest.fail('no', pytrace=False)", "raise AssertionError('no')"])
def test_a_reason_is_reported_without_the_name_of_its_kind(tmp_path: Path, line: str) -> None:
    assert [o.why for o in proven(tmp_path, f"import pytest\ndef test_it(node):\n    {line}\n")] == ["no"]


def test_faults_and_what_is_unknown_are_distinguished(tmp_path: Path) -> None:
    outcomes = proven(tmp_path, "def test_it(node, report):\n    report.judge(['one'], ['two', 'three'])\n")
    assert [(o.why, o.failed, o.unknown) for o in outcomes] == [
        ("one", True, False),
        ("two", False, True),
        ("three", False, True),
    ]


@pytest.mark.parametrize("end", ["pass", "assert 0, 'no'", "raise OSError('no')"])
def test_a_value_is_reported_however_the_check_ends(tmp_path: Path, end: str) -> None:
    text = (
        "from tests.unit.verify.reports import carries, reach, reduced, RACK\n"
        "def test_it(node, report):\n"
        f"    report.measured(reach(RACK)[0])\n    report.measured(carries('spark1', 'spark2', 97.5))\n"
        f"    report.measured(reduced('qwen', 'spark1', 'spark2'))\n    {end}\n"
    )
    (outcome,) = proven(tmp_path, text)
    assert outcome.measured == (
        reports.reach(reports.RACK)[0],
        reports.carries("spark1", "spark2", 97.5),
        reports.reduced("qwen", "spark1", "spark2"),
    )
    properties = ET.parse(tmp_path / "out.xml").iter("property")  # noqa: S314
    values = [one.get("value", "") for one in properties if one.get("name") == "measured"]
    assert '"kind":"bandwidth"' in values[1]
