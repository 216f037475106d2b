"""The alerts, judged by promtool: each fires on its failure, names its runbook, and is silent on a healthy rack."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from roles.watch import rules
from tests.unit.roles.alert_failures import FAILURES, UNCLEAN
from tests.unit.roles.exported_series import REALLY_WRITTEN, firing, scrape_labels, scraped, written_by_a_node
from tests.unit.roles.healthy_watch import ALERTS, HEALTHY, HOSTS, N1, NODE1, RACK, RUNBOOK, TOP, VLLM, node
from tests.unit.roles.promtool_rules import Failure, expected, judged, series
from tests.unit.roles.recorder_runs import recorder
from tests.unit.roles.watch_tools import rack


def test_every_alert_is_silent_on_a_healthy_rack(tmp_path: Path) -> None:
    looked = [
        {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": []}
        for name in ALERTS
        for minutes in (2, 20, 45, 70, 139)
    ]
    assert not judged(tmp_path, {"interval": "15s", "input_series": series({}, 139), "alert_rule_test": looked})


@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: one.alert)
def test_an_alert_fires_on_its_failure(tmp_path: Path, failure: Failure) -> None:
    """With the labels and the sentence that are expected."""
    looked = {"eval_time": f"{failure.minutes}m", "alertname": failure.alert, "exp_alerts": [expected(failure)]}
    input_series = series(failure.series, failure.minutes)
    said = judged(tmp_path, {"interval": "15s", "input_series": input_series, "alert_rule_test": [looked]})
    assert not said, said


RECORDED = re.compile(r"sparkrack_(gpu|kernel|rdma|pcie)_")
"""Series of the recorder; the others of a node are those of its metrics of itself."""
OF_OLD_VALUES = {
    *("NodeMetricsStale", "RecorderStale"),
    # By the times of the boot and of the metrics.
    *("NodeRebootedWithoutCleanShutdown", "BootEndedUnclean"),
    # By changes, and old values do not change.
    *("OneRail", "RdmaSequenceErrors", "RasEvent"),
}
"""Alerts that are right about what a program wrote long ago, and those of the programs themselves."""
KNOWN = re.findall(r'^    "(sparkrack_\w+)": "', (TOP / "roles/watch/files/node_metrics.py").read_text(), re.MULTILINE)
OUTDATED = [
    failure
    for failure in FAILURES
    if failure.alert not in OF_OLD_VALUES
    and all(name.partition("{")[0] in KNOWN or RECORDED.match(name) for name in failure.series)
    # A counter that rises is written now. One part stands for all.
    and not any(re.match(r"\dx", value or "") for value in failure.series.values())
    and failure.labels.get("part", "recorder") in ("boot", "recorder")
]


@pytest.mark.parametrize("failure", OUTDATED, ids=lambda one: one.alert)
@pytest.mark.parametrize("age", ["stopped", "of the boot before"])
def test_what_its_program_does_not_renew_fires_nothing(tmp_path: Path, failure: Failure, age: str) -> None:
    """The exporter goes on with the values of a program that is dead, and with those of the boot before."""
    nodes = ('job="node",node="spark1"', 'job="node",node="spark2"')
    if age == "stopped":
        stale: dict[str, str | None] = {f"sparkrack_node_metrics_timestamp_seconds{{{here}}}": "-600" for here in nodes}
        stale |= {f'sparkrack_recorder_last_sample_timestamp_seconds{{node="{name}"}}': "-600" for name in HOSTS}
    else:
        stale = {f"node_boot_time_seconds{{{here}}}": "90000" for here in nodes}
    looked = [
        {"eval_time": f"{minutes}m", "alertname": failure.alert, "exp_alerts": []} for minutes in (2, failure.minutes)
    ]
    input_series = series({**failure.series, **stale}, failure.minutes)
    said = judged(tmp_path, {"interval": "15s", "input_series": input_series, "alert_rule_test": looked})
    assert not said, said


def test_every_alert_has_its_failure() -> None:
    assert {failure.alert for failure in FAILURES} == ALERTS.keys()


def test_every_alert_has_a_severity_and_a_heading_of_the_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("page", "ticket", "info"), name
        assert rule["annotations"]["runbook"] == f"docs/runbooks/watch.md#{name.lower()}", name
    # Those of the switch are in test_watch_switch_rules.py, and Watchdog has a receiver of its own.
    assert sorted(name for name in headings if not name.startswith(("Switch", "Watchdog"))) == sorted(ALERTS)


def test_a_node_that_dies_and_comes_back_is_one_page_and_then_a_ticket(tmp_path: Path) -> None:
    """It is dead from second 300 to 490, and writes its metrics at 540."""
    here = {name: value for name, value in node("spark1").items() if 'node="spark1"' in name}
    gone: dict[str, str | None] = {name: f"{value}x19 _x12 {value}" for name, value in here.items()}
    gone |= {
        f"up{{{N1}}}": "1x19 0x12 1",
        f"node_boot_time_seconds{{{N1}}}": "-90000x19 _x12 470",
        f"sparkrack_boot_clean{{{N1}}}": "1x19 _x12 1x4 0",
        f"sparkrack_node_metrics_timestamp_seconds{{{N1}}}": "0+15x19 _x12 285x4 540+15",
        'sparkrack_recorder_last_sample_timestamp_seconds{node="spark1"}': "0+15x19 _x12 480+15",
        f"sparkrack_journal_newest_timestamp_seconds{{{N1}}}": "0+15x19 _x12 480+15",
        **{
            f'sparkrack_{name}_received_timestamp_seconds{{{N1},sender="spark2"}}': "0+15x19 _x12 480+15"
            for name in ("journal", "netconsole")
        },
        f"up{{{VLLM}}}": "1x19 0x12 1",
    }
    reported = {"NodeSilent": range(6, 9), "BootEndedUnclean": range(10, 29)}
    at_work = [name for name, rule in ALERTS.items() if rule["labels"]["severity"] == "page"] + ["BootEndedUnclean"]
    looked: list[dict[str, Any]] = []
    for alert in at_work:
        for minute in (2, 6, 7, 8, 9, 10, 15, 28):
            says = "spark1 does not answer" if alert == "NodeSilent" else UNCLEAN
            wanted = [expected(Failure(alert, {}, minute, NODE1, says))] if minute in reported.get(alert, ()) else []
            looked.append({"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": wanted})
    said = judged(tmp_path, {"interval": "15s", "input_series": series(gone, 28), "alert_rule_test": looked})
    # Alertmanager does not tell what follows from NodeSilent: tests/unit/roles/test_watch_inhibitions.py.
    assert set(re.findall(r"alertname: (\w+), time: (\w+)", said)) == {("EngineDown", "7m"), ("EngineDown", "8m")}


def test_no_rule_has_an_error_over_what_the_programs_really_write(tmp_path: Path) -> None:
    """The files of recorder and node metrics of both nodes, with the labels of their scrape. Those of the other
    programs: tests/emulator/test_switch_reader.py.

    A series that a program exports and a rule records, too, has two values of a node: then a rule cannot be evaluated.
    """
    exported = "".join(file.read_text() for file in written_by_a_node(tmp_path))
    real = scraped(exported, *scrape_labels(RACK), now=time.time())
    named = {name.partition("{")[0] for name in HEALTHY} & {name.partition("{")[0] for name in real}
    assert {"sparkrack_gpu_sm_clock_hertz", "sparkrack_kernel_events_total", "sparkrack_boot_clean"} <= named
    for name in ("sparkrack_gpu_clock_cap_hertz", "sparkrack_unit_state", "sparkrack_unit_start_deadline"):
        assert name in exported
    assert firing(tmp_path, real, RACK) == REALLY_WRITTEN


def test_a_node_without_floor_or_cap_has_no_series_of_it() -> None:
    text = rules.rule_file(rack("{}", ("memory:\n  swap: false", "memory:\n  floor: false"))).content.decode()
    assert "sparkrack_memory_floor_bytes, expr" not in text
    assert text.count("sparkrack_gpu_declared_clock_cap_hertz, expr") == 1


def test_the_events_of_the_rules_are_those_that_the_recorder_counts() -> None:
    named = re.findall(r'event=~?"([^"]*)"', " ".join(str(rule["expr"]) for rule in ALERTS.values()))
    events = {event for names in named for event in names.split("|")}
    assert {"xid", "aer_fatal"} <= events <= set(recorder.EVENTS)
