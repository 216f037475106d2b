"""The alerts, judged by promtool: each fires on its failure, names its runbook, and is silent on a healthy rack."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import Rack
from roles.watch import rules
from tests.unit.roles.recorder_runs import recorder
from tests.unit.roles.watch_tools import call, rack, written

TOP = Path(__file__).parents[3]
RUNBOOK = TOP / "docs/runbooks/watch.md"
SAMPLES = 300
"""Samples of each series, one every 15 s: 75 minutes."""
RULES = YAML(typ="safe").load(rules.rule_file(rack()).content.decode())["groups"]
ALERTS = {rule["alert"]: rule for group in RULES for rule in group["rules"] if "alert" in rule}

Series = dict[str, str]


def node(name: str, device: str = "enp1s0f1np1") -> Series:
    """What a healthy node exports, with the recorder of the black box."""
    here, half = f'job="node",node="{name}"', f'job="node",node="{name}",device="{device}"'
    own = f'node="{name}"'
    return {
        f"up{{{here}}}": "1",
        f"node_boot_time_seconds{{{here}}}": "1000",
        f'node_systemd_unit_state{{{here},name="docker.service",state="failed"}}': "0",
        f'node_thermal_zone_temp{{{here},zone="0"}}': "70",
        f'node_filesystem_avail_bytes{{{here},mountpoint="/"}}': "8e11",
        f"node_timex_offset_seconds{{{here}}}": "0.0001",
        f"node_timex_sync_status{{{here}}}": "1",
        f'node_uname_info{{{here},release="6.17.0"}}': "1",
        f"node_memory_MemAvailable_bytes{{{here}}}": "9e10",
        f"node_memory_SwapTotal_bytes{{{here}}}": "0",
        f"node_memory_CmaFree_bytes{{{here}}}": "1e6",
        f"node_memory_CmaTotal_bytes{{{here}}}": "1.3e8",
        f"node_vmstat_oom_kill{{{here}}}": "3",
        f"node_pressure_memory_stalled_seconds_total{{{here}}}": "7",
        f"sparkrack_recorder_last_sample_timestamp_seconds{{{own}}}": "0+15",
        f"sparkrack_gpu_sm_clock_hertz{{{own}}}": "2.1e9",
        f"sparkrack_gpu_utilization_ratio{{{own}}}": "0.95",
        f'sparkrack_gpu_clock_event{{{own},reason="sw_thermal"}}': "0",
        f'sparkrack_gpu_clock_event{{{own},reason="sw_power_cap"}}': "1",
        f"sparkrack_gpu_tlimit_margin_celsius{{{own}}}": "20",
        **{f'sparkrack_kernel_events_total{{{own},event="{event}"}}': "1" for event in recorder.EVENTS},
        **halves(here),
        f"node_network_carrier_changes_total{{{half}}}": "4",
        f"node_ethtool_received_prio3_pause{{{half}}}": "0+1500",
        f"node_ethtool_received_global_pause{{{half}}}": "0",
        f"node_ethtool_received_discards_phy{{{half}}}": "5",
        f"node_ethtool_received_out_of_buffer{{{half}}}": "5",
        f"node_ethtool_received_pcs_symbol_err_phy{{{half}}}": "5",
    }


def halves(here: str) -> Series:
    """The interfaces of a port that carries 100 Gb/s, and one that no cable is declared for."""
    found: Series = {}
    for device in ("enp1s0f1np1", "enP2p1s0f1np1"):
        labels = f'{here},device="{device}"'
        found |= {
            f"node_network_up{{{labels}}}": "1",
            f"node_network_carrier{{{labels}}}": "1",
            f"node_network_speed_bytes{{{labels}}}": "1.25e10",
            f"node_network_mtu_bytes{{{labels}}}": "9000",
        }
    idle = f'{here},device="enp1s0f0np0"'
    return found | {f"node_network_up{{{idle}}}": "0", f"node_network_carrier{{{idle}}}": "0"}


VLLM = 'job="vllm",node="spark1",unit="qwen"'
SGLANG = 'job="sglang",node="spark2",unit="small"'
HEALTHY: Series = {
    **node("spark1"),
    **node("spark2"),
    f"up{{{VLLM}}}": "1",
    f"vllm:num_requests_running{{{VLLM}}}": "4",
    f"vllm:num_requests_waiting{{{VLLM}}}": "0",
    f"vllm:generation_tokens_total{{{VLLM}}}": "0+100",
    f"vllm:prompt_tokens_total{{{VLLM}}}": "0+100",
    f"vllm:kv_cache_usage_perc{{{VLLM}}}": "0.5",
    f"vllm:num_preemptions_total{{{VLLM}}}": "9",
    f"sglang:num_running_reqs{{{SGLANG}}}": "0",
    f"sglang:num_queue_reqs{{{SGLANG}}}": "12",
    f"sglang:generation_tokens_total{{{SGLANG}}}": "5",
    f"sglang:prompt_tokens_total{{{SGLANG}}}": "5",
    f"sglang:token_usage{{{SGLANG}}}": "0.2",
    'prometheus_rule_evaluation_failures_total{job="prometheus",rule_group="x"}': "2",
    'prometheus_config_last_reload_successful{job="prometheus"}': "1",
    'alertmanager_config_last_reload_successful{job="alertmanager"}': "1",
    'alertmanager_notifications_failed_total{job="alertmanager",integration="webhook"}': "2",
    'prometheus_tsdb_head_series{job="prometheus"}': "30000",
}

SPARK1 = {"node": "spark1"}
NODE1 = {"job": "node", **SPARK1}
HALF1 = {"node": "spark1", "device": "enp1s0f1np1"}
N1, H1 = 'job="node",node="spark1"', 'job="node",node="spark1",device="enp1s0f1np1"'
QWEN = {"job": "vllm", "node": "spark1", "unit": "qwen"}
SMALL = {"job": "sglang", "node": "spark2", "unit": "small"}


@dataclass(frozen=True)
class Failure:
    """An alert, the series that differ from a healthy rack, when it is looked at, and what it says."""

    alert: str
    series: dict[str, str | None]
    minutes: int
    labels: dict[str, str]
    summary: str


def F(alert: str, series: dict[str, str | None], minutes: int, labels: dict[str, str], summary: str) -> Failure:  # noqa: N802
    return Failure(alert, series, minutes, labels, summary)


FAILURES = (
    F("NodeSilent", {f"up{{{N1}}}": "0"}, 2, NODE1, "spark1 does not answer"),
    F("NodeSilent", {f"up{{{N1}}}": "0"}, 70, NODE1, "spark1 does not answer"),
    F(
        "NodeRebooted",
        {f"node_boot_time_seconds{{{N1}}}": "1000x40 5000"},
        20,
        NODE1,
        "spark1 was booted in the last 30 minutes",
    ),
    F(
        "UnitFailed",
        {f'node_systemd_unit_state{{{N1},name="docker.service",state="failed"}}': "1"},
        10,
        {**NODE1, "name": "docker.service", "state": "failed"},
        "docker.service of spark1 has failed",
    ),
    F("HotZone", {f'node_thermal_zone_temp{{{N1},zone="0"}}': "96"}, 4, SPARK1, "a thermal zone of spark1 is at 96 C"),
    F(
        "DiskFull",
        {f'node_filesystem_avail_bytes{{{N1},mountpoint="/"}}': "1e10"},
        40,
        {**NODE1, "mountpoint": "/"},
        "the disk of spark1 is full, or will be within a day",
    ),
    F(
        "DiskFull",
        {f'node_filesystem_avail_bytes{{{N1},mountpoint="/"}}': "8e11-5e8"},
        40,
        {**NODE1, "mountpoint": "/"},
        "the disk of spark1 is full, or will be within a day",
    ),
    F(
        "ClockSkew",
        {f"node_timex_offset_seconds{{{N1}}}": "-0.4"},
        15,
        NODE1,
        "the clock of spark1 is not synchronized",
    ),
    F("ClockSkew", {f"node_timex_sync_status{{{N1}}}": "0"}, 15, NODE1, "the clock of spark1 is not synchronized"),
    F(
        "KernelsDiffer",
        {f'node_uname_info{{{N1},release="6.17.0"}}': None, f'node_uname_info{{{N1},release="6.17.1"}}': "1"},
        65,
        {},
        "the nodes run 2 different kernels",
    ),
    F(
        "MemoryNearFloor",
        {f"node_memory_MemAvailable_bytes{{{N1}}}": "4e9"},
        2,
        SPARK1,
        "spark1 has 3.725GiB available, near the floor of its memory guard",
    ),
    F(
        "OutOfMemoryKill",
        {f"node_vmstat_oom_kill{{{N1}}}": "3x20 4"},
        8,
        NODE1,
        "the kernel of spark1 ended a process for lack of memory",
    ),
    F(
        "SwapOn",
        {f"node_memory_SwapTotal_bytes{{{N1}}}": "17e9"},
        8,
        NODE1,
        "spark1 has swap, and rack.yaml declares none",
    ),
    F(
        "MemoryStalls",
        {f"node_pressure_memory_stalled_seconds_total{{{N1}}}": "0+3"},
        6,
        NODE1,
        "all tasks of spark1 wait for memory 20% of the time",
    ),
    F(
        "CmaLeak",
        {f"node_memory_CmaFree_bytes{{{N1}}}": "2e8"},
        8,
        NODE1,
        "the kernel of spark1 counts more contiguous memory as free than there is",
    ),
    F(
        "RecorderStale",
        {'sparkrack_recorder_last_sample_timestamp_seconds{node="spark1"}': "0"},
        5,
        SPARK1,
        "the recorder of spark1 takes no samples",
    ),
    F(
        "ClockStuckLow",
        {'sparkrack_gpu_sm_clock_hertz{node="spark1"}': "6e8"},
        4,
        SPARK1,
        "the GPU of spark1 works at 600MHz",
    ),
    F(
        "ClockAboveCap",
        {'sparkrack_gpu_sm_clock_hertz{node="spark1"}': "2.4e9"},
        4,
        SPARK1,
        "the GPU of spark1 ran at 2.4GHz, above its cap",
    ),
    F(
        "GpuSlowdown",
        {'sparkrack_gpu_clock_event{node="spark1",reason="sw_thermal"}': "1"},
        12,
        {**SPARK1, "reason": "sw_thermal"},
        "the GPU of spark1 is slowed down: sw_thermal",
    ),
    F(
        "GpuMarginGone",
        {'sparkrack_gpu_tlimit_margin_celsius{node="spark1"}': "1"},
        3,
        SPARK1,
        "the GPU of spark1 is 1 C below its limit",
    ),
    F(
        "DriverOutOfMemory",
        {'sparkrack_kernel_events_total{node="spark1",event="nvrm_no_memory"}': "1x20 2"},
        8,
        {**SPARK1, "event": "nvrm_no_memory"},
        "the GPU driver of spark1 found no memory",
    ),
    F(
        "Xid",
        {'sparkrack_kernel_events_total{node="spark1",event="xid"}': "1x20 2"},
        8,
        {**SPARK1, "event": "xid"},
        "the GPU driver of spark1 logged an Xid",
    ),
    F(
        "KernelFault",
        {'sparkrack_kernel_events_total{node="spark1",event="soft_lockup"}': "1x20 2"},
        30,
        {**SPARK1, "event": "soft_lockup"},
        "the kernel of spark1 logged a fault: soft_lockup",
    ),
    F(
        "LinkDown",
        {f"node_network_carrier{{{H1}}}": "0"},
        3,
        {"job": "node", **HALF1},
        "enp1s0f1np1 of spark1 has no link",
    ),
    # The kernel shows no carrier of an interface that is down.
    F(
        "LinkDown",
        {f"node_network_carrier{{{H1}}}": None, f"node_network_up{{{H1}}}": "0"},
        3,
        {"job": "node", **HALF1},
        "enp1s0f1np1 of spark1 has no link",
    ),
    F(
        "HalfMissing",
        {f"{name}{{{H1}}}": None for name in ("node_network_up", "node_network_carrier", "node_network_speed_bytes")},
        4,
        {**HALF1, "half": "0", "port": "1", "leg": "crs812/qsfp56-dd-1-1"},
        "spark1 has no interface enp1s0f1np1",
    ),
    F(
        "LinkFlaps",
        {f"node_network_carrier_changes_total{{{H1}}}": "4+1"},
        10,
        {"job": "node", **HALF1},
        "the link of enp1s0f1np1 of spark1 goes and comes",
    ),
    F(
        "LinkSlow",
        {f"node_network_speed_bytes{{{H1}}}": "6.25e9"},
        4,
        HALF1,
        "enp1s0f1np1 of spark1 runs at 50Gbit/s, below what rack.yaml declares",
    ),
    F("MtuChanged", {f"node_network_mtu_bytes{{{H1}}}": "1500"}, 3, HALF1, "enp1s0f1np1 of spark1 has an MTU of 1500"),
    F(
        "PauseStorm",
        {f"node_ethtool_received_prio3_pause{{{H1}}}": "0+300000"},
        5,
        {"job": "node", **HALF1},
        "enp1s0f1np1 of spark1 gets 20k pause frames a second",
    ),
    F(
        "NicDiscards",
        {f"node_ethtool_received_out_of_buffer{{{H1}}}": "0+1"},
        12,
        {"job": "node", **HALF1},
        "enp1s0f1np1 of spark1 discards frames",
    ),
    F(
        "FecErrors",
        {f"node_ethtool_received_pcs_symbol_err_phy{{{H1}}}": "0+1"},
        12,
        {"job": "node", **HALF1},
        "enp1s0f1np1 of spark1 receives errors that FEC cannot correct",
    ),
    F("EngineDown", {f"up{{{VLLM}}}": "0"}, 4, QWEN, "unit qwen on spark1 does not answer"),
    F(
        "EngineHangs",
        {f"vllm:generation_tokens_total{{{VLLM}}}": "7", f"vllm:prompt_tokens_total{{{VLLM}}}": "7"},
        10,
        QWEN,
        "unit qwen has requests and generates nothing",
    ),
    F(
        "EngineHangs",
        {f"sglang:num_running_reqs{{{SGLANG}}}": "1"},
        10,
        SMALL,
        "unit small has requests and generates nothing",
    ),
    F(
        "KvCacheFull",
        {f"vllm:kv_cache_usage_perc{{{VLLM}}}": "0.97"},
        15,
        QWEN,
        "the cache of unit qwen is 97% full",
    ),
    F(
        "QueueGrows",
        {f"sglang:num_queue_reqs{{{SGLANG}}}": "12+1"},
        15,
        SMALL,
        "72 requests wait for unit small, and more come",
    ),
    F(
        "Preemptions",
        {f"vllm:num_preemptions_total{{{VLLM}}}": "0+6"},
        25,
        QWEN,
        "unit qwen preempts requests for lack of cache",
    ),
    F(
        "RulesFail",
        {'prometheus_rule_evaluation_failures_total{job="prometheus",rule_group="x"}': "2+1"},
        10,
        {"job": "prometheus", "rule_group": "x"},
        "Prometheus cannot evaluate rules of x",
    ),
    F(
        "ConfigurationNotLoaded",
        {'alertmanager_config_last_reload_successful{job="alertmanager"}': "0"},
        4,
        {"job": "alertmanager"},
        "alertmanager runs with an older configuration",
    ),
    F(
        "NotificationsFail",
        {'alertmanager_notifications_failed_total{job="alertmanager",integration="webhook"}': "2+1"},
        10,
        {"job": "alertmanager", "integration": "webhook"},
        "Alertmanager cannot deliver alerts by webhook",
    ),
    F(
        "SeriesGrow",
        {'prometheus_tsdb_head_series{job="prometheus"}': "300000"},
        8,
        {"job": "prometheus"},
        "Prometheus has 300k series, which costs memory of a node",
    ),
)


def values(text: str) -> str:
    """A series in promtool's notation: `V` stays, `V+S` and `V-S` change by S each sample, `VxN W` turns to W."""
    first, _, last = text.partition(" ")
    if last:
        return f"{first} {last}x{SAMPLES}"
    return f"{text}x{SAMPLES}"


