"""What a report makes of the outcomes of a proof."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from core.verify.outcomes import Outcome
from core.verify.report import Report, report
from core.verify.report_text import render_report
from tests.unit.verify import reports
from tests.unit.verify.reports import ALL, NODES, ORIGIN, RACK, failed, fine, passed, reported, skipped

GOOD, BAD = passed("spark1", "memory"), failed("spark1", "memory", "swap is on")
DARK = failed("spark1", "memory", reports.DEAD, unknown=True)
OUT = skipped("spark1", "memory", "not declared")


@pytest.mark.parametrize(
    ("outcomes", "verdict", "code"),
    [
        ([GOOD], "passed", 0),
        ([GOOD, OUT], "passed", 0),
        ([GOOD, BAD], "failed", 2),
        ([BAD], "failed", 2),
        ([GOOD, DARK], "unknown", 1),
        ([GOOD, BAD, DARK], "unknown", 1),
        ([OUT], "unknown", 1),
        ([], "unknown", 1),
    ],
)
def test_the_verdict(outcomes: list[Outcome], verdict: str, code: int) -> None:
    found = reported(outcomes)
    assert (found.verdict, found.exit) == (verdict, code)


def test_every_check_is_counted_once() -> None:
    found = reported([GOOD, GOOD, BAD, DARK, OUT])
    assert (found.passed, found.failed, found.unknown) == (2, 1, 1)
    (cell,) = (cell for cell in found.cells if (cell.host, cell.role) == ("spark1", "memory"))
    assert (cell.passed, cell.failed, cell.unknown, cell.skipped) == (2, 1, 1, 1)
    assert sum(cell.passed + cell.failed + cell.unknown + cell.skipped for cell in found.cells) == 5


def test_the_same_words_are_reported_once() -> None:
    found = reported([failed("spark2", "docker", reports.DEAD, unknown=True, check=f"test_{n}") for n in "abc"])
    (failure,) = found.failures
    assert (failure.host, failure.role, failure.reason, failure.unknown) == ("spark2", "docker", reports.DEAD, True)
    assert failure.checks == ("test_a[spark2]", "test_b[spark2]", "test_c[spark2]")


def test_what_failed_and_what_is_unknown_are_called_so_in_words() -> None:
    paper = StringIO()
    console = Console(file=paper, width=200, highlight=False)
    render_report(reported([GOOD, BAD, DARK, OUT]), console, quiet=True)
    assert paper.getvalue().splitlines() == [
        "failed memory: swap is on",
        f"unknown memory: {reports.DEAD}",
        "1 passed, 1 failed, 1 unknown",
    ]


def test_other_words_parts_and_kinds_stay_apart() -> None:
    outcomes = [
        BAD,
        failed("spark2", "memory", BAD.why),
        failed("spark1", "docker", BAD.why),
        replace(BAD, unknown=True),
    ]
    assert len(reported([*outcomes, failed("spark1", "memory", "no guard")]).failures) == 5


@pytest.mark.parametrize("sign", ["\x1b[2J", "\u202e", "\u2028", "\x00", "\r"])
def test_words_of_a_machine_steer_nothing(sign: str) -> None:
    text = f"a{sign}b"
    found = reported([failed("spark1", "memory", text), skipped("spark1", "rdma", text), replace(GOOD, notes=(text,))])
    for line in (found.failures[0].reason, found.skipped[0].text, found.notes[0].text):
        assert sign not in line
        assert line.startswith("a\\")


def test_what_was_not_checked_is_said() -> None:
    assert reported(fine()).not_checked == ()
    assert reported([GOOD], ["spark1"], ["memory"]).not_checked[:3] == ("spark2", "crs812", "preflight")


def test_every_pair_is_there_though_no_one_reported_of_it() -> None:
    assert [value.reached for value in reported(fine()).reach] == [True] * 4
    assert [value.reached for value in reported([DARK]).reach] == [None] * 4
    half = [one for one in fine() if one.machine != "spark2"]
    assert [value.reached for value in reported(half).reach] == [True, True, None, None]


def test_pairs_are_those_that_were_to_be_looked_at() -> None:
    assert reported([GOOD], parts=["memory"]).reach == ()
    assert {value.sender for value in reported(fine(), ["spark1"]).reach} == {"spark1"}
    assert report(RACK, ["spark1"], ["fabric"], fine(), ORIGIN, excluded=["spark2"]).reach == ()


def test_a_pair_that_is_not_reached() -> None:
    values = reports.reach(RACK, reached=False)
    found = reported([replace(failed("spark1", "fabric", "no"), measured=(values[0],))])
    assert [value.reached for value in found.reach] == [False, None, None, None]


def test_json_comes_back_the_same() -> None:
    outcomes = [*fine(), BAD, passed("spark1", "rdma", measured=(reports.carries("spark1", "spark2", 97.5),))]
    found = reported(outcomes)
    text = found.to_json()
    assert next(iter(json.loads(text))) == "schema"
    assert json.loads(text)["schema"] == "sparkrack.verify/2"
    assert json.loads(text)["bandwidth"][0]["gbps"] == [97.5]
    assert Report.model_validate_json(text) == found


def test_an_all_reduce_is_in_the_json_and_a_report_of_before_has_none() -> None:
    measured = (reports.reduced("qwen", "spark1", "spark2"), reports.unmeasured("gpt", "spark1", reason="it runs"))
    found = reported([*fine(), passed("spark1", "serving", measured=measured)])
    value = json.loads(found.to_json())
    assert [(one["gbytes"], one["wire"], one["slow"]) for one in value["all_reduce"]] == [
        (19.24, [97.1, 97.4], "nothing"),
        (None, [], None),
    ]
    assert Report.model_validate_json(found.to_json()) == found
    del value["all_reduce"]
    assert Report.model_validate(value).all_reduce == ()


def test_order_is_that_of_the_rack() -> None:
    found = reported(fine())
    assert tuple(dict.fromkeys(cell.host for cell in found.cells)) == ALL
    assert tuple(dict.fromkeys(value.sender for value in found.reach)) == NODES


def printed(outcomes: list[Outcome], **how: bool) -> list[str]:
    paper = StringIO()
    render_report(reported(outcomes), Console(file=paper, width=200, highlight=False), **how)
    return [line.rstrip() for line in paper.getvalue().splitlines()]


def test_a_report_in_words_has_its_table_skips_failures_notes_and_count() -> None:
    lines = printed([GOOD, GOOD, BAD, OUT, passed("spark2", "memory")])
    (title,) = (line.strip() for line in lines if "checks passed" in line)
    assert title == f"{RACK.rack}: checks passed"
    (row,) = (line for line in lines if "memory" in line and "2/3" in line)
    assert "1/1" in row
    assert "skipped memory: not declared" in lines
    assert any(line.startswith("failed memory: ") and line.endswith("swap is on") for line in lines)
    assert lines[-1] == "3 passed, 1 failed"


def test_a_brief_report_has_no_failures_and_a_quiet_one_no_table() -> None:
    assert not any("swap is on" in line for line in printed([GOOD, BAD, OUT], brief=True))
    assert any("checks passed" in line for line in printed([GOOD, BAD, OUT], brief=True))
    quiet = printed([GOOD, BAD, OUT], quiet=True)
    assert len(quiet) == 2
    assert quiet[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize(
    ("outcomes", "last"),
    [
        ([], ["0 passed, 0 failed", "nothing was proven"]),
        ([OUT], ["0 passed, 0 failed", "nothing was proven"]),
        ([DARK], ["0 passed, 0 failed, 1 unknown"]),
        ([GOOD], ["1 passed, 0 failed"]),
        ([BAD], ["0 passed, 1 failed"]),
    ],
)
def test_a_report_about_nothing_says_that_nothing_was_proven(outcomes: list[Outcome], last: list[str]) -> None:
    assert printed(outcomes, brief=True, quiet=True) == last
