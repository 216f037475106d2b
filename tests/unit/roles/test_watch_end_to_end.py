"""Real exporters, Prometheus and Alertmanager, started as the role starts them: an alert reaches its receiver, the
command shows the rack, and the proof of the role fails for what is broken."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.verify.reporter import CheckReporter
from roles.watch import desired, verify
from roles.watch.desired import ALERTMANAGER_PORT, alertmanager_dropin, server_address
from sparkrack.cli.main import sparkrack
from sparkrack.cli.watch_delivery import deliver_drift
from sparkrack.drift.findings import drift_of
from sparkrack.watch import delivery
from sparkrack.watch.collect import NODE_QUERIES, UNIT_QUERIES
from sparkrack.watch.history import BOOTS, CURVES, FIRED, LEGS
from sparkrack.watch.prometheus_api import PrometheusApi, PrometheusError
from sparkrack.watch.switches import LEG_QUERIES, STATE_QUERIES, SWITCH_QUERIES
from tests.unit.autopsy.nodes import Nodes
from tests.unit.cli.cli_fixtures import SPARKRACK
from tests.unit.drift.plans import machine, plan
from tests.unit.model.racks import SWITCH, changed
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Machine, reported
from tests.unit.roles.test_watch_node_metrics import BOOT, UNITS, boots, guarded, ran, systemd
from tests.unit.roles.test_watch_switch_reader import read_rack
from tests.unit.roles.watch_server import LIMIT, Server, on_loopback, running, wait_for
from tests.unit.roles.watch_tools import written

WATCHING = ("rack: two", "rack: two\nblackbox: {clock_cap: {asus: 2200}}\nwatch: {}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("watch")) as found:
        api = PrometheusApi(found.url)

        def ready() -> bool:
            try:
                return sum(sample.value for sample in api.query('up{job=~"node|alertmanager"}')) == 3
            except PrometheusError:
                return False

        wait_for("exporters are scraped", ready)
        yield found


def shown(server: Server, folder: Path, *words: str) -> Result:
    file = folder / "rack.yaml"
    file.write_text(changed(SWITCH, WATCHING))
    arguments = ["watch", "--rack", str(file), "--url", server.url, *words]
    return CliRunner().invoke(sparkrack, arguments, catch_exceptions=False)


def test_every_query_is_answered(server: Server) -> None:
    """A mistake in one of them is an error of the API."""
    api = PrometheusApi(server.url)
    switches = (*SWITCH_QUERIES.values(), *LEG_QUERIES.values(), *STATE_QUERIES.values())
    curves = [query for curve in CURVES for query in (curve.query, *(one.query for one in curve.limits if one.query))]
    curves += [BOOTS, LEGS, FIRED.format(step=60)]
    for query in (*NODE_QUERIES.values(), *UNIT_QUERIES.values(), *switches, *curves):
        api.query(query)
    with pytest.raises(PrometheusError, match="parse error"):
        api.query("up{")


def test_nodes_have_their_values(server: Server, tmp_path: Path) -> None:
    ended = shown(server, tmp_path, "--json")
    report = json.loads(ended.stdout)
    assert [(one["name"], one["up"]) for one in report["nodes"]] == [("spark1", True), ("spark2", True)]
    assert all(one["memory_available"] > 2**20 < one["memory_total"] for one in report["nodes"])
    assert all((one["links_up"], one["links"], one["gpu_clock"]) == (0, 2, None) for one in report["nodes"])
    assert ended.exit_code in (0, 2)


def test_a_page_has_curves(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "watch.html"

    def drawn() -> bool:
        """The page ends at a whole second: the first values can be newer than that."""
        shown(server, tmp_path, "--html", str(file))
        return file.read_text().count("<polyline") >= 2

    wait_for("the page has curves", drawn)
    page = file.read_text()
    assert "Memory available" in page
    assert "Clock of the GPU" not in page


def test_a_changed_configuration_is_read_without_a_restart(server: Server) -> None:
    file = server.folder / "sparkrack.yml"
    file.write_text(file.read_text().replace("rank: '0'", "rank: '7'"))
    server.processes["prometheus"].send_signal(signal.SIGHUP)
    api = PrometheusApi(server.url)
    wait_for("the new label", lambda: api.query('up{rank="7"}'))
    assert server.processes["prometheus"].poll() is None


def test_the_screen_renews_itself_until_it_is_ended(server: Server, tmp_path: Path) -> None:
    """On a terminal; Ctrl-C ends it with the exit code of what it showed."""
    file = tmp_path / "rack.yaml"
    file.write_text(changed(SWITCH, WATCHING))
    screen, its = pty.openpty()
    words = [SPARKRACK, "watch", "--rack", str(file), "--url", server.url]
    with subprocess.Popen(words, stdin=its, stdout=its, stderr=subprocess.PIPE, text=True) as process:
        os.close(its)
        seen = ""
        try:
            while len(set(re.findall(r"\d\d:\d\d:\d\d UTC, two by", seen))) < 2:
                assert select.select([screen], [], [], LIMIT)[0], seen
                seen += os.read(screen, 4096).decode()
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT) in (0, 2)
            assert process.stderr
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
            os.close(screen)
    assert "clock MHz" in seen


def test_what_a_node_knows_of_itself_raises_an_alert(server: Server, tmp_path: Path) -> None:
    """By the program of the node: the memory guard ended containers. The proof wants these metrics to be new."""
    report = CheckReporter([])
    machine: Any = Machine(tmp_path)
    stand_in(tmp_path, "systemctl", "printf 'ActiveState=active\\nUnitFileState=enabled\\n'")
    spark2 = server.rack.nodes["spark2"]

    def judged() -> str:
        try:
            check = verify.test_the_node_exports_what_it_knows_of_itself
            check(spark2, machine, server.rack, report)  # type: ignore[arg-type]
        except AssertionError as fault:
            return str(fault)
        return ""

    assert "the exporter has nothing of /var/lib/prometheus/node-exporter/sparkrack-node.prom" in judged()
    node = tmp_path / "node"
    boots(node, BOOT)
    write(node, "/proc/sys/kernel/panic", "10\n")
    write(node, "/etc/machine-id", "d" * 32)
    systemd(node, UNITS)
    guarded(node, (time.time(), "ended every container in container.slice"))
    done, metrics = ran(node)
    assert done.returncode == 0, done.stderr
    metrics.replace(server.metrics("spark2") / "sparkrack-node.prom")

    def told() -> list[dict[str, Any]]:
        alerts = [alert for message in list(server.posted) for alert in message["alerts"]]
        return [alert for alert in alerts if alert["labels"]["alertname"] == "GuardFired"]

    (alert,) = wait_for("GuardFired at the receiver", told)[:1]
    assert alert["annotations"]["summary"] == "the memory guard of spark2 ended all its containers"
    assert not judged()
    file = server.metrics("spark2") / "sparkrack-node.prom"
    old = re.sub(r"(timestamp_seconds) 17\d+", r"\1 1700000000", file.read_text())
    file.write_text(old.replace('unread{part="boot"} 0', 'unread{part="boot"} 1'))
    assert re.search(r"sparkrack-node.prom is \d+ s old, wanted at most 300 s; spark2: boot cannot be read", judged())
    stand_in(tmp_path, "systemctl", "printf 'ActiveState=inactive\\nUnitFileState=disabled\\n'")
    assert "spark2: sparkrack-node-metrics.timer is inactive, wanted active; spark2: sparkrack-node-metri" in judged()


def test_what_an_operator_delivers_is_collected_and_its_age_raises_an_alert(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the script of the delivery; only ssh is a stand-in. The last run was 27 h ago, then there is a new one."""
    (tmp_path / "nodes").mkdir()
    for name, value in Nodes(tmp_path / "nodes", ("spark1", "spark2")).environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(delivery, "FOLDER", str(server.metrics("spark2")))
    api, rack = PrometheusApi(server.url), server.rack

    def looked(hours: int) -> None:
        drift = drift_of(plan(machine("spark1"), made=datetime.now(UTC) - timedelta(hours=hours)))
        deliver_drift(rack, drift)

    def not_looked_at() -> bool:
        return any(one["labels"]["alertname"] == "DriftCheckOverdue" for one in api.alerts())

    looked(27)
    wait_for("DriftCheckOverdue", not_looked_at)
    (last,) = api.query("sparkrack_drift_last_run_timestamp_seconds")
    assert last.labels["ran_on"] == socket.gethostname()
    assert last.labels["node"] == "spark2"
    looked(0)
    wait_for("the end of DriftCheckOverdue", lambda: not not_looked_at())
    assert not api.query("node_textfile_scrape_error > 0")