def series(changed: dict[str, str | None]) -> list[dict[str, str]]:
    assert not {name for name, value in changed.items() if value is None} - HEALTHY.keys()
    found = {name: value for name, value in {**HEALTHY, **changed}.items() if value is not None}
    return [{"series": name, "values": values(value)} for name, value in found.items()]


def expected(failure: Failure) -> dict[str, Any]:
    rule = ALERTS[failure.alert]
    return {
        "exp_labels": {**failure.labels, **rule["labels"]},
        "exp_annotations": {"summary": failure.summary, "runbook": rule["annotations"]["runbook"]},
    }


def judged(folder: Path, test: dict[str, Any], found: Rack | None = None) -> str:
    """What promtool says against a test; empty when all is as expected."""
    written(folder, found or rack())
    document = {"rule_files": ["sparkrack-rules.yml"], "evaluation_interval": "15s", "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(document))
    done = call("promtool", "test", "rules", folder / "test.yml")
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_every_alert_is_silent_on_a_healthy_rack(tmp_path: Path) -> None:
    looked = [
        {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": []}
        for name in ALERTS
        for minutes in (2, 20, 45, 70)
    ]
    assert not judged(tmp_path, {"interval": "15s", "input_series": series({}), "alert_rule_test": looked})


@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: one.alert)
def test_an_alert_fires_on_its_failure(tmp_path: Path, failure: Failure) -> None:
    """With the labels and the sentence that are expected."""
    looked = {"eval_time": f"{failure.minutes}m", "alertname": failure.alert, "exp_alerts": [expected(failure)]}
    said = judged(tmp_path, {"interval": "15s", "input_series": series(failure.series), "alert_rule_test": [looked]})
    assert not said, said


def test_every_alert_has_its_failure() -> None:
    assert {failure.alert for failure in FAILURES} == ALERTS.keys()


def test_every_alert_has_a_severity_and_a_heading_of_the_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("page", "ticket", "info"), name
        assert rule["annotations"]["runbook"] == f"docs/runbooks/watch.md#{name.lower()}", name
    # Those of the switch are in test_watch_switch_rules.py.
    assert sorted(name for name in headings if not name.startswith("Switch")) == sorted(ALERTS)


def test_swap_that_is_declared_raises_nothing(tmp_path: Path) -> None:
    found = rack("{}", ("memory:\n  swap: false", "memory:\n  swap: true"))
    swap = {'node_memory_SwapTotal_bytes{job="node",node="spark1"}': "17e9"}
    looked = {"eval_time": "8m", "alertname": "SwapOn", "exp_alerts": []}
    test = {"interval": "15s", "input_series": series(dict(swap)), "alert_rule_test": [looked]}
    assert not judged(tmp_path, test, found=found)


def test_a_node_without_floor_or_cap_has_no_series_of_it() -> None:
    text = rules.rule_file(rack("{}", ("memory:\n  swap: false", "memory:\n  floor: false"))).content.decode()
    assert "sparkrack_memory_floor_bytes, expr" not in text
    assert text.count("sparkrack_gpu_clock_cap_hertz, expr") == 1


def test_the_events_of_the_rules_are_those_that_the_recorder_counts() -> None:
    named = re.findall(r'event=~?"([^"]*)"', " ".join(str(rule["expr"]) for rule in ALERTS.values()))
    events = {event for names in named for event in names.split("|")}
    assert {"xid", "aer_fatal"} <= events <= set(recorder.EVENTS)
