"""The dashboards for a Grafana: made with its own types, and every expression has values over what programs export."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from roles.watch import rules
from sparkrack.watch.dashboards import FILES, files
from sparkrack.watch.history import CURVES
from sparkrack.watch.prometheus_api import PrometheusApi
from tests.generated import REPOSITORY
from tests.unit.ops.shells import write
from tests.unit.roles.healthy_watch import ALERTS
from tests.unit.roles.recorder_runs import node as files_of_a_node
from tests.unit.roles.recorder_runs import recorder, recording, until
from tests.unit.roles.test_watch_switch_rules import ALERTS as SWITCH_ALERTS
from tests.unit.roles.watch_history import RACK, RecordedRack, recorded
from tests.unit.roles.watch_server import wait_for
from tests.unit.roles.watch_tools import PROGRAMS

DASHBOARDS: dict[str, dict[str, Any]] = {
    name: json.loads(files("http://127.0.0.1:9090")[f"dashboards/{name}.json"]) for name in FILES
}
EXPRESSIONS = {
    f"{name}: {panel['title']} {target['refId']}": target["expr"].replace("$node", "spark1")
    for name, one in DASHBOARDS.items()
    for panel in one["panels"]
    for target in panel["targets"]
} | {
    f"{name}: {annotation['name']}": annotation["expr"]
    for name, one in DASHBOARDS.items()
    for annotation in one["annotations"]["list"]
}
"""Each by its dashboard, its picture and its letter."""
SERIES = re.compile(r"\b(?:sparkrack|node|vllm|sglang)[_:][A-Za-z0-9_:]+\b(?!=)")
OF_ENGINES = {
    # vllm/v1/metrics/loggers.py; its client adds _total to a counter, _bucket to a histogram
    *(f"vllm:{name}_tokens_total" for name in ("generation", "prompt")),
    *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    *("vllm:num_preemptions_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"),
    # sglang/srt/metrics/collector.py
    *(f"sglang:{name}_tokens_total" for name in ("generation", "prompt")),
    *("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"),
    *(
        f"{engine}:{name}_seconds_bucket"
        for engine in ("vllm", "sglang")
        for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency")
    ),
}
"""As public sources of vLLM and SGLang name them; no release of theirs was asked."""
OF_CONNECTX = {
    f"node_ethtool_received_{name}"
    for name in ("prio3_pause", "global_pause", "discards_phy", "out_of_buffer", "pcs_symbol_err_phy")
}
"""Counters of its driver, which no file can stand for: the claim watch.exporter-series."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedRack]:
    with recorded(tmp_path_factory.mktemp("history")) as found:
        yield found


