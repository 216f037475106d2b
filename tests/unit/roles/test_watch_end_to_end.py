"""Real exporters, Prometheus and Alertmanager, started as the role starts them: an alert reaches its receiver, the
command shows the rack, and the proof of the role fails for what is broken."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import load
from core.ssh.port_forward import forwarded_ports
from core.verify.reporter import CheckReporter
from roles.watch import desired, verify
from roles.watch.desired import ALERTMANAGER_PORT, alertmanager_dropin, listen_address
from sparkrack.cli.main import sparkrack
from sparkrack.drift.findings import drift_of
from sparkrack.watch import delivery
from sparkrack.watch.collect import NODE_QUERIES, UNIT_QUERIES
from sparkrack.watch.history import BOOTS, CURVES, FIRED, LEGS
from sparkrack.watch.metrics_delivery import deliver_drift
from sparkrack.watch.prometheus_api import PrometheusApi, PrometheusError
from sparkrack.watch.switches import LEG_QUERIES, STATE_QUERIES, SWITCH_QUERIES
from tests.own_terminal import Terminal
from tests.unit.autopsy.nodes import Nodes
from tests.unit.cli.cli_fixtures import SPARKRACK
from tests.unit.drift.plans import machine, plan
from tests.unit.model.racks import SWITCH, changed
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Machine, reported
from tests.unit.roles.forwarding_node import ForwardingNode
from tests.unit.roles.test_watch_node_metrics import BOOT, UNITS, boots, guarded, ran, systemd
from tests.unit.roles.test_watch_switch_reader import read_rack
from tests.unit.roles.watch_server import LIMIT, Server, on_loopback, own_loopback, running, wait_for  # noqa: F401
from tests.unit.roles.watch_tools import call, written

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


def test_an_alert_that_always_fires_leaves_the_rack(server: Server, tmp_path: Path) -> None:
    """To its own receiver alone; the screen does not show it as an alert."""

    def names(messages: list[dict[str, Any]]) -> set[str]:
        return {alert["labels"]["alertname"] for message in list(messages) for alert in message["alerts"]}

    wait_for("a heartbeat", lambda: server.beats)
    assert names(server.beats) == {"Watchdog"}
    assert "Watchdog" not in names(server.posted)
    found = [one["labels"]["alertname"] for one in PrometheusApi(server.url).alerts()]
    assert "Watchdog" in found
    assert "Watchdog" not in shown(server, tmp_path, "--once").output


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
    words = [SPARKRACK, "watch", "--rack", str(file), "--url", server.url]
    with Terminal(words, {**os.environ, "TERM": "xterm"}) as terminal:
        terminal.until(r"(\d\d:\d\d:\d\d UTC, two by)(?s:.*)(?!\1)\d\d:\d\d:\d\d UTC, two by")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() in (0, 2)
        assert "Traceback" not in terminal.shown
        assert "clock MHz" in terminal.shown


def test_a_terminal_without_cursor_movement_gets_one_reading(server: Server, tmp_path: Path) -> None:
    """`TERM=dumb`, as in an editor's shell: nothing can be renewed there, so the command ends after one reading."""
    file = tmp_path / "rack.yaml"
    file.write_text(changed(SWITCH, WATCHING))
    words = [SPARKRACK, "watch", "--rack", str(file), "--url", server.url]
    with Terminal(words, {**os.environ, "TERM": "dumb"}) as terminal:
        assert terminal.finish() in (0, 2)
        assert re.search(r"\d\d:\d\d:\d\d UTC, two by", terminal.shown)


def test_what_a_node_knows_of_itself_raises_an_alert(server: Server, tmp_path: Path) -> None:
    """By the program of the node: the memory guard ended containers. The proof wants these metrics to be new."""
    report = CheckReporter([])
    machine: Any = Machine(tmp_path)
    stand_in(tmp_path, "systemctl", "printf 'ActiveState=active\\nUnitFileState=enabled\\n'")
    spark2 = server.rack.nodes["spark2"]

    def judged() -> str:
        try:
            verify.test_the_node_exports_what_it_knows_of_itself(spark2, machine, report)
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

    def printed() -> list[dict[str, Any]]:
        alerts = [alert for message in list(server.posted) for alert in message["alerts"]]
        return [alert for alert in alerts if alert["labels"]["alertname"] == "GuardFired"]

    (alert,) = wait_for("GuardFired at the receiver", printed)[:1]
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
        deliver_drift(rack, drift, print)

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
        verify.test_the_exporter_answers(node, machine)
    at = server.rack.nodes["spark2"]
    verify.test_every_node_is_scraped(at, machine, server.rack, report)
    verify.test_the_alerts_are_evaluated(at, machine, server.rack, report)
    verify.test_prometheus_knows_its_alertmanager(at, machine, server.rack)


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


@pytest.fixture
def over_ssh(server: Server, tmp_path: Path) -> Iterator[tuple[ForwardingNode, Path]]:
    """The server of the watch behind a login, and a rack file that names it."""
    address = server.rack.nodes["spark2"].address
    node = ForwardingNode(address, desired.LOOPBACK)
    text = re.sub(r"access:\n( .*\n)+", node.access(tmp_path, address), changed(SWITCH, WATCHING))
    file = tmp_path / "rack.yaml"
    file.write_text(changed(text, ("address: 10.77.0.12", f"address: {address}")))
    yield node, file
    node.close()


def asked_over_ssh(file: Path, *words: str) -> Result:
    return CliRunner().invoke(sparkrack, ["watch", "--rack", str(file), *words], catch_exceptions=False)


