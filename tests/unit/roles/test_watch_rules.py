"""The alerts, judged by promtool: each fires on its failure, names its runbook, and is silent on a healthy rack."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from core.model import Port, Rack
from roles.watch import rules, scrape
from serving import desired as serving_desired
from tests.serving.serve_modules import serve_unit
from tests.serving.test_lifecycle import SteppedUnit
from tests.unit.model.racks import DIRECT, changed, loaded
from tests.unit.model.serving_racks import VLLM as VLLM_IMAGE
from tests.unit.model.serving_racks import unit as serving_unit
from tests.unit.ops.shells import write
from tests.unit.roles import recorder_runs, serving_units
from tests.unit.roles.recorder_runs import node as files_of_a_node
from tests.unit.roles.recorder_runs import recorder, recording, until
from tests.unit.roles.serving_units import locked
from tests.unit.roles.test_watch_node_metrics import ran
from tests.unit.roles.watch_tools import call, rack

TOP = Path(__file__).parents[3]
RUNBOOK = TOP / "docs/runbooks/watch.md"
UNIT = """
images: ["IMAGE"]
models: {qwen: {source: Qwen/Qwen3, revision: main}}
serving:
  units:
    qwen: {engine: vllm, version: 0.19.1, image: "IMAGE", model: qwen, nodes: [spark1, spark2], parallel: {tensor: 2},
      context: 4096, memory: 0.8}