def test_the_proof_asks_what_runs(server: Server, tmp_path: Path) -> None:
    report = CheckReporter([])
    machine: Any = Machine(tmp_path)
    for node in server.rack.nodes.values():
        verify.test_the_exporter_answers(node, machine, server.rack)  # type: ignore[arg-type]
    at = server.rack.nodes["spark2"]
    verify.test_every_node_is_scraped(at, machine, server.rack, report)
    verify.test_the_alerts_are_evaluated(at, machine, server.rack, report)
    verify.test_prometheus_knows_its_alertmanager(at, machine)


def test_the_proof_compares_what_runs_with_what_is_declared(server: Server, tmp_path: Path) -> None:
    """Of the programs here, which have other waits, and another folder; and another label by a test before."""
    at = server.rack.nodes["spark2"]
    found = reported(verify.test_the_declared_configuration_is_what_runs, tmp_path, server.rack, server=at)
    assert "spark2: NodeSilent waits 1 s, wanted 30" in found
    assert [fault for fault in found if ".labels.rank is " not in fault and " waits " not in fault] == [
        "spark2: prometheus.global.scrape_interval is 1s, wanted 5s",
        "spark2: prometheus.global.evaluation_interval is 1s, wanted 5s",
        f"spark2: prometheus.rule_files.0 is {server.folder}/sparkrack-rules.yml, wanted {desired.RULES}",
        "spark2: prometheus.scrape_configs.0.scrape_timeout is 1s, wanted 5s",
        "spark2: alertmanager.route.group_wait is 1s, wanted 10s",
    ]