@pytest.fixture
def silence(server: Server) -> Iterator[Callable[..., None]]:
    """Makes silences of an hour, which end with the test."""
    url = f"--alertmanager.url=http://{listen_address(server.rack)}:{ALERTMANAGER_PORT}"
    made = []

    def add(by: str, comment: str, *matchers: str) -> None:
        done = call("amtool", url, "silence", "add", f"--author={by}", f"--comment={comment}", *matchers)
        assert done.returncode == 0, done.stderr
        made.append(done.stdout.strip())

    yield add
    for one in made:
        call("amtool", url, "silence", "expire", one)


def test_the_operator_asks_prometheus_and_alertmanager_over_ssh(
    server: Server, over_ssh: tuple[ForwardingNode, Path]
) -> None:
    """Both listen on loopback of the server alone."""
    node, file = over_ssh
    report = json.loads(asked_over_ssh(file, "--json").stdout)
    assert [(one["name"], one["up"]) for one in report["nodes"]] == [("spark1", True), ("spark2", True)]
    assert report["silences"] == []
    assert report["server"] == "http://spark2:9090"
    assert set(node.asked) == {("127.0.0.1", 9090), ("127.0.0.1", 9093)}
    assert len(node.transports) == 1
    assert json.loads(shown(server, file.parent, "--json").stdout)["silences"] is None, "--url asks Prometheus alone"


def test_a_server_that_gives_no_login_is_silent(over_ssh: tuple[ForwardingNode, Path]) -> None:
    _, file = over_ssh
    (file.parent / "known_hosts").write_text("")
    done = asked_over_ssh(file, "--once")
    assert done.exit_code == 1
    assert "http://spark2:9090: Host key verification failed." in done.output


def test_ssh_that_has_ended_is_started_again(over_ssh: tuple[ForwardingNode, Path]) -> None:
    node, file = over_ssh
    with forwarded_ports(load(file), "spark2", [desired.PROMETHEUS_PORT]) as forward:
        api = PrometheusApi("http://spark2", partial(forward.socket, desired.PROMETHEUS_PORT))
        assert api.query("vector(1)")
        node.transports[0].close()

        def answered() -> bool:
            with contextlib.suppress(PrometheusError):
                return bool(api.query("vector(1)"))
            return False

        wait_for("an answer by another login", answered)
    assert len(node.transports) == 2


def test_a_silence_that_no_run_made_is_shown(
    silence: Callable[..., None], over_ssh: tuple[ForwardingNode, Path]
) -> None:
    """One that a run made is shown as well, and is not a fault."""
    _, file = over_ssh
    silence("sparkrack", "20261126T114158-0a1b2c3d reboot of spark1", "node=spark1", "alertname!=GuardFired")
    quiet = asked_over_ssh(file, "--once")
    assert quiet.exit_code in (0, 2)
    assert "silenced until" in quiet.output
    assert "not of a run" not in quiet.output
    silence("sparkrack", "the owner said so", "severity=~.+")
    silence("eve", "20261126T114158-0a1b2c3d", "severity!~page|ticket")
    done = asked_over_ssh(file, "--quiet")
    assert done.exit_code == 2
    until = r"[\d-]{10} [\d:]{5} UTC"
    line = rf'^not of a run: alerts with severity=~".\+" are silenced until {until} by sparkrack: the owner said so$'
    assert re.search(line, done.output, re.MULTILINE), done.output
    assert 'severity!~"page|ticket" are silenced' in done.output
    assert "reboot of spark1" not in done.output
    assert "2 silences not of a run" in done.output.splitlines()[-1]
    report = json.loads(asked_over_ssh(file, "--json").stdout)
    assert sorted(one["of_run"] for one in report["silences"]) == [False, False, True]


def test_an_alertmanager_that_does_not_answer_leaves_silences_unknown(
    over_ssh: tuple[ForwardingNode, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = over_ssh
    monkeypatch.setattr(desired, "ALERTMANAGER_PORT", desired.PROMETHEUS_PORT)
    done = asked_over_ssh(file, "--once")
    assert done.exit_code == 1
    assert "unknown: silences: http://spark2:9090: the answer is not that of Alertmanager" in done.output
    assert "2 of 2 nodes answer" in done.output


def test_a_node_that_dies_is_reported(server: Server, tmp_path: Path) -> None:
    """Last: spark1 does not come back. From a scrape that fails to the message at the receiver."""
    server.stop("spark1")

    def printed() -> list[dict[str, Any]]:
        return [
            alert
            for message in list(server.posted)
            for alert in message["alerts"]
            if alert["labels"]["alertname"] == "NodeSilent"
        ]

    (alert,) = wait_for("NodeSilent at the receiver", printed)[:1]
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
        verify.test_the_exporter_answers(server.rack.nodes["spark1"], machine)


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
def test_which_alerts_silence_which(
    tmp_path: Path, alerts: tuple[tuple[str, dict[str, str], str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a real Alertmanager shows their states."""
    found, beside = on_loopback(read_rack())
    monkeypatch.setattr(desired, "LOOPBACK", beside)  # the Alertmanager of `server` may run
    written(tmp_path, found)
    server = Server(found, tmp_path)
    url = f"http://{listen_address(found)}:{ALERTMANAGER_PORT}/api/v2/alerts"
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
    at = listen_address(server.rack)
    for name, port in (("prometheus", 9090), ("alertmanager", 9093)):
        own = [line.split()[4] for line in lines if f"pid={server.processes[name].pid}," in line]
        assert own == [f"{at}:{port}"], name