def test_the_files_are_what_the_script_makes(tmp_path: Path) -> None:
    words: list[str | Path] = [sys.executable, REPOSITORY / "scripts/dashboards.py", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    committed = {
        path.name: path.read_text() for path in (REPOSITORY / "sparkrack/watch/files").glob("dashboard-*.json")
    }
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == committed, "`.venv/bin/python scripts/dashboards.py` renews them"


def series_of(expressions: Iterable[str]) -> set[str]:
    return {name for one in expressions for name in SERIES.findall(one)}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_an_expression_has_values(server: RecordedRack, expression: str) -> None:
    """Over six hours of a rack with a switch, a black box and a served unit, in a real Prometheus."""
    found = PrometheusApi(server.url).query_range(expression, server.end - 6 * 3600, server.end, 60)
    assert any(one.values for one in found)


def test_an_expression_without_values_would_be_noticed(server: RecordedRack) -> None:
    assert not PrometheusApi(server.url).query_range("node_boot_time", server.end - 6 * 3600, server.end, 60)


def exporter_series(folder: Path) -> set[str]:
    """The names that a real exporter has of a node with an RDMA device and a thermal zone."""
    infiniband = "/sys/class/infiniband/mlx5_0/ports/1"
    for name in ("port_rcv_data", "port_xmit_data"):
        write(folder, f"{infiniband}/counters/{name}", "1000\n")
    for name, text in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", "200 Gb/sec (4X HDR)")):
        write(folder, f"{infiniband}/{name}", f"{text}\n")
    for name, text in (("board_id", "NVD0000000001"), ("fw_ver", "28.45.4028"), ("hca_type", "MT4129")):
        write(folder, f"/sys/class/infiniband/mlx5_0/{name}", f"{text}\n")
    zone = "/sys/class/thermal/thermal_zone0"
    for name, text in (("type", "acpitz"), ("temp", "52000"), ("policy", "step_wise"), ("mode", "enabled")):
        write(folder, f"{zone}/{name}", f"{text}\n")
    for name, text in (
        ("carrier", "1"),
        ("carrier_changes", "2"),
        ("operstate", "up"),
        ("speed", "100000"),
        ("mtu", "9000"),
    ):
        write(folder, f"/sys/class/net/enp1s0f1np1/{name}", f"{text}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    program: list[str | Path] = [PROGRAMS / "prometheus-node-exporter", f"--web.listen-address={address}"]
    process = subprocess.Popen(
        [*program, f"--path.sysfs={folder}/sys"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def answer() -> str:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as page:
                text: str = page.read().decode()
                return text
        except (urllib.error.URLError, ConnectionError):
            return ""

    try:
        return set(re.findall(r"^(\w+)[{ ]", wait_for("the exporter answers", answer), re.MULTILINE))
    finally:
        process.kill()
        process.wait()


def own_series(folder: Path) -> set[str]:
    """The names that programs of this project export, and those that the rules record."""
    files_of_a_node(folder / "root")
    device = folder / "root/sys/class/infiniband/mlx5_0"
    for name, text in (
        ("ports/1/counters/port_rcv_data", "1"),
        ("ports/1/hw_counters/packet_seq_err", "1"),
        ("functions/0000:01:00.0/current_link_width", "4"),
        ("functions/0000:01:00.0/current_link_speed", "32.0 GT/s PCIe"),
    ):
        write(device, f"/{name}", f"{text}\n")
    (device / "device").symlink_to(device / "functions/0000:01:00.0")
    file = folder / "recorder.prom"
    with recording(folder, "--metrics", file):
        until(lambda: file.exists() and "sparkrack_gpu_sm_clock_hertz" in file.read_text())
    exported = file.read_text() + "\n".join(recorder.fabric_metrics(folder / "root"))
    names = set(re.findall(r"^(sparkrack_\w+)[{ ]", exported, re.MULTILINE))
    assert {"sparkrack_gpu_power_watts", "sparkrack_rdma_bytes_total", "sparkrack_pcie_link_width"} <= names
    # Every series of these programs stands whole in them.
    for program in (
        "roles/watch/files/node_metrics.py",
        "roles/watch/files/switch_reader.py",
        "sparkrack/drift/prometheus.py",
    ):
        names |= set(re.findall(r'"(sparkrack_\w+[a-z])"', (REPOSITORY / program).read_text()))
    groups = YAML(typ="safe").load(rules.rule_file(RACK).content.decode())["groups"]
    peer = '"sparkrack_recorder_peer_connected"'
    assert peer in Path(recorder.__file__ or "").read_text(), "only with a peer"
    return names | {rule["record"] for group in groups for rule in group["rules"] if "record" in rule} | {peer[1:-1]}


def test_every_series_is_one_that_a_program_exports(tmp_path: Path) -> None:
    """Of the dashboards, and of the curves of the page."""
    curves = [query for one in CURVES for query in (one.query, *(limit.query for limit in one.limits))]
    named = series_of([*EXPRESSIONS.values(), *curves])
    assert len(named) > 60
    exist = own_series(tmp_path / "own") | OF_ENGINES | OF_CONNECTX
    missing = named - exist
    assert {name.split("_")[0] for name in missing} == {"node"}
    assert missing - exporter_series(tmp_path / "exporter") == set()


def test_each_part_of_the_rack_has_its_pictures() -> None:
    """The switch, the tokens of served units, the black box, and what holds the clock down."""
    of = {name: series_of(one for key, one in EXPRESSIONS.items() if key.startswith(f"{name}:")) for name in FILES}
    assert {
        "sparkrack_switch_temperature_celsius",
        "sparkrack_switch_fan_rpm",
        "sparkrack_switch_leg_drops_total",
    } <= of["switch"]
    assert {
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
        "vllm:inter_token_latency_seconds_bucket",
    } <= of["engines"]
    assert {"sparkrack_blackbox_armed", "sparkrack_recorder_last_sample_timestamp_seconds"} <= of["blackbox"]
    assert "sparkrack_gpu_clock_event" in of["node"]


def test_a_limit_names_its_alert() -> None:
    known = {name.lower() for name in ALERTS | SWITCH_ALERTS}
    limits = [
        panel
        for one in DASHBOARDS.values()
        for panel in one["panels"]
        if "thresholds" in panel["fieldConfig"]["defaults"]
    ]
    assert len(limits) > 15
    for panel in limits:
        assert panel["description"].partition("watch.md#")[2] in known, panel["title"]
