"""The alerts about switches, judged by promtool: each fires on its failure and is silent on a healthy switch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.watch import rules, switch_reader
from tests.unit.roles.healthy_watch import RUNBOOK
from tests.unit.roles.promtool_rules import judged
from tests.unit.roles.test_watch_switch_reader import read_rack

GROUPS = yaml.load(rules.rule_file(read_rack()).content, Loader=yaml.CSafeLoader)["groups"]
(SWITCH,) = (group["rules"] for group in GROUPS if group["name"] == "switch")
ALERTS = {rule["alert"]: rule for rule in SWITCH if "alert" in rule}
STEP = 15
"""Seconds between two samples; the switch is read every 60."""
SAMPLES = 160

HERE = 'job="node",node="spark1",switch="crs812"'
LABELS = {"job": "node", "node": "spark1", "switch": "crs812"}
LEG = f'{HERE},leg="crs812/qsfp56-dd-1-1",to="spark1/1"'
PLACE = {"switch": "crs812", "leg": "crs812/qsfp56-dd-1-1", "to": "spark1/1"}
PROBLEM, PART = "sparkrack_switch_problem", "sparkrack_switch_part_read"
READ = f"sparkrack_switch_reading_timestamp_seconds{{{HERE}}}"
READINGS = " ".join(str(60 * (second // 60)) for second in range(0, STEP * SAMPLES, STEP))
DROPS = f'sparkrack_switch_leg_drops_total{{{LEG},counter="tx-drop-queue3-packet"}}'
FEC = f'sparkrack_switch_leg_errors_total{{{LEG},counter="rs-fec-uncorrected"}}'
HEAT = f'sparkrack_switch_temperature_celsius{{{HERE},sensor="cpu-temperature"}}'
FAN = f'sparkrack_switch_fan_rpm{{{HERE},fan="fan2"}}'
ONE, OTHER = (f'sparkrack_switch_psu_ok{{{HERE},psu="psu{number}"}}' for number in (1, 2))
EXPECTED = f"sparkrack_switch_psus_expected{{{HERE}}}"


def steady(value: float) -> str:
    return f"{value}x{SAMPLES}"


def growing(a_minute: int) -> str:
    """A counter that is read once a minute."""
    return " ".join(str(1000 + a_minute * (second // 60)) for second in range(0, STEP * SAMPLES, STEP))


HEALTHY: dict[str, str] = {
    f"sparkrack_switch_up{{{HERE}}}": steady(1),
    **{f'{PROBLEM}{{{HERE},problem="{one}"}}': steady(0) for one in ("unreachable", "refused", "login", "answer")},
    **{f'{PART}{{{HERE},part="{one}"}}': steady(1) for one in ("system", "temperatures", "supplies", "links")},
    READ: READINGS,
    DROPS: steady(12),
    FEC: steady(3),
    HEAT: steady(58),
    f'sparkrack_switch_temperature_celsius{{{HERE},sensor="switch-temperature"}}': steady(74.5),
    FAN: steady(4380),
    # One of the two supplies has no cable, and one is expected.
    ONE: steady(1),
    OTHER: steady(0),
    EXPECTED: steady(1),
}


@dataclass(frozen=True)
class SwitchFailure:
    """An alert, the series that differ from those of a healthy switch, and what it says."""

    alert: str
    series: dict[str, str | None]
    labels: dict[str, str]
    summary: str


def silent(problem: str) -> SwitchFailure:
    """A switch that cannot be read at all has no other series than these."""
    kept = (f"sparkrack_switch_up{{{HERE}}}", READ, EXPECTED)
    series = {name: None for name in HEALTHY if not name.startswith((PROBLEM, *kept))}
    alert = "SwitchSilent" if problem in ("unreachable", "refused") else "SwitchUnread"
    says = f"does not answer its reader: {problem}" if alert == "SwitchSilent" else f"is not read as a whole: {problem}"
    return SwitchFailure(
        alert,
        {**series, kept[0]: steady(0), f'{PROBLEM}{{{HERE},problem="{problem}"}}': steady(1)},
        {**LABELS, "problem": problem},
        f"switch crs812 {says}",
    )


FAILURES = (
    silent("unreachable"),
    silent("refused"),
    silent("login"),
    silent("answer"),
    SwitchFailure(
        "SwitchUnread",
        {OTHER: None, ONE: None, f'{PART}{{{HERE},part="supplies"}}': steady(0)},
        {**LABELS, "part": "supplies"},
        "switch crs812 is not read as a whole: supplies",
    ),
    SwitchFailure(
        "SwitchReaderStopped",
        {READ: steady(60)},
        LABELS,
        "the server of the watch has read no switch for 3 minutes",
    ),
    SwitchFailure(
        "SwitchReaderStopped",
        dict.fromkeys(HEALTHY),
        {},
        "the server of the watch has read no switch for 3 minutes",
    ),
    SwitchFailure(
        "SwitchDrops", {DROPS: growing(600)}, PLACE, "leg crs812/qsfp56-dd-1-1 to spark1/1 drops 10 frames a second"
    ),
    SwitchFailure(
        "SwitchDrops", {DROPS: growing(40)}, PLACE, "leg crs812/qsfp56-dd-1-1 to spark1/1 drops 0.667 frames a second"
    ),
    SwitchFailure(
        "SwitchErrors", {FEC: growing(60)}, PLACE, "leg crs812/qsfp56-dd-1-1 to spark1/1 has 1 errors a second"
    ),
    SwitchFailure(
        "SwitchHot",
        {HEAT: steady(81)},
        {**LABELS, "sensor": "cpu-temperature"},
        "cpu-temperature of switch crs812 is 81 C",
    ),
    SwitchFailure("SwitchFan", {FAN: steady(0)}, {**LABELS, "fan": "fan2"}, "fan2 of switch crs812 stands still"),
    SwitchFailure(
        "SwitchPsu",
        {EXPECTED: steady(2)},
        {"switch": "crs812"},
        "1 power supplies of switch crs812 are in order, fewer than watch.psus",
    ),
    SwitchFailure(
        "SwitchPsu",
        {ONE: steady(0)},
        {"switch": "crs812"},
        "0 power supplies of switch crs812 are in order, fewer than watch.psus",
    ),
)


def series(changed: dict[str, str | None]) -> list[dict[str, str]]:
    assert not changed.keys() - HEALTHY.keys()
    found = {name: value for name, value in {**HEALTHY, **changed}.items() if value is not None}
    return [{"series": name, "values": values} for name, values in found.items()]


def judge(folder: Path, changed: dict[str, str | None], looked: list[dict[str, Any]]) -> str:
    test = {"interval": f"{STEP}s", "input_series": series(changed), "alert_rule_test": looked}
    return judged(folder, test, read_rack())


def test_every_alert_is_silent_on_a_healthy_switch(tmp_path: Path) -> None:
    looked = [
        {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": []}
        for name in ALERTS
        for minutes in (2, 6, 20, 35)
    ]
    assert not judge(tmp_path, {}, looked)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: one.alert)
def test_an_alert_fires_on_its_failure_and_no_other_does(tmp_path: Path, failure: SwitchFailure) -> None:
    rule = ALERTS[failure.alert]
    wanted = {
        "exp_labels": {**failure.labels, **rule["labels"]},
        "exp_annotations": {"summary": failure.summary, "runbook": rule["annotations"]["runbook"]},
    }
    looked = [
        {"eval_time": "15m", "alertname": name, "exp_alerts": [wanted] if name == failure.alert else []}
        for name in ALERTS
    ]
    found = judge(tmp_path, failure.series, looked)
    assert not found, found


def test_a_restart_of_the_switch_raises_nothing(tmp_path: Path) -> None:
    """It is silent for two readings, and its counters begin at 0."""
    quiet = "1x12 0x7 1x100"
    changed: dict[str, str | None] = {
        f"sparkrack_switch_up{{{HERE}}}": quiet,
        f'{PROBLEM}{{{HERE},problem="unreachable"}}': "0x12 1x7 0x100",
        DROPS: "1000x12 _x7 0x100",
    }
    looked = [
        {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": []}
        for name in ALERTS
        for minutes in (3, 4, 5, 6, 8, 12)
    ]
    assert not judge(tmp_path, changed, looked)


@pytest.mark.parametrize(
    "failure",
    [one for one in FAILURES if one.alert not in ("SwitchReaderStopped", "SwitchDrops", "SwitchErrors")],
    ids=lambda one: one.alert,
)
def test_what_a_reader_that_stopped_has_read_fires_nothing_else(tmp_path: Path, failure: SwitchFailure) -> None:
    """It would silence the alerts of the links as well. Counters of a switch do not rise then."""
    looked = [
        {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": []}
        for name in ALERTS
        if name != "SwitchReaderStopped"
        for minutes in (2, 15, 35)
    ]
    found = judge(tmp_path, {**failure.series, READ: steady(-600)}, looked)
    assert not found, found


def test_every_alert_has_its_failure_a_severity_and_a_heading_of_the_runbook() -> None:
    assert {failure.alert for failure in FAILURES} == ALERTS.keys()
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("page", "ticket"), name
        assert rule["annotations"]["runbook"] == f"docs/runbooks/watch.md#{name.lower()}", name
    headings = re.findall(r"^## (Switch\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)


def test_the_limit_of_a_reading_is_that_of_the_role() -> None:
    assert f"> {switch_reader.STALE} " in str(ALERTS["SwitchReaderStopped"]["expr"])


def test_the_series_are_those_that_the_program_writes() -> None:
    program = (Path(rules.__file__).parent / "files/switch_reader.py").read_text()
    named = set(re.findall(r"sparkrack_switch_\w+", " ".join(str(rule["expr"]) for rule in ALERTS.values())))
    assert len(named) > 5
    for name in named:
        assert f'"{name}": ' in program, name