"""
UNIT_EDIT = ("memory:\n  swap: false\n", f"memory:\n  swap: false\n{UNIT.replace('IMAGE', VLLM_IMAGE)}")
WIDE = (("{split: 4x100G}", "{split: 2x200G}"), ("qsfp56-dd-1-3", "qsfp56-dd-1-5"))
"""Cables of 200G, for which NCCL uses both halves of a port."""
BLACKBOX = (
    "{clock_cap: {asus: 2200}}",
    "{clock_cap: {asus: 2200}, remote: tls, netconsole: plain, recorder: {}, kdump: {}}",
)
RACK = rack("{}", UNIT_EDIT, *WIDE, BLACKBOX)


def groups(found: Rack) -> list[dict[str, Any]]:
    """The groups of rules of a rack."""
    groups: list[dict[str, Any]] = YAML(typ="safe").load(rules.rule_file(found).content.decode())["groups"]
    return groups


PARTS = (
    *("watchdog", "watchdog_panics", "panic", "pstore", "journal", "evidence", "recorder", "upload"),
    *("netconsole", "clock_cap", "kdump"),
)
RULES = groups(RACK)
ALERTS = {rule["alert"]: rule for group in RULES for rule in group["rules"] if "alert" in rule}

Series = dict[str, str]


def node(name: str, device: str = "enp1s0f1np1") -> Series:
    """What a healthy node exports, with the recorder of the black box."""
    here, half = f'job="node",node="{name}"', f'job="node",node="{name}",device="{device}"'
    own = f'node="{name}"'
    return {
        f"up{{{here}}}": "1",
        f"node_boot_time_seconds{{{here}}}": "-1000",
        f'node_systemd_unit_state{{{here},name="docker.service",state="failed"}}': "0",
        f'node_thermal_zone_temp{{{here},zone="0"}}': "70",
        f'node_filesystem_avail_bytes{{{here},mountpoint="/"}}': "8e11",
        f'node_filesystem_size_bytes{{{here},mountpoint="/"}}': "3.7e12",
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
        **{f'sparkrack_kernel_events_total{{{own},event="{event}"}}': "0" for event in recorder.EVENTS},
        **halves(here),
        f"node_network_carrier_changes_total{{{half}}}": "4",
        f"node_ethtool_received_prio3_pause{{{half}}}": "0+1500",
        f"node_ethtool_received_global_pause{{{half}}}": "0",
        f"node_ethtool_received_discards_phy{{{half}}}": "5",
        f"node_ethtool_received_out_of_buffer{{{half}}}": "5",
        f"node_ethtool_received_pcs_symbol_err_phy{{{half}}}": "5",
        f'node_edac_correctable_errors_total{{{here},controller="0"}}': "2",
        f'node_edac_uncorrectable_errors_total{{{here},controller="0"}}': "0",
        **itself(here, {"spark1": "spark2", "spark2": "spark1"}[name]),
        **rdma(here),
    }


def itself(here: str, peer: str) -> Series:
    """What a healthy node exports of itself, and of the node that sends to it. It has a model that is not declared."""
    found = {
        f"sparkrack_node_metrics_timestamp_seconds{{{here}}}": "0+15",
        f'sparkrack_node_metrics_unread{{{here},part="boot"}}': "0",
        f"sparkrack_boot_clean{{{here}}}": "1",
        f'sparkrack_crash_records{{{here},place="pstore"}}': "0",
        f'sparkrack_crash_records{{{here},place="archive"}}': "0",
        **{f'sparkrack_blackbox_armed{{{here},part="{part}"}}': "1" for part in PARTS},
        f"sparkrack_journal_newest_timestamp_seconds{{{here}}}": "0+15",
        f'sparkrack_journal_received_timestamp_seconds{{{here},sender="{peer}"}}': "0+15",
        f'sparkrack_netconsole_received_timestamp_seconds{{{here},sender="{peer}"}}': "0+15",
        **{
            f'sparkrack_certificate_expiry_timestamp_seconds{{{here},certificate="{name}"}}': "2.61e6"
            for name in ("node", "ca")
        },
        f"sparkrack_memory_guard_kill_timestamp_seconds{{{here}}}": "-1000",
        f'sparkrack_model_info{{{here},model="qwen",digest="1a2b"}}': "1",
        f'sparkrack_model_info{{{here},model="other",digest="{peer}"}}': "1",
    }
    if peer == "spark1":  # no clock cap is declared for spark2
        found[f'sparkrack_blackbox_armed{{{here},part="clock_cap"}}'] = "0"
    for device in ("enp1s0f1np1", "enP2p1s0f1np1"):
        labels = f'{here},device="{device}",peer="{peer}"'
        found |= {
            f"sparkrack_bandwidth_bits_per_second{{{labels}}}": "1.08e11",
            f"sparkrack_bandwidth_least_bits_per_second{{{labels}}}": "8e10",
            f"sparkrack_bandwidth_record_current{{{labels}}}": "1",
        }
    return found


def rdma(here: str) -> Series:
    """The RDMA device of each half, under load."""
    found: Series = {}
    for half, device in enumerate(("mlx5_0", "mlx5_1")):
        labels = f'{here},device="{device}"'
        found |= {
            f"sparkrack_pcie_link_width{{{labels}}}": "4",
            f"sparkrack_pcie_link_gts{{{labels}}}": "32",
            f'sparkrack_rdma_hw_total{{{labels},counter="packet_seq_err"}}': "5",
            f'sparkrack_rdma_bytes_total{{{labels},direction="tx",half="{half}",port="1"}}': "0+3e10",
            f'sparkrack_rdma_bytes_total{{{labels},direction="rx",half="{half}",port="1"}}': "0",
        }
    return found


def halves(here: str) -> Series:
    """The interfaces of a port that carries 200 Gb/s, and one that no cable is declared for."""
    found: Series = {}
    for device in ("enp1s0f1np1", "enP2p1s0f1np1"):
        labels = f'{here},device="{device}"'
        found |= {
            f"node_network_up{{{labels}}}": "1",
            f"node_network_carrier{{{labels}}}": "1",
            f"node_network_speed_bytes{{{labels}}}": "2.5e10",
            f"node_network_mtu_bytes{{{labels}}}": "9000",
        }
    idle = f'{here},device="enp1s0f0np0"'
    return found | {f"node_network_up{{{idle}}}": "0", f"node_network_carrier{{{idle}}}": "0"}


VLLM = 'job="vllm",node="spark1",unit="qwen"'
SGLANG = 'job="sglang",node="spark2",unit="small"'
DRIFT = 'job="node",node="spark1",rack="two",ran_on="laptop"'
"""What the server exports of `sparkrack drift` on the machine of an operator, about every host."""
OLDER = 'job="node",node="spark1",rack="two",ran_on="desk"'
"""The same of another machine, which looked a while ago."""
HOSTS = ("spark1", "spark2")
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
    f"sglang:num_used_tokens{{{SGLANG}}}": "5",
    'up{job="prometheus"}': "1",
    'up{job="alertmanager"}': "1",
    'prometheus_rule_evaluation_failures_total{job="prometheus",rule_group="x"}': "2",
    'prometheus_config_last_reload_successful{job="prometheus"}': "1",
    'alertmanager_config_last_reload_successful{job="alertmanager"}': "1",
    'alertmanager_notifications_failed_total{job="alertmanager",integration="webhook"}': "2",
    'prometheus_tsdb_head_series{job="prometheus"}': "30000",
    **{f'sparkrack_drift{{{DRIFT},host="{host}",role="fabric",kind="declared"}}': "0" for host in HOSTS},
    **{f'sparkrack_unknown{{{DRIFT},host="{host}"}}': "0" for host in HOSTS},
    **{f'sparkrack_drill_timestamp_seconds{{{DRIFT},host="{host}",level="mark"}}': "-1000" for host in HOSTS},
    **{f'sparkrack_drill_passed{{{DRIFT},host="{host}",level="mark"}}': "1" for host in HOSTS},
    f"sparkrack_drift_last_run_timestamp_seconds{{{DRIFT}}}": "0+15",
}

UNCLEAN = "nothing shows that the boot of spark1 before this one ended with a shutdown"
REALLY_WRITTEN = {"NodeRebootedWithoutCleanShutdown", "BlackBoxDisarmed", "GpuSlowdown", "NodeMetricsUnread"}
"""Alerts that fire over what the programs write of the node that stands for both: it was not shut down, its black box
is not armed, nvidia-smi names a thermal reason, and there is no systemd to ask.
"""

SPARK1 = {"node": "spark1"}
NODE1 = {"job": "node", **SPARK1}
HALF1 = {"node": "spark1", "device": "enp1s0f1np1"}
N1, H1 = 'job="node",node="spark1"', 'job="node",node="spark1",device="enp1s0f1np1"'
HALF_TO = {**HALF1, "peer": "spark2"}
TO2 = f'{H1},peer="spark2"'
STARTING = f'sparkrack_unit_state{{{N1},unit="qwen",state="starting"}}'
STOPPED = f'sparkrack_unit_state{{{N1},unit="qwen",state="down"}}'
DEADLINE = f'sparkrack_unit_start_deadline_timestamp_seconds{{{N1},unit="qwen"}}'
"""Until when the coordinator of the unit lets it start."""
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


def F(alert: str, series: Mapping[str, str | None], minutes: int, labels: dict[str, str], summary: str) -> Failure:  # noqa: N802
    return Failure(alert, dict(series), minutes, labels, summary)


OFF_FABRIC: dict[str, str | None] = {
    name: "7" for name in rdma('job="node",node="spark2"') if name.startswith("sparkrack_rdma_bytes_total")
}
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
    F(
        "HotZone",
        {f'node_thermal_zone_temp{{{N1},zone="0"}}': "101"},
        4,
        SPARK1,
        "a thermal zone of spark1 is at 101 C",
    ),
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
        "RecorderStale",
        {'sparkrack_recorder_last_sample_timestamp_seconds{node="spark1"}': None},
        5,
        {**SPARK1, "part": "recorder"},
        "the recorder of spark1 takes no samples",
    ),
    F(
        "CertificateEnds",
        {f'sparkrack_certificate_expiry_timestamp_seconds{{{N1},certificate="ca"}}': "2.59e6"},
        65,
        {**NODE1, "certificate": "ca"},
        "a certificate of the black box of spark1 ends in less than 30 days: ca",
    ),
    # The clock of the node was ahead, and went back: the recorder may take no samples since.
    F(
        "RecorderStale",
        {'sparkrack_recorder_last_sample_timestamp_seconds{node="spark1"}': "1e9"},
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
    *(
        # Before the first scrape of a boot: there is no increase.
        F(
            alert,
            {f'sparkrack_kernel_events_total{{node="spark1",event="{event}"}}': "_x8 3"},
            5,
            {**SPARK1, "event": event},
            summary,
        )
        for alert, event, summary in (
            ("DriverOutOfMemory", "nvrm_no_memory", "the GPU driver of spark1 found no memory"),
            ("Xid", "xid", "the GPU driver of spark1 logged an Xid"),
            ("KernelFault", "oops", "the kernel of spark1 logged a fault: oops"),
        )
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
    # Down, up, down.
    F(
        "LinkFlaps",
        {f"node_network_carrier_changes_total{{{H1}}}": "4x20 5x4 6x4 7"},
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
    # That it was stopped is what the node wrote before its metrics stood still.
    F(
        "EngineDown",
        {f"up{{{VLLM}}}": "0", STOPPED: "1", f"sparkrack_node_metrics_timestamp_seconds{{{N1}}}": "-600"},
        4,
        QWEN,
        "unit qwen on spark1 does not answer",
    ),
    # So is until when it may start: it may be of the boot before.
    F(
        "EngineDown",
        {f"up{{{VLLM}}}": "0", DEADLINE: "9000", f"node_boot_time_seconds{{{N1}}}": "9000"},
        4,
        QWEN,
        "unit qwen on spark1 does not answer",
    ),
    # A unit that was to be ready after 10 minutes, and one that its coordinator has given up.
    F(
        "EngineDown",
        {f"up{{{VLLM}}}": "0", STARTING: "1", DEADLINE: "600"},
        13,
        QWEN,
        "unit qwen on spark1 does not answer",
    ),
    F(
        "EngineDown",
        {f"up{{{VLLM}}}": "0", f'sparkrack_unit_state{{{N1},unit="qwen",state="held"}}': "1"},
        4,
        QWEN,
        "unit qwen on spark1 does not answer",
    ),
    # Another unit starts, or this one did on another node, which was its head before.
    F(
        "EngineDown",
        {
            f"up{{{VLLM}}}": "0",
            f'sparkrack_unit_start_deadline_timestamp_seconds{{{N1},unit="small"}}': "90000",
            'sparkrack_unit_start_deadline_timestamp_seconds{job="node",node="spark2",unit="qwen"}': "90000",
        },
        4,
        QWEN,
        "unit qwen on spark1 does not answer",
    ),
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
        "AlertmanagerDown",
        {'up{job="alertmanager"}': "0"},
        4,
        {"job": "alertmanager"},
        "Alertmanager does not answer: no alert reaches a receiver",
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
    F(
        "GuardFired",
        {f"sparkrack_memory_guard_kill_timestamp_seconds{{{N1}}}": "300"},
        10,
        NODE1,
        "the memory guard of spark1 ended all its containers",
    ),
    F(
        "RasEvent",
        {'sparkrack_kernel_events_total{node="spark1",event="ras_ce"}': "1x20 2"},
        30,
        SPARK1,
        "the memory or another part of the hardware of spark1 reports errors",
    ),
    F(
        "RasEvent",
        {f'node_edac_uncorrectable_errors_total{{{N1},controller="0"}}': "0x20 1"},
        30,
        SPARK1,
        "the memory or another part of the hardware of spark1 reports errors",
    ),
    F(
        "NodeMetricsStale",
        {f"sparkrack_node_metrics_timestamp_seconds{{{N1}}}": "0"},
        15,
        NODE1,
        "spark1 does not renew what it exports of itself",
    ),
    F(
        "NodeMetricsStale",
        {f"sparkrack_node_metrics_timestamp_seconds{{{N1}}}": None},
        15,
        NODE1,
        "spark1 does not renew what it exports of itself",
    ),
    F(
        "NodeMetricsUnread",
        {f'sparkrack_node_metrics_unread{{{N1},part="boot"}}': "1"},
        15,
        {**NODE1, "part": "boot"},
        "a part of what spark1 exports of itself cannot be read: boot",
    ),
    F(
        "NodeRebootedWithoutCleanShutdown",
        {f"sparkrack_boot_clean{{{N1}}}": "0"},
        2,
        NODE1,
        UNCLEAN,
    ),
    F(
        "NodeRebootedWithoutCleanShutdown",
        # A full disk: nothing was written since the boot, which began at second 60, and the old file says `clean`.
        {f"node_boot_time_seconds{{{N1}}}": "60", f"sparkrack_node_metrics_timestamp_seconds{{{N1}}}": "45"},
        13,
        NODE1,
        UNCLEAN,
    ),
    F(
        "NodeRebootedWithoutCleanShutdown",
        # A drill ended the boot before, and then this one ended.
        {
            f"sparkrack_boot_clean{{{N1}}}": "0",
            f'sparkrack_drill_timestamp_seconds{{{DRIFT},host="spark1",level="reset"}}': "-1010",
        },
        2,
        NODE1,
        UNCLEAN,
    ),
    F(
        "BootEndedUnclean",
        {f"sparkrack_boot_clean{{{N1}}}": "0", f"node_boot_time_seconds{{{N1}}}": "-1800"},
        2,
        NODE1,
        UNCLEAN,
    ),
    F(
        "CrashRecordWaiting",
        {f'sparkrack_crash_records{{{N1},place="pstore"}}': "3"},
        8,
        {**NODE1, "place": "pstore"},
        "the kernel of spark1 left 3 records of a panic in the pstore",
    ),
    F(
        "CrashRecordWaiting",
        {f'sparkrack_crash_records{{{N1},place="archive"}}': "1"},
        8,
        {**NODE1, "place": "archive"},
        "the kernel of spark1 left 1 records of a panic in the archive",
    ),
    *(
        F(
            "BlackBoxDisarmed",
            {f'sparkrack_blackbox_armed{{{N1},part="{part}"}}': "0"},
            15,
            {**NODE1, "part": part},
            f"a part of the black box of spark1 is declared and not active: {part}",
        )
        for part in PARTS
    ),
    F(
        "RemoteJournalStale",
        {'sparkrack_journal_received_timestamp_seconds{job="node",node="spark2",sender="spark1"}': "0"},
        20,
        SPARK1,
        "the journal of spark1 does not reach another node",
    ),
    F(
        "RemoteJournalStale",
        {'sparkrack_journal_received_timestamp_seconds{job="node",node="spark2",sender="spark1"}': None},
        20,
        SPARK1,
        "the journal of spark1 does not reach another node",
    ),
    F(
        "NetconsoleSilent",
        {'sparkrack_netconsole_received_timestamp_seconds{job="node",node="spark2",sender="spark1"}': "0"},
        25,
        SPARK1,
        "no message of the kernel of spark1 reaches another node",
    ),
    F(
        "NetconsoleSilent",
        {'sparkrack_netconsole_received_timestamp_seconds{job="node",node="spark2",sender="spark1"}': None},
        25,
        SPARK1,
        "no message of the kernel of spark1 reaches another node",
    ),
    F(
        "DrillOverdue",
        {f'sparkrack_drill_timestamp_seconds{{{DRIFT},host="spark1",level="mark"}}': "-7776000"},
        70,
        {"host": "spark1"},
        "no drill of spark1 has passed in the last 90 days",
    ),
    # A drill that failed is none.
    F(
        "DrillOverdue",
        {f'sparkrack_drill_passed{{{DRIFT},host="spark1",level="mark"}}': "0"},
        70,
        {"host": "spark1"},
        "no drill of spark1 has passed in the last 90 days",
    ),
    F(
        "DrillOverdue",
        {
            f'sparkrack_drill_{name}{{{DRIFT},host="spark1",level="mark"}}': None
            for name in ("timestamp_seconds", "passed")
        },
        70,
        {"host": "spark1"},
        "no drill of spark1 has passed in the last 90 days",
    ),
    F(
        "PcieDownshift",
        {f'sparkrack_pcie_link_width{{{N1},device="mlx5_0"}}': "2"},
        4,
        {**NODE1, "device": "mlx5_0"},
        "the PCIe link of mlx5_0 of spark1 is below 4 lanes of 32 GT/s",
    ),
    F(
        "PcieDownshift",
        {f'sparkrack_pcie_link_gts{{{N1},device="mlx5_0"}}': "16"},
        4,
        {**NODE1, "device": "mlx5_0"},
        "the PCIe link of mlx5_0 of spark1 is below 4 lanes of 32 GT/s",
    ),
    F(
        "RdmaSequenceErrors",
        {f'sparkrack_rdma_hw_total{{{N1},device="mlx5_0",counter="packet_seq_err"}}': "0+30"},
        12,
        {**NODE1, "device": "mlx5_0", "counter": "packet_seq_err"},
        "mlx5_0 of spark1 counts packet_seq_err: RDMA loses packets",
    ),
    F(
        "OneRail",
        {f'sparkrack_rdma_bytes_total{{{N1},device="mlx5_1",direction="tx",half="1",port="1"}}': "7"},
        10,
        {**NODE1, "device": "mlx5_0", "direction": "tx", "half": "0", "port": "1"},
        "port 1 of spark1 sends on half 0 alone",
    ),
    F(
        "OneRail",
        {f'sparkrack_rdma_bytes_total{{{N1},device="mlx5_0",direction="tx",half="0",port="1"}}': "7"},
        10,
        {**NODE1, "device": "mlx5_1", "direction": "tx", "half": "1", "port": "1"},
        "port 1 of spark1 sends on half 1 alone",
    ),
    F(
        "EngineOffFabric",
        OFF_FABRIC,
        15,
        {"unit": "qwen"},
        "unit qwen generates, and a node of it moves nothing by RDMA",
    ),
    F(
        "HalfStuckAt13G",
        {f"sparkrack_bandwidth_bits_per_second{{{TO2}}}": "1.31e10"},
        2,
        {"job": "node", **HALF_TO},
        "enp1s0f1np1 of spark1 carried 13.1Gbit/s to spark2",
    ),
    *(
        F(
            "BandwidthUnproven",
            changed,
            70,
            HALF_TO,
            "RDMA of enp1s0f1np1 of spark1 to spark2 is not proven",
        )
        for changed in (
            {f"sparkrack_bandwidth_bits_per_second{{{TO2}}}": "7e10"},
            {f"sparkrack_bandwidth_record_current{{{TO2}}}": "0"},
            {
                f"sparkrack_bandwidth_{name}{{{TO2}}}": None
                for name in ("bits_per_second", "least_bits_per_second", "record_current")
            },
        )
    ),
    F(
        "Drift",
        {f'sparkrack_drift{{{DRIFT},host="spark2",role="fabric",kind="declared"}}': "2"},
        130,
        {"host": "spark2", "role": "fabric"},
        "2 differences between spark2 and rack.yaml in fabric",
    ),
    # Another machine that looked before finds nothing.
    F(
        "Drift",
        {
            f'sparkrack_drift{{{OLDER},host="spark2",role="fabric",kind="declared"}}': "0",
            f"sparkrack_drift_last_run_timestamp_seconds{{{OLDER}}}": "-100",
            f'sparkrack_drift{{{DRIFT},host="spark2",role="fabric",kind="declared"}}': "2",
        },
        130,
        {"host": "spark2", "role": "fabric"},
        "2 differences between spark2 and rack.yaml in fabric",
    ),
    F(
        "DriftUnknown",
        {f'sparkrack_unknown{{{DRIFT},host="spark2"}}': "1"},
        130,
        {"host": "spark2"},
        "whether spark2 is as rack.yaml declares is unknown",
    ),
    F(
        "DriftCheckOverdue",
        {f"sparkrack_drift_last_run_timestamp_seconds{{{DRIFT}}}": "-90000"},
        65,
        {},
        "`sparkrack drift` has not run for 1d 2h 5m 0s",
    ),
    F(
        "ModelsDiffer",
        {
            f'sparkrack_model_info{{{N1},model="qwen",digest="1a2b"}}': None,
            f'sparkrack_model_info{{{N1},model="qwen",digest="3c4d"}}': "1",
        },
        130,
        {"model": "qwen"},
        "the nodes have 2 different sets of files of model qwen",
    ),
)


def values(text: str, minutes: int) -> str:
    """A series in promtool's notation: `V` stays, `V+S` and `V-S` change by S each sample, `VxN W` turns to W."""
    return f"{text}x{4 * minutes + 4}"  # one each 15 s


