"""A real Prometheus that has six hours of a rack: what its programs export, and what happened to it.

spark1: its GPU worked at 600 MHz for a while; now it has little memory. spark2: lost its power, and came back. The
switch drops frames of one leg.
"""

from __future__ import annotations

import json
import math
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from core.model import Rack
from roles.watch import rules
from tests.unit.roles.healthy_watch import BLACKBOX, HEALTHY, UNIT_EDIT, WIDE
from tests.unit.roles.test_watch_switch_reader import READER
from tests.unit.roles.test_watch_switch_rules import HEALTHY as HEALTHY_SWITCH
from tests.unit.roles.test_watch_switch_rules import READ
from tests.unit.roles.watch_server import wait_for
from tests.unit.roles.watch_tools import PROGRAMS, call, rack

RACK = rack("{server: spark1}", UNIT_EDIT, *WIDE, BLACKBOX, READER)
MINUTES = 360
SLOW = range(150, 176)
"""Minutes in which the GPU of spark1 was slow."""
AWAY = range(336, 344)
"""Minutes in which spark2 was without power."""

Value = Callable[[int], float | None]
"""The value of a series in a minute; None: it has none."""


@dataclass(frozen=True)
class RecordedRack:
    """The rack, the address of its Prometheus, and the last minute that is recorded, in seconds since 1970."""

    rack: Rack
    url: str
    end: float


def _steady_value(name: str, text: str, start: float) -> Value:
    """The values of a series of a healthy rack in the notation of promtool, with 15 s between two."""
    found = re.match(r"(-?[0-9.e]+)(?:\+([0-9.e]+))?", text)
    assert found, text
    first, growth = float(found[1]), 4 * float(found[2] or 0)
    if re.match(r"node_boot_time|\w+_timestamp_seconds", name):
        first += start
    return lambda minute: first + growth * minute


def _busy_share(minute: int) -> float:
    return 0.92 if minute in SLOW else max(0.0, 0.5 + 0.48 * math.sin(minute / 23))


def _constant_value(value: float) -> Value:
    return lambda _: value


def _growing_value(a_minute: float, since: int = 0) -> Value:
    return lambda minute: a_minute * max(0, minute - since)


def _wavy_counter(a_minute: float, period: int) -> Value:
    """A counter that grows by twice this much a minute at most."""
    return lambda minute: a_minute * (minute + period * math.sin(minute / period))


def _except_in(value: Value, away: range) -> Value:
    return lambda minute: None if minute in away else value(minute)


def _either_value(away: range, inside: float, outside: float) -> Value:
    return lambda minute: inside if minute in away else outside


def _alert_series(name: str, severity: str, minutes: range, **labels: str) -> dict[str, Value]:
    words = ",".join(f'{key}="{value}"' for key, value in labels.items())
    series = f'ALERTS{{alertname="{name}",alertstate="firing",severity="{severity}",{words}}}'
    return {series: lambda minute: 1.0 if minute in minutes else None}


def _node_series(name: str) -> dict[str, Value]:
    """What a node exports beside what is steady."""
    own = f'job="node",node="{name}"'
    away, slow = (AWAY, range(0)) if name == "spark2" else (range(0), SLOW)
    made: dict[str, Value] = {
        f"sparkrack_gpu_sm_clock_hertz{{{own}}}": (
            lambda minute: 6e8 if minute in slow else 2.08e8 if _busy_share(minute) < 0.1 else 2.15e9
        ),
        f"sparkrack_gpu_utilization_ratio{{{own}}}": _busy_share,
        f"sparkrack_gpu_power_watts{{{own}}}": lambda minute: 12 + (20 if minute in slow else 70) * _busy_share(minute),
        f"sparkrack_gpu_tlimit_margin_celsius{{{own}}}": lambda minute: 35 - 22 * _busy_share(minute),
        f"sparkrack_gpu_temperature_celsius{{{own}}}": lambda minute: 50 + 22 * _busy_share(minute),
        f'sparkrack_gpu_clock_event{{{own},reason="sw_power_cap"}}': _busy_share,
        f'sparkrack_gpu_clock_event{{{own},reason="hw_thermal"}}': _either_value(slow, 1, 0),
        f"node_memory_MemTotal_bytes{{{own}}}": _constant_value(128e9),
        f"node_load1{{{own}}}": lambda minute: 8 * _busy_share(minute),
        f'node_thermal_zone_temp{{{own},zone="0"}}': lambda minute: 52 + 34 * _busy_share(minute),
        f'node_cpu_seconds_total{{{own},cpu="0",mode="idle"}}': _growing_value(40),
        f'node_disk_written_bytes_total{{{own},device="nvme0n1"}}': _growing_value(6e6),
        f"sparkrack_recorder_samples_total{{{own}}}": _growing_value(120),
        f"sparkrack_recorder_dropped_samples_total{{{own}}}": _constant_value(0),
        f"sparkrack_recorder_peer_connected{{{own}}}": _constant_value(1),
    }
    for half, device in enumerate(("mlx5_0", "mlx5_1")):
        for word, way, period in (("received", "rx", 30), ("transmitted", "tx", 41)):
            # Up to 90 Gbit/s a half.
            moved = _wavy_counter(3.4e11, period)
            made[f'node_infiniband_port_data_{word}_bytes_total{{{own},device="{device}",port="1"}}'] = moved
            labels = f'{own},device="{device}",direction="{way}",half="{half}",port="1"'
            made[f"sparkrack_rdma_bytes_total{{{labels}}}"] = moved
    return {name: _except_in(value, away) for name, value in made.items()} | {f"up{{{own}}}": _either_value(away, 0, 1)}


