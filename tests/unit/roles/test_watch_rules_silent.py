"""Alerts that are silent where their cause is not: each exception of a rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.model import Port
from tests.unit.model.racks import DIRECT, changed, loaded
from tests.unit.roles.alert_failures import OFF_FABRIC
from tests.unit.roles.healthy_watch import (
    BLACKBOX,
    DEADLINE,
    DRIFT,
    H1,
    N1,
    OLDER,
    SGLANG,
    STARTING,
    STOPPED,
    TO2,
    UNIT_EDIT,
    VLLM,
    WIDE,
)
from tests.unit.roles.promtool_rules import judged, series, silent, values
from tests.unit.roles.watch_tools import rack


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


def test_swap_that_is_declared_raises_nothing(tmp_path: Path) -> None:
    found = rack("{}", UNIT_EDIT, *WIDE, ("memory:\n  swap: false", "memory:\n  swap: true"))
    swap = {'node_memory_SwapTotal_bytes{job="node",node="spark1"}': "17e9"}
    looked = {"eval_time": "8m", "alertname": "SwapOn", "exp_alerts": []}
    test = {"interval": "15s", "input_series": series(dict(swap), 8), "alert_rule_test": [looked]}
    assert not judged(tmp_path, test, found=found)


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