def series(changed: dict[str, str | None], minutes: int) -> list[dict[str, str]]:
    assert not {name for name, value in changed.items() if value is None} - HEALTHY.keys()
    found = {name: value for name, value in {**HEALTHY, **changed}.items() if value is not None}
    return [{"series": name, "values": values(value, minutes)} for name, value in found.items()]


def expected(failure: Failure) -> dict[str, Any]:
    rule = ALERTS[failure.alert]
    return {
        "exp_labels": {**failure.labels, **rule["labels"]},
        "exp_annotations": {"summary": failure.summary, "runbook": rule["annotations"]["runbook"]},
    }


def judged(folder: Path, test: dict[str, Any], found: Rack | None = None) -> str:
    """What promtool says against a test; empty when all is as expected."""
    # Evaluations are what a test costs: of the alerts, only those that are looked at. Samples come every 15 s all the
    # same.
    asked = {one["alertname"] for one in test["alert_rule_test"]}
    parts = [
        group | {"rules": [rule for rule in group["rules"] if rule.get("alert", next(iter(asked))) in asked]}
        for group in (groups(found) if found else RULES)
    ]
    (folder / "sparkrack-rules.yml").write_text(json.dumps({"groups": [part for part in parts if part["rules"]]}))
    far = any(int(one["eval_time"].removesuffix("m")) > 29 for one in test["alert_rule_test"])
    document = {
        "rule_files": ["sparkrack-rules.yml"],
        "evaluation_interval": "1m" if far else "15s",
        "tests": [test],
    }
    (folder / "test.yml").write_text(json.dumps(document))
    done = call("promtool", "test", "rules", folder / "test.yml")
    return "" if done.returncode == 0 else done.stdout + done.stderr


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


