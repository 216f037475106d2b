"""The rack of the tests of alerts, its rules, and the series of a healthy rack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from core.model import Rack
from roles.watch import rules
from tests.unit.model.serving_racks import VLLM as VLLM_IMAGE
from tests.unit.roles.recorder_runs import recorder
from tests.unit.roles.watch_tools import rack

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
    groups: list[dict[str, Any]] = yaml.load(rules.rule_file(found).content, Loader=yaml.CSafeLoader)["groups"]
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
