"""The page of the acceptance of the black box: each check has a command which selects tests that are there, and the
tables are those of the records."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.generated import check
from tests.lab import black_box_ends, black_box_kills
from tests.lab.black_box_kills import PAGE, RECORD, STARVED_RECORD, WITNESSES, read, starved_table, table
from tests.unit.test_serving_acceptance import commands, faults, rows


def test_each_check_has_a_command_that_selects_tests() -> None:
    page = PAGE.read_text()
    known = {row[0] for row in rows(page, "Levels")}
    checks = {int(row[0]): row[2].split(", ") for row in rows(page, "Checks")}
    assert list(checks) == list(range(1, 11))
    assert set().union(*checks.values()) == known
    written = commands(page.partition("\n## Kills\n")[0])
    assert list(written) == list(checks)
    assert {number: found for number, words in written.items() if (found := faults(words))} == {}


@pytest.mark.parametrize(
    ("level", "parts"),
    [
        ("lab", ["tests/lab/"]),
        ("servers", ["_end_to_end.py"]),
        ("files", ["unit/autopsy", "/test_blackbox_", "_rules"]),
    ],
)
def test_a_level_is_that_of_the_tests_that_the_command_selects(level: str, parts: list[str]) -> None:
    page = PAGE.read_text()
    named = {int(row[0]) for row in rows(page, "Checks") if level in row[2].split(", ")}
    written = commands(page.partition("\n## Kills\n")[0])
    shown = {n for n, words in written.items() if any(part in word for part in parts for word in words if "/" in word)}
    if level == "files":  # tests of the lab have blackbox in their names, too
        shown = {n for n in shown if any("tests/unit/" in word for word in written[n])}
    assert named == shown


def test_the_tables_are_those_of_the_records() -> None:
    check("docs/evidence/blackbox-acceptance.md", "kills", table(read(RECORD)))
    check("docs/evidence/blackbox-acceptance.md", "starved", starved_table(read(STARVED_RECORD)))
    check(
        "docs/evidence/blackbox-acceptance.md",
        "ends",
        black_box_ends.table(read(black_box_ends.RECORD, black_box_ends.SCHEMA, "ends")),
    )


def test_each_record_is_whole() -> None:
    """Ten kills, five of each kind of a starved node, and each end as often as it is to be done."""
    assert len(read(RECORD)) >= 10
    assert Counter(one["starved"] for one in read(STARVED_RECORD)) == dict.fromkeys(black_box_kills.STARVE, 5)
    done = Counter(one["end"] for one in read(black_box_ends.RECORD, black_box_ends.SCHEMA, "ends"))
    assert done == {name: end.times for name, end in black_box_ends.ENDS.items()}


def test_the_kills_of_starved_nodes_are_distinguished_by_what_was_short() -> None:
    def kill(starved: str, lost: float | None) -> dict[str, Any]:
        return {"load": 2.0, "starved": starved, "counted": 12.5, "lost": dict.fromkeys(WITNESSES, lost)}

    lines = starved_table([kill("memory", 0.2), kill("disk", 3.0), kill("memory", None), kill("memory", -0.4)])
    assert "memory: 3 kills; disk: 1 kills; load of the machine 2.0 to 2.0." in lines
    assert "| remote journal | 0.4 | 12.5 | 3.0 | 3.0 |" in lines.splitlines()


@pytest.mark.parametrize(
    ("end", "verdict", "right_boot", "right"),
    [
        ("`reboot`", "planned", True, True),
        ("`reboot`", "planned", False, False),
        ("`reboot`", "unknown", True, False),
        ("`systemctl soft-reboot`, then a kill", "power", True, True),
        ("`systemctl soft-reboot`, then a kill", "planned", True, False),
    ],
)
def test_a_verdict_is_right_when_it_is_that_of_the_boot_that_ended(
    end: str, verdict: str, right_boot: bool, right: bool
) -> None:
    one = {"end": end, "verdict": verdict, "confidence": "high", "right_boot": right_boot, "load": 1.5}
    assert black_box_ends.is_right(one) == right
    assert f"{right:d} of 1 verdicts are right; load of the machine 1.5 to 1.5." in black_box_ends.table([one])


def test_the_worst_is_named_whatever_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record with enough kills is rendered without a virtual rack."""
    lost: dict[str, list[float | None]] = {name: [0.1, -2.0, 0.4] for name in WITNESSES}
    lost["own journal"] = [0.1, None, 0.4]
    kills = [
        {
            "load": load,
            "verdict": "power" if number else "unknown",
            "confidence": "medium" if number else None,
            "counted": 12.5,
            "lost": {name: values[number] for name, values in lost.items()},
        }
        for number, load in enumerate((1.0, 9.5, 3.0))
    ]
    text = table(kills)
    assert "Seconds lost in 3 kills; load of the machine 1.0 to 9.5." in text
    assert "| 0.4 | 2.0 | 2 |" in next(line for line in text.splitlines() if line.startswith("| netconsole"))
    assert "| 0 | 2 | 2 |" in next(line for line in text.splitlines() if line.startswith("| switch"))
    assert "| 0.4 | all of 12.5 | 2 |" in next(line for line in text.splitlines() if line.startswith("| own journal"))
    assert "1 times `unknown`; 2 times `power`, medium confidence." in text
    page = tmp_path / "page.md"
    page.write_text(f"a\n{black_box_kills.BEGIN.format('kills')}old\n{black_box_kills.END}\nb\n")
    monkeypatch.setattr(black_box_kills, "PAGE", page)
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"schema": black_box_kills.SCHEMA, "kills": kills}))
    assert black_box_kills.main(["--kills", "3", "--record", str(record), "--docs"]) == 0
    assert page.read_text() == f"a\n{black_box_kills.BEGIN.format('kills')}{text}{black_box_kills.END}\nb\n"


def test_a_witness_without_a_count_has_lost_all_of_them() -> None:
    """The last count may have reached a witness and not the truth: the kill came in between."""
    truth = {1: 100.0, 2: 100.1, 3: 113.0}
    times = [black_box_kills._time_of(number, truth) for number in (0, 1, 3, 4)]
    assert [black_box_kills._seconds_to_last_count(at, truth) for at in times] == [None, 13.0, 0.0, 0.0]
    assert black_box_kills._leg_down({"timeline": []}, 1.0) is None