def test_a_node_that_is_away_is_not_a_fault_of_the_other_end_of_its_cable(tmp_path: Path) -> None:
    """A pair with direct cables: one node boots, and its card goes up and down in its firmware and at its driver."""
    found = loaded(changed(DIRECT, ("rack: ", "watch: {}\nrack: ")))
    away = {'up{job="node",node="left"}': "1x20 0x12 1", 'up{job="node",node="right"}': "1"}
    ports = found.cabling.ports_of("right")
    assert all(isinstance(cable.b, Port) for cable in found.cabling.cables)
    links = {
        f'node_network_carrier{{job="node",node="right",device="{half.interface}"}}': "1x20 0x12 1"
        for port in ports
        for half in port.halves
    }
    flaps = {name.replace("carrier{", "carrier_changes_total{"): "2x20 3x4 4x4 5x4 6" for name in links}
    input_series = [{"series": name, "values": values(value, 30)} for name, value in {**away, **links, **flaps}.items()]
    looked: list[dict[str, Any]] = [
        {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []}
        for alert in ("LinkDown", "LinkFlaps")
        for minutes in (7, 9, 15, 22, 29)
    ]
    said = judged(tmp_path, {"interval": "15s", "input_series": input_series, "alert_rule_test": looked}, found)
    assert not said, said
    alive = [one for one in input_series if not one["series"].startswith("up{")]
    said = judged(tmp_path, {"interval": "15s", "input_series": alive, "alert_rule_test": looked}, found)
    assert "alertname: LinkDown, time: 7m" in said
    assert "alertname: LinkFlaps" in said


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