def test_a_node_that_dies_is_told(server: Server, tmp_path: Path) -> None:
    """Last: spark1 does not come back. From a scrape that fails to the message at the receiver."""
    server.stop("spark1")

    def told() -> list[dict[str, Any]]:
        return [
            alert
            for message in list(server.posted)
            for alert in message["alerts"]
            if alert["labels"]["alertname"] == "NodeSilent"
        ]

    (alert,) = wait_for("NodeSilent at the receiver", told)[:1]
    assert alert["labels"]["node"] == "spark1"
    assert alert["labels"]["rack"] == "two"
    assert alert["annotations"]["summary"] == "spark1 does not answer"
    assert alert["annotations"]["runbook"] == "docs/runbooks/watch.md#nodesilent"
    ended = shown(server, tmp_path, "--once")
    assert ended.exit_code == 2, ended.output
    assert "page NodeSilent since" in ended.output
    assert "1 of 2 nodes answer" in ended.output
    quiet = shown(server, tmp_path, "--quiet")
    assert "clock MHz" not in quiet.output
    assert "NodeSilent" in quiet.output
    report = CheckReporter([])
    machine: Any = Machine(tmp_path)
    with pytest.raises(AssertionError, match=r"spark1 is down: .*connection refused"):
        verify.test_every_node_is_scraped(server.rack.nodes["spark2"], machine, server.rack, report)
    with pytest.raises(AssertionError, match="Connection refused"):
        verify.test_the_exporter_answers(server.rack.nodes["spark1"], machine, server.rack)  # type: ignore[arg-type]


# Name, node and further labels of an alert, and whether others silence it.
ALERTS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("NodeSilent", {"node": "spark1"}, "active"),
    ("LinkSlow", {"node": "spark1", "device": "enp1s0f1np1"}, "suppressed"),
    ("EngineDown", {"node": "spark1", "unit": "qwen"}, "suppressed"),
    ("MtuChanged", {"node": "spark2", "device": "enp1s0f1np1"}, "active"),
    ("KernelsDiffer", {}, "active"),
)
UNREACHABLE = (
    ("SwitchSilent", {"node": "spark2", "switch": "crs812", "problem": "unreachable"}, "active"),
    ("LinkDown", {"node": "spark2", "device": "enp1s0f1np1"}, "suppressed"),
    ("HalfMissing", {"node": "spark2", "device": "enp1s0f1np1"}, "active"),
    ("LinkDown", {"node": "other", "device": "enp1s0f1np1"}, "active"),
)
REFUSED = (
    ("SwitchSilent", {"node": "spark2", "switch": "crs812", "problem": "refused"}, "active"),
    ("LinkDown", {"node": "spark2", "device": "enp1s0f1np1"}, "active"),
)


@pytest.mark.parametrize("alerts", [ALERTS, UNREACHABLE, REFUSED], ids=["node", "unreachable", "refused"])
def test_which_alerts_silence_which(tmp_path: Path, alerts: tuple[tuple[str, dict[str, str], str], ...]) -> None:
    """As a real Alertmanager shows their states."""
    found, _ = on_loopback(read_rack())
    written(tmp_path, found)
    server = Server(found, tmp_path)
    url = f"http://{server_address(found)}:{ALERTMANAGER_PORT}/api/v2/alerts"
    sent = [{"labels": {"alertname": name, **labels}} for name, labels, _ in alerts]
    request = urllib.request.Request(url, json.dumps(sent).encode(), {"Content-Type": "application/json"})

    def taken() -> bool:
        try:
            with urllib.request.urlopen(request, timeout=60):  # noqa: S310 - an address of this machine
                return True
        except OSError:
            return False

    def states() -> list[tuple[str, dict[str, str], str]]:
        with urllib.request.urlopen(url, timeout=60) as answer:
            shown = [(one["labels"], one["status"]["state"]) for one in json.load(answer)]
        return [(labels.pop("alertname"), labels, state) for labels, state in shown]

    server.start("alertmanager", alertmanager_dropin(found))
    try:
        wait_for("Alertmanager takes alerts", taken)
        wanted = sorted(json.dumps(alert, sort_keys=True) for alert in alerts)
        wait_for("these states", lambda: sorted(json.dumps(one, sort_keys=True) for one in states()) == wanted)
    finally:
        server.stop_all()


def test_nothing_listens_on_other_addresses(server: Server) -> None:
    """Of the programs that run, as the kernel shows their sockets."""
    shown = ["ss", "--no-header", "--listening", "--tcp", "--udp", "--numeric", "--processes"]
    lines = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.splitlines()
    at = server_address(server.rack)
    for name, port in (("prometheus", 9090), ("alertmanager", 9093)):
        own = [line.split()[4] for line in lines if f"pid={server.processes[name].pid}," in line]
        assert own == [f"{at}:{port}"], name
