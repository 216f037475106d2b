"""Medians, ratios and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import BenchError, report
from benchmarks.report import Results, Run


def run(tool: str, hosts: int, state: str, number: int, wall: float) -> Run:
    return {
        "tool": tool,
        "hosts": hosts,
        "state": state,
        "round": number,
        "wall": wall,
        "cpu": wall / 2,
        "peak": 50_000_000 + hosts * 1_000_000,
        "remote_cpu": 0.5 * hosts,
        "sessions": 3 * hosts,
    }


WALLS = {
    ("sparkrack", 1): (1.0, 2.0, 4.0),
    ("sparkrack", 9): (9.0, 10.0, 11.0),
    ("ansible", 1): (30.0, 40.0, 120.0),
    ("connect", 1): (0.5, 1.0, 1.0),
}
RESULTS = Results(
    {"machine": "a test"},
    [run(tool, hosts, "unchanged", n, wall) for (tool, hosts), walls in WALLS.items() for n, wall in enumerate(walls)]
    + [run("sparkrack", 1, "fresh", 0, 7.0)],
)


@pytest.mark.parametrize(
    ("values", "digits", "shown"),
    [([1.0], 1, "1.0"), ([3.0, 1.0, 2.0], 1, "2.0 (1.0-3.0)"), ([1.01, 1.02], 1, "1.0"), ([1, 2], 1, "1.5 (1.0-2.0)")],
)
def test_a_spread_is_shown_where_there_is_one(values: list[float], digits: int, shown: str) -> None:
    assert report.spread(values, digits) == shown


def test_a_ratio_is_made_within_a_round() -> None:
    # 30/1, 40/2, 120/4: the ratio of the medians would be 20 as well, its spread would not
    assert report.ratio(RESULTS, "ansible", "sparkrack", 1, "unchanged") == "30.0 (20.0-30.0)"
    assert report.ratio(RESULTS, "sparkrack", "connect", 1, "unchanged") == "2.0 (2.0-4.0)"


def test_a_ratio_to_what_was_not_measured_is_none() -> None:
    assert report.ratio(RESULTS, "sparkrack", "connect", 9, "unchanged") == "-"
    assert report.ratio(RESULTS, "ansible", "sparkrack", 1, "fresh") == "-"


def test_the_tables_show_each_tool_for_each_number_of_hosts() -> None:
    lines = report.table(RESULTS).splitlines()
    row = next(line for line in lines if line.startswith("| 1 | Ansible with pipelining"))
    assert [cell.strip() for cell in row.split("|")[3:-1]] == [
        "40.00 (30.00-120.00)",
        "20.00 (15.00-60.00)",
        "51",
        "3.0",
        "0.50",
        "30.0 (20.0-30.0)",
        "60.0 (40.0-120.0)",
    ]
    assert sum(line.startswith("| 9 | sparkrack") for line in lines) == 1
    assert "### From factory-fresh" in lines
    assert "### Without changes" in lines
    assert lines[-1] == "- machine: a test"


def test_one_more_host_costs_what_the_others_cost_together_by_their_number() -> None:
    lines = report.table(RESULTS).splitlines()
    assert "| without changes | 1 -> 9 hosts |" in lines
    assert "| sparkrack, by pyinfra deploy.py | 1.000, 0.500, 1.0 |" in lines
    assert not [line for line in lines if line.startswith("| Ansible") and line.count("|") == 3]


def test_runs_on_hosts_that_answer_from_a_record_have_a_table_of_their_own() -> None:
    apart = [run(tool, 8, "apart", n, wall) for tool in ("connect", "drift") for n, wall in enumerate((1.0, 2.0))]
    lines = report.table(Results({}, RESULTS.runs + apart)).splitlines()
    place = lines.index("### Without changes, on hosts that answer from a record")
    rows = [line for line in lines[place:] if line.startswith("| 8 | ")]
    assert [row.split("|")[2].strip() for row in rows] == ["sparkrack drift", "pyinfra, connect only"]
    assert "from a record" not in report.table(RESULTS)


def test_the_cpu_time_of_other_processes_stands_below_the_tables() -> None:
    runs = [{**one, "elsewhere": share} for one, share in zip(RESULTS.runs, (0.02, 0.31, 0.4), strict=False)]
    last = report.table(Results({}, runs)).splitlines()[-1]
    assert last == "- other processes used 31 (2-40) % of the machine's CPU time during a run"


def test_with_one_number_of_hosts_nothing_is_said_of_more() -> None:
    alone = Results({}, [one for one in RESULTS.runs if one["hosts"] == 1])
    assert "One more host" not in report.table(alone)


def test_results_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(RESULTS.text())
    assert report.read(path) == RESULTS
    path.write_text('{"schema": "another/1"}')
    with pytest.raises(BenchError, match=r"is not sparkrack\.bench/1"):
        report.read(path)


def test_the_tables_go_between_their_marks() -> None:
    page = f"before\n{report.BEGIN}old\n{report.END}\nafter\n"
    renewed = report.renewed(page, "new")
    assert renewed == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    assert report.renewed(renewed, "new") == renewed
    with pytest.raises(BenchError, match="no place"):
        report.renewed("before\n", "new")


def test_the_page_shows_what_was_measured() -> None:
    results = report.DOCS / "bench" / "results.json"
    page = (report.DOCS / "evidence/bench.md").read_text()
    assert report.renewed(page, report.table(report.read(results))) == page