def test_a_file_of_the_boot_before_pages_nobody(tmp_path: Path) -> None:
    """A planned reboot at second 300, of a node whose boot before began with a crash: its file is renewed at 375."""
    alert = "NodeRebootedWithoutCleanShutdown"
    changed: dict[str, str | None] = {
        f"node_boot_time_seconds{{{N1}}}": "-100000x20 300",
        f"sparkrack_boot_clean{{{N1}}}": "0x24 1",
        f"sparkrack_node_metrics_timestamp_seconds{{{N1}}}": "0+15x19 285x4 375+15",
    }
    looked = [{"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []} for minutes in (5, 6, 7, 20)]
    said = judged(tmp_path, {"interval": "15s", "input_series": series(changed, 20), "alert_rule_test": looked})
    assert not said, said


def written_by_a_node(folder: Path) -> list[Path]:
    """The real files of recorder and node metrics: of a boot that did not end cleanly, with a unit that starts."""
    root, file = files_of_a_node(folder / "root"), folder / "sparkrack-recorder.prom"
    with recording(folder, "--metrics", file, "--clock-cap", 2200):
        until(lambda: file.exists() and "sparkrack_gpu_sm_clock_hertz" in file.read_text())
    boot = recorder_runs.BOOT
    write(root, f"/var/lib/sparkrack/blackbox/boots/{boot}/evidence.json", '{"clean": false, "pstore": []}')
    unit, served = "/etc/sparkrack/serve/qwen.json", locked(serving_unit())
    write(root, unit, serving_units.content(serving_desired.files(served, "n0"), "one.json"))
    (folder / "unit").mkdir()
    kept = SteppedUnit(folder / "unit")
    assert kept.lifecycle.set_desired_state("up", False, kept.clock)[0]
    write(root, "/var/lib/sparkrack/serve/qwen.rank.json", '{"state": "running"}')
    serve_unit.write_record(str(root / "var/lib/sparkrack/serve/qwen.json"), kept.saved)
    done, metrics = ran(root)
    assert done.returncode == 0, done.stderr
    return [file, metrics]


def scraped(exported: str, *targets: Mapping[str, str], now: float) -> Series:
    """The series of a text that targets export, with the labels of their scrape, and how they go on from the second
    `now`, which is 0 for promtool: what tells its own time is renewed.
    """
    found: Series = {}
    for family in text_string_to_metric_families(exported):
        for one in family.samples:
            time_of_it = one.name.endswith("_timestamp_seconds")
            value = f"{one.value - now:.0f}+15" if time_of_it else f"{one.value:.16g}"
            for target in targets:
                assert not one.labels.keys() & target.keys(), f"{one}: the scrape would rename its label"
                labels = ",".join(f'{key}="{text}"' for key, text in {**one.labels, **target}.items())
                assert f"{one.name}{{{labels}}}" not in found, f"{one} is exported twice"
                found[f"{one.name}{{{labels}}}"] = value
    return found


def firing(folder: Path, real: Series, found: Rack) -> set[str]:
    """The alerts of a rack that fire after 12 minutes over real series, and those of HEALTHY that no program here
    writes. Fails for a rule that cannot be evaluated, and a series that is exported and recorded.
    """
    written = {name.partition("{")[0] for name in real}
    recorded = {rule["record"] for group in groups(found) for rule in group["rules"] if "record" in rule}
    assert not written & recorded
    others = {name: value for name, value in HEALTHY.items() if name.partition("{")[0] not in written}
    input_series = [{"series": name, "values": values(value, 12)} for name, value in {**others, **real}.items()]
    names = rules.alert_names(found)
    looked = [{"eval_time": "12m", "alertname": name, "exp_alerts": []} for name in names]
    said = judged(folder, {"interval": "15s", "input_series": input_series, "alert_rule_test": looked}, found)
    assert not [line for line in said.splitlines() if "err:" in line], said
    return set(re.findall(r"alertname: (\w+), time: 12m", said))


def test_no_rule_has_an_error_over_what_the_programs_really_write(tmp_path: Path) -> None:
    """The files of recorder and node metrics of both nodes, with the labels of their scrape. Those of the other
    programs: tests/emulator/test_switch_reader.py.

    A series that a program exports and a rule records, too, has two values of a node: then a rule cannot be evaluated.
    """
    exported = "".join(file.read_text() for file in written_by_a_node(tmp_path))
    real = scraped(exported, *scrape_labels(RACK), now=time.time())
    named = {name.partition("{")[0] for name in HEALTHY} & {name.partition("{")[0] for name in real}
    assert {"sparkrack_gpu_sm_clock_hertz", "sparkrack_kernel_events_total", "sparkrack_boot_clean"} <= named
    for series in ("sparkrack_gpu_clock_cap_hertz", "sparkrack_unit_state", "sparkrack_unit_start_deadline"):
        assert series in exported
    assert firing(tmp_path, real, RACK) == REALLY_WRITTEN


def scrape_labels(found: Rack) -> list[dict[str, str]]:
    """The labels that a scrape of each node adds to what the node exports."""
    document = YAML(typ="safe").load(scrape.prometheus_file(found).content.decode())
    (job,) = [one for one in document["scrape_configs"] if one["job_name"] == "node"]
    return [{"job": "node", "instance": target["targets"][0], **target["labels"]} for target in job["static_configs"]]


def test_swap_that_is_declared_raises_nothing(tmp_path: Path) -> None:
    found = rack("{}", UNIT_EDIT, *WIDE, ("memory:\n  swap: false", "memory:\n  swap: true"))
    swap = {'node_memory_SwapTotal_bytes{job="node",node="spark1"}': "17e9"}
    looked = {"eval_time": "8m", "alertname": "SwapOn", "exp_alerts": []}
    test = {"interval": "15s", "input_series": series(dict(swap), 8), "alert_rule_test": [looked]}
    assert not judged(tmp_path, test, found=found)


def silent(folder: Path, alert: str, changed: dict[str, str | None], found: Rack | None = None) -> str:
    """What promtool says when an alert is silent all the time; empty when it is."""
    looked = [{"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []} for minutes in (2, 20, 70, 139)]
    return judged(folder, {"interval": "15s", "input_series": series(changed, 139), "alert_rule_test": looked}, found)


ONE_RAIL: dict[str, str | None] = {
    f'sparkrack_rdma_bytes_total{{{N1},device="mlx5_1",direction="tx",half="1",port="1"}}': "7"
}
UNPROVEN: dict[str, str | None] = {f"sparkrack_bandwidth_record_current{{{TO2}}}": "0"}
LEFT = (("rack: two", "rack: two\nleave: [memory, blackbox, fabric, rdma]"),)
CERTIFICATE_ENDS: dict[str, str | None] = {
    f'sparkrack_certificate_expiry_timestamp_seconds{{{N1},certificate="ca"}}': "2.59e6"
}
JOURNAL2 = 'sparkrack_journal_received_timestamp_seconds{job="node",node="spark2",sender="spark1"}'


@pytest.mark.parametrize(
    ("alert", "changed", "edits"),
    [
        # A unit that loads its model for longer than the alert waits.
        ("EngineDown", {f"up{{{VLLM}}}": "0", STARTING: "1", DEADLINE: "9000"}, None),
        # One long prompt, and long generations of SGLang, whose counters rise when their request has finished.
        (
            "EngineHangs",
            {
                f"vllm:generation_tokens_total{{{VLLM}}}": "7",
                f"vllm:prompt_tokens_total{{{VLLM}}}": "7",
                f"vllm:kv_cache_usage_perc{{{VLLM}}}": "0.01+0.001",
            },
            None,
        ),
        (
            "EngineHangs",
            {
                f"sglang:num_running_reqs{{{SGLANG}}}": "8",
                f'sglang:realtime_tokens_total{{{SGLANG},mode="decode"}}': "5+100",
            },
            None,
        ),
        (
            "EngineHangs",
            {f"sglang:num_running_reqs{{{SGLANG}}}": "8", f"sglang:num_used_tokens{{{SGLANG}}}": "5+100"},
            None,
        ),
        # NCCL uses one half of a port whose cable has 100G.
        ("OneRail", ONE_RAIL, (UNIT_EDIT, BLACKBOX)),
        # A unit without requests moves nothing; sockets may be allowed; a node may have no unit of several nodes.
        ("EngineOffFabric", OFF_FABRIC | {f"vllm:generation_tokens_total{{{VLLM}}}": "7"}, None),
        ("EngineOffFabric", OFF_FABRIC, (UNIT_EDIT, *WIDE, BLACKBOX, ("serving:", "serving:\n  rdma_proof: none"))),
        ("EngineOffFabric", OFF_FABRIC, (*WIDE, BLACKBOX)),
        # Nothing measures where no unit of several nodes is to run, or where rack.yaml wants no proof.
        ("BandwidthUnproven", UNPROVEN, (*WIDE, BLACKBOX)),
        ("BandwidthUnproven", UNPROVEN, (UNIT_EDIT, *WIDE, BLACKBOX, ("serving:", "serving:\n  rdma_proof: none"))),
        ("BandwidthUnproven", UNPROVEN, (UNIT_EDIT, *WIDE, BLACKBOX, ("memory: 0.8}", "memory: 0.8, state: down}"))),
        # A measurement of a boot before says nothing of now.
        ("HalfStuckAt13G", UNPROVEN | {f"sparkrack_bandwidth_bits_per_second{{{TO2}}}": "1.3e10"}, None),
        # The node that would have the journal is away: its own alert tells.
        ("RemoteJournalStale", {JOURNAL2: None, 'up{job="node",node="spark2"}': "0"}, None),
        # A node that logs nothing has nothing to send.
        (
            "RemoteJournalStale",
            {JOURNAL2: "0", f"sparkrack_journal_newest_timestamp_seconds{{{N1}}}": "0"},
            None,
        ),
        # Nothing is declared to leave a node.
        ("RemoteJournalStale", {JOURNAL2: None}, (UNIT_EDIT, *WIDE)),
        ("BlackBoxDisarmed", {f'sparkrack_blackbox_armed{{{N1},part="upload"}}': "0"}, (UNIT_EDIT, *WIDE)),
        # What an older run found counts no more.
        (
            "Drift",
            {
                f'sparkrack_drift{{{OLDER},host="spark2",role="fabric",kind="declared"}}': "2",
                f"sparkrack_drift_last_run_timestamp_seconds{{{OLDER}}}": "-100",
            },
            None,
        ),
        (
            "DriftUnknown",
            {
                f'sparkrack_unknown{{{OLDER},host="spark2"}}': "1",
                f"sparkrack_drift_last_run_timestamp_seconds{{{OLDER}}}": "-100",
            },
            None,
        ),
        # By default there is no crash kernel; without a watchdog there is no panic by it.
        ("BlackBoxDisarmed", {f'sparkrack_blackbox_armed{{{N1},part="kdump"}}': "0"}, (UNIT_EDIT, *WIDE)),
        (
            "BlackBoxDisarmed",
            {f'sparkrack_blackbox_armed{{{N1},part="watchdog_panics"}}': "0"},
            (UNIT_EDIT, *WIDE, ("{clock_cap: {asus: 2200}}", "{watchdog: false}")),
        ),
        # A watchdog that cannot cause a panic has no such series.
        ("BlackBoxDisarmed", {f'sparkrack_blackbox_armed{{{N1},part="watchdog_panics"}}': None}, None),
        ("DrillOverdue", {f"sparkrack_drift_last_run_timestamp_seconds{{{DRIFT}}}": None}, None),
        # A cable that was taken out and put in again, and a node whose links come up after a boot.
        ("LinkFlaps", {f"node_network_carrier_changes_total{{{H1}}}": "4x70 5x4 6"}, None),
        (
            "LinkFlaps",
            {
                f"node_boot_time_seconds{{{N1}}}": "1000x70 2050",
                f"node_network_carrier_changes_total{{{H1}}}": "4x70 3",
            },
            None,
        ),
        # A model that has arrived: the rest of the disk does not go as fast.
        (
            "DiskFull",
            {f'node_filesystem_avail_bytes{{{N1},mountpoint="/"}}': "2e12x40 1.9e12x8 1.8e12x8 1.7e12x8 1.6e12"},
            None,
        ),
        # The recorder of a node that is off takes no samples; NodeSilent tells.
        (
            "RecorderStale",
            {
                'sparkrack_recorder_last_sample_timestamp_seconds{node="spark1"}': None,
                f"up{{{N1}}}": "0",
            },
            None,
        ),
        # A certificate that is left from before `remote: plain` is not used.
        ("CertificateEnds", CERTIFICATE_ENDS, (("{clock_cap: {asus: 2200}}", "{remote: plain}"),)),
        # What a left role would set is compared with nothing.
        ("CertificateEnds", CERTIFICATE_ENDS, (*LEFT, UNIT_EDIT)),
        ("SwapOn", {f"node_memory_SwapTotal_bytes{{{N1}}}": "17e9"}, (*LEFT, UNIT_EDIT)),
        ("MemoryNearFloor", {f"node_memory_MemAvailable_bytes{{{N1}}}": "4e9"}, (*LEFT, UNIT_EDIT)),
        ("ClockAboveCap", {'sparkrack_gpu_sm_clock_hertz{node="spark1"}': "2.4e9"}, (*LEFT, UNIT_EDIT)),
        ("MtuChanged", {f"node_network_mtu_bytes{{{H1}}}": "1500"}, (*LEFT, UNIT_EDIT)),
        # An end without a shutdown, and its records, are not news later.
        (
            "NodeRebootedWithoutCleanShutdown",
            {f"sparkrack_boot_clean{{{N1}}}": "0", f"node_boot_time_seconds{{{N1}}}": "-1800"},
            None,
        ),
        (
            "BootEndedUnclean",
            {f"sparkrack_boot_clean{{{N1}}}": "0", f"node_boot_time_seconds{{{N1}}}": "-86400"},
            None,
        ),
        # A drill ended the boot before.
        *(
            (
                alert,
                {
                    f"sparkrack_boot_clean{{{N1}}}": "0",
                    f'sparkrack_drill_timestamp_seconds{{{DRIFT},host="spark1",level="reset"}}': "-700",
                },
                None,
            )
            for alert in ("NodeRebootedWithoutCleanShutdown", "BootEndedUnclean")
        ),
        # Nodes at work have zones of 93 to 96 C.
        ("HotZone", {f'node_thermal_zone_temp{{{N1},zone="0"}}': "96"}, None),
        # An engine that does not show its cache may compute one prompt for a quarter of an hour.
        (
            "EngineHangs",
            {
                f"vllm:generation_tokens_total{{{VLLM}}}": "7",
                f"vllm:prompt_tokens_total{{{VLLM}}}": "7",
                f"vllm:kv_cache_usage_perc{{{VLLM}}}": None,
            },
            None,
        ),
        (
            "EngineHangs",
            {f"sglang:num_running_reqs{{{SGLANG}}}": "8", f"sglang:num_used_tokens{{{SGLANG}}}": None},
            None,
        ),
        # `serve stop` of a unit that rack.yaml wants up.
        (
            "EngineDown",
            {f"up{{{VLLM}}}": "0", STOPPED: "1"},
            None,
        ),
        (
            "CrashRecordWaiting",
            {
                f'sparkrack_crash_records{{{N1},place="archive"}}': "1",
                f"node_boot_time_seconds{{{N1}}}": "-604800",
            },
            None,
        ),
    ],
)
def test_an_alert_is_silent_where_its_cause_is_not(
    tmp_path: Path, alert: str, changed: dict[str, str | None], edits: tuple[tuple[str, str], ...] | None
) -> None:
    said = silent(tmp_path, alert, changed, None if edits is None else rack("{}", *edits))
    assert not said, said


def test_a_node_without_floor_or_cap_has_no_series_of_it() -> None:
    text = rules.rule_file(rack("{}", ("memory:\n  swap: false", "memory:\n  floor: false"))).content.decode()
    assert "sparkrack_memory_floor_bytes, expr" not in text
    assert text.count("sparkrack_gpu_declared_clock_cap_hertz, expr") == 1


def test_the_events_of_the_rules_are_those_that_the_recorder_counts() -> None:
    named = re.findall(r'event=~?"([^"]*)"', " ".join(str(rule["expr"]) for rule in ALERTS.values()))
    events = {event for names in named for event in names.split("|")}
    assert {"xid", "aer_fatal"} <= events <= set(recorder.EVENTS)