def _leg_series(number: int, name: str) -> dict[str, Value]:
    """What the switch reports of the leg to a node."""
    own = f'job="node",node="spark1",switch="crs812",leg="crs812/qsfp56-dd-1-{number}",to="{name}/1"'
    away = AWAY if name == "spark2" else range(0)
    pauses = f"sparkrack_switch_leg_pause_frames_total{{{own}"
    return {
        f"sparkrack_switch_leg_up{{{own}}}": _either_value(away, 0, 1),
        f"sparkrack_switch_leg_bits_per_second{{{own}}}": _except_in(_constant_value(2e11), away),
        f'sparkrack_switch_leg_fec{{{own},mode="rs"}}': _except_in(_constant_value(1), away),
        f'sparkrack_switch_leg_drops_total{{{own},counter="tx-drop-queue3-packet"}}': (
            _growing_value(40, since=340) if name == "spark1" else _constant_value(12)
        ),
        f'sparkrack_switch_leg_errors_total{{{own},counter="rs-fec-uncorrected"}}': _constant_value(3),
        f'{pauses},direction="sent"}}': _growing_value(3000, since=300),
        f'{pauses},direction="received"}}': _growing_value(200),
    }


def _unit_series() -> dict[str, Value]:
    """What the engine of the unit exports."""
    vllm = 'job="vllm",node="spark1",unit="qwen"'
    made: dict[str, Value] = {
        f"vllm:num_requests_running{{{vllm}}}": lambda minute: float(round(8 * _busy_share(minute))),
        f"vllm:num_requests_waiting{{{vllm}}}": lambda minute: float(max(0, minute - 330) // 2),
        f"vllm:kv_cache_usage_perc{{{vllm}}}": lambda minute: min(0.97, 0.3 + minute / 500),
        f"vllm:generation_tokens_total{{{vllm}}}": _wavy_counter(1500, 23),
        f"vllm:prompt_tokens_total{{{vllm}}}": _growing_value(6000),
        f"vllm:prefix_cache_queries_total{{{vllm}}}": _growing_value(6000),
        f"vllm:prefix_cache_hits_total{{{vllm}}}": _growing_value(4200),
    }
    for name, seconds in (
        ("time_to_first_token", 0.4),
        ("inter_token_latency", 0.04),
        ("e2e_request_latency", 12.0),
        ("request_queue_time", 0.1),
    ):
        for le, a_minute in ((seconds / 2, 20), (seconds, 50), (4 * seconds, 60), ("+Inf", 60)):
            made[f'vllm:{name}_seconds_bucket{{{vllm},le="{le}"}}'] = _growing_value(a_minute)
    return made


def _all_series(found: Rack, start: float) -> dict[str, Value]:
    """Every series of the rack."""
    booted = start + 60 * (AWAY.stop - 1)
    steady = {**HEALTHY, **HEALTHY_SWITCH}.items()
    made: dict[str, Value] = {
        # The GPU's have other labels there.
        name: _steady_value(name, text, start)
        for name, text in steady
        if not name.startswith("sparkrack_gpu")
    }
    made |= {name: _constant_value(start + 3e7) for name in made if "_expiry_timestamp_seconds" in name}
    made |= (
        _node_series("spark1")
        | _node_series("spark2")
        | _leg_series(1, "spark1")
        | _leg_series(5, "spark2")
        | _unit_series()
    )
    made |= {
        'sparkrack_unit_state{job="node",node="spark1",unit="qwen",state="ready"}': _constant_value(1),
        'sparkrack_kernel_events_total{node="spark2",event="xid"}': _either_value(range(AWAY.start - 1), 0, 1),
        READ: lambda minute: start + 60 * minute,
        'node_boot_time_seconds{job="node",node="spark2"}': _except_in(
            lambda minute: start - 9e5 if minute < AWAY.start else booted, AWAY
        ),
        'sparkrack_boot_clean{job="node",node="spark2"}': lambda minute: float(minute < AWAY.start),
        'node_memory_MemAvailable_bytes{job="node",node="spark1"}': (
            lambda minute: (60 - 56 * max(0, minute - 240) / 120) * 2**30
        ),
        'node_memory_MemAvailable_bytes{job="node",node="spark2"}': _except_in(_constant_value(84 * 2**30), AWAY),
        **_alert_series("ClockStuckLow", "page", range(SLOW.start + 2, SLOW.stop), node="spark1"),
        **_alert_series("Heartbeat", "none", range(361), rack="two"),
        **_alert_series("NodeSilent", "page", AWAY, node="spark2", job="node"),
        **_alert_series("NodeRebootedWithoutCleanShutdown", "page", range(AWAY.stop, AWAY.stop + 30), node="spark2"),
        **_alert_series("LinkDown", "page", AWAY, node="spark2", device="enp1s0f1np1"),
        **_alert_series("NodeRebooted", "info", range(AWAY.stop, AWAY.stop + 30), node="spark2"),
        **_alert_series(
            "SwitchDrops", "ticket", range(350, 361), switch="crs812", leg="crs812/qsfp56-dd-1-1", to="spark1/1"
        ),
    }
    # What the rules record of rack.yaml; what they compute is recorded from now on.
    for group in YAML(typ="safe").load(rules.rule_file(found).content.decode())["groups"]:
        for rule in (one for one in group["rules"] if "record" in one):
            if value := re.fullmatch(r"vector\(([0-9.e]+)\)", rule["expr"].strip()):
                labels = ",".join(f"{key}={json.dumps(text)}" for key, text in rule["labels"].items())
                made[f"{rule['record']}{{{labels}}}"] = _constant_value(float(value[1]))
    return made


@contextmanager
def recorded(folder: Path, **more: Value) -> Iterator[RecordedRack]:
    """Run a Prometheus with these six hours, and with the rules of the rack, where alerts that wait for less
    than 5 minutes wait for 1 second. `more`: further series.
    """
    end = time.time() // 60 * 60
    start = end - 60 * MINUTES
    lines = [
        f"{name} {value:.15g} {start + 60 * minute:.0f}"
        for name, series in {**_all_series(RACK, start), **more}.items()
        for minute in range(MINUTES + 1)
        if (value := series(minute)) is not None
    ]
    (folder / "history.txt").write_text("\n".join((*lines, "# EOF\n")))
    done = call("promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "history.txt", folder / "data")
    assert done.returncode == 0, done.stderr
    text = rules.rule_file(RACK).content.decode()
    (folder / "rules.yml").write_text(re.sub(r"for: (30s|1m|2m|3m)$", "for: 1s", text, flags=re.MULTILINE))
    (folder / "prometheus.yml").write_text(f"global: {{evaluation_interval: 1s}}\nrule_files: [{folder}/rules.yml]\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAMS / words[0], *words[1:], f"--web.listen-address={address}"], stdout=log, stderr=log
        )
    try:

        def alerts() -> list[dict[str, Any]]:
            try:
                with urllib.request.urlopen(f"http://{address}/api/v1/alerts", timeout=60) as answer:
                    found: list[dict[str, Any]] = json.load(answer)["data"]["alerts"]
                    return found
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                return []

        def fires() -> bool:
            return any(one["labels"]["alertname"] == "MemoryNearFloor" and one["state"] == "firing" for one in alerts())

        wait_for("MemoryNearFloor fires", fires)
        yield RecordedRack(RACK, f"http://{address}", end)
    finally:
        process.kill()
        process.wait()
