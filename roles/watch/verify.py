"""Prove the watch: what systemd, sockets, exporters, and the APIs of Prometheus and Alertmanager report."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import Node, Rack
from core.ssh.client import Machine
from core.verify.node_answers import output, unit_faults
from core.verify.reporter import CheckReporter
from roles.watch import desired, node_metrics, notifications, rules, scrape, switch_reader
from roles.watch.options import WatchOptions

_FETCH = (
    "import sys, urllib.request as u; "
    "sys.stdout.buffer.write(u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=20).read())"
)


@pytest.fixture
def declared(rack: Rack) -> WatchOptions:
    """The declared section."""
    found = rack.declared(WatchOptions)
    if found is None:
        pytest.skip("rack.yaml declares no watch")
    return found


pytestmark = pytest.mark.usefixtures("declared")


@pytest.fixture
def server(rack: Rack, node: Node, declared: WatchOptions) -> Node:  # noqa: ARG001
    """This node, which is the server."""
    if desired.server(rack) != node:
        pytest.skip(f"{node.name} is not the server")
    return node


def packages(rack: Rack, node: Node) -> tuple[str, ...]:
    """Return the packages whose programs run on a node."""
    return desired.PACKAGES if desired.server(rack) == node else (desired.EXPORTER,)


def exporter(node: Node) -> str:
    """Return address and port of the exporter."""
    return f"{node.address}:{desired.EXPORTER_PORT}"


def prometheus(rack: Rack) -> str:
    """Return address and port of Prometheus."""
    return f"{desired.listen_address(rack)}:{desired.PROMETHEUS_PORT}"


def alertmanager(rack: Rack) -> str:
    """Return address and port of Alertmanager."""
    return f"{desired.listen_address(rack)}:{desired.ALERTMANAGER_PORT}"


def fetched(node: Node, machine: Machine, at: str, path: str) -> str:
    """Return what a program of the node answers."""
    url = f"http://{at}{path}"
    done = machine.run(f"python3 -I -c {shlex.quote(_FETCH)} {shlex.quote(url)}")
    why = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit {done.rc}"]
    assert done.rc == 0, f"{node.name}: {url}: {why[0]}"
    return str(done.stdout)


def answer(node: Node, machine: Machine, at: str, path: str) -> Any:
    """Return the same as data."""
    text = fetched(node, machine, at, path)
    try:
        return json.loads(text)
    except ValueError:
        raise AssertionError(f"{node.name}: {at}: {path}: unexpected output {text[:80]!r}") from None


def test_the_units_run_and_start_at_boot(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The exporter on every node, Prometheus and Alertmanager on the server."""
    units = map(desired.unit, packages(rack, node))
    report.judge(f"{node.name}: {fault}" for unit in units for fault in unit_faults(node, machine, unit))


def test_they_listen_where_they_are_to_and_nowhere_else(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """The exporter on the management address, the others on loopback, as the kernel shows their sockets."""
    text = output(node, machine, "ss --no-header --listening --tcp --numeric --processes")
    faults = []
    places = {
        desired.EXPORTER: exporter(node),
        desired.PROMETHEUS: prometheus(rack),
        desired.ALERTMANAGER: alertmanager(rack),
    }
    for package in packages(rack, node):
        # The kernel knows the first 15 characters of a program's name.
        mine = [line for line in text.splitlines() if f'("{package[:15]}"' in line or _is_at(line, places[package])]
        found = sorted({line.split()[3] for line in mine})
        wanted = [places[package]]
        if found != wanted:
            faults.append(f"{package} listens on {', '.join(found) or 'nothing'}, wanted {wanted[0]}")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def _is_at(line: str, place: str) -> bool:
    return line.split()[3].rpartition(":")[2] == place.rpartition(":")[2]


def test_the_exporter_answers(node: Node, machine: Machine) -> None:
    """With the series that most alerts look at."""
    text = fetched(node, machine, exporter(node), "/metrics")
    found = set(re.findall(r"^(node_[a-zA-Z0-9_]+)", text, re.MULTILINE))
    wanted = {"node_memory_MemAvailable_bytes", "node_boot_time_seconds", "node_network_up", "node_uname_info"}
    assert not wanted - found, f"{node.name}: the exporter has no {', '.join(sorted(wanted - found))}"


def test_the_node_exports_what_it_knows_of_itself(node: Node, machine: Machine, report: CheckReporter) -> None:
    """The timer runs and starts at boot, and what the exporter answers is new and complete."""
    faults = unit_faults(node, machine, node_metrics.TIMER)
    answered = fetched(node, machine, exporter(node), "/metrics")
    made = re.search(r"^sparkrack_node_metrics_timestamp_seconds (\S+)$", answered, re.MULTILINE)
    now = float(output(node, machine, "date +%s"))
    if not made:
        faults.append(f"the exporter has nothing of {node_metrics.METRICS}; journalctl --unit={node_metrics.SERVICE}")
    elif now - float(made[1]) > node_metrics.SILENT:
        faults.append(
            f"{node_metrics.METRICS} is {now - float(made[1]):.0f} s old, wanted at most {node_metrics.SILENT} s"
        )
    unread = re.findall(r'^sparkrack_node_metrics_unread{part="(\w+)"} 1$', answered, re.MULTILINE)
    faults += [f"{part} cannot be read; journalctl --unit={node_metrics.SERVICE}" for part in unread]
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_every_node_is_scraped(server: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """By the targets of Prometheus."""
    data = answer(server, machine, prometheus(rack), "/api/v1/targets?state=active")["data"]["activeTargets"]
    found = {one["labels"].get("node"): one for one in data if one["labels"].get("job") == "node"}
    faults = [f"{name} is not a target" for name in rack.nodes if name not in found]
    faults += [f"{name} is not a node of the rack" for name in found if name not in rack.nodes]
    faults += [
        f"{name} is {one['health']}: {one['lastError']}"
        for name, one in found.items()
        if name in rack.nodes and one["health"] != "up"
    ]
    report.judge(f"{server.name}: {fault}" for fault in faults)


def test_the_alerts_are_evaluated(server: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """Prometheus has the declared alerts and no other, and evaluates each without an error."""
    groups = answer(server, machine, prometheus(rack), "/api/v1/rules")["data"]["groups"]
    found = {rule["name"]: rule for group in groups for rule in group["rules"] if rule["type"] == "alerting"}
    wanted = set(rules.alert_names(rack))
    faults = [f"{name} is not loaded" for name in sorted(wanted - found.keys())]
    faults += [f"{name} is loaded and not declared" for name in sorted(found.keys() - wanted)]
    faults += [
        f"{name}: {rule.get('lastError') or rule['health']}"
        for name, rule in sorted(found.items())
        if rule["health"] != "ok"
    ]
    report.judge(f"{server.name}: {fault}" for fault in faults)


def test_prometheus_knows_its_alertmanager(server: Node, machine: Machine, rack: Rack) -> None:
    """The one of this node, and that answers."""
    data = answer(server, machine, prometheus(rack), "/api/v1/alertmanagers")["data"]
    found = [one["url"] for one in data["activeAlertmanagers"]]
    wanted = f"http://{alertmanager(rack)}/api/v2/alerts"
    assert found == [wanted], (
        f"{server.name}: Prometheus sends alerts to {', '.join(found) or 'nothing'}, wanted {wanted}"
    )
    fetched(server, machine, alertmanager(rack), "/-/ready")


def test_the_declared_configuration_is_what_runs(
    server: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """As Prometheus and Alertmanager show what they have read. Secrets are not compared, and never reported."""
    config = answer(server, machine, prometheus(rack), "/api/v1/status/config")["data"]["yaml"]
    faults = list(differences("prometheus", _parse_yaml(scrape.prometheus_file(rack).content), _parse_yaml(config)))
    groups = answer(server, machine, prometheus(rack), "/api/v1/rules")["data"]["groups"]
    found = {rule["name"]: rule["duration"] for group in groups for rule in group["rules"] if "duration" in rule}
    for group in _parse_yaml(rules.rule_file(rack).content)["groups"]:
        for rule in group["rules"]:
            wanted = _parse_duration(rule.get("for", "0s")) if "alert" in rule else None
            if wanted is not None and rule["alert"] in found and found[rule["alert"]] != wanted:
                faults.append(f"{rule['alert']} waits {found[rule['alert']]} s, wanted {wanted}")
    hidden = dict.fromkeys(notifications.secrets(rack), HIDDEN)
    status = answer(server, machine, alertmanager(rack), "/api/v2/status")["config"]["original"]
    routes = _parse_yaml(notifications.alertmanager_text(rack, hidden))
    faults += differences("alertmanager", routes, _parse_yaml(status))
    report.judge(f"{server.name}: {fault}" for fault in faults)


HIDDEN = "<secret>"
"""What stands for a secret. Alertmanager shows others so as well; 0.25 shows the URL of a webhook as it is."""


def _parse_yaml(text: str | bytes) -> Any:
    return YAML(typ="safe", pure=True).load(text)


def differences(name: str, wanted: Any, found: Any) -> Iterator[str]:
    """Yield where what a program has read differs from what is declared; it adds its own defaults to that."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from differences(f"{name}.{key}", value, found.get(key))
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(f"{name}.{number}", one, other)
    elif isinstance(found, dict | list):
        yield f"{name} has another form"  # what is there may have a secret
    elif wanted == HIDDEN and found is not None:
        pass
    elif wanted != found and _parse_duration(wanted) != _parse_duration(found):
        yield f"{name} is {found if found is not None else 'not there'}, wanted {wanted}"


def _parse_duration(value: Any) -> Any:
    """The seconds of a duration, which Prometheus writes in its own way (24h as 1d); other values as they are."""
    words = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", str(value))
    if not words or not any(words.groups()):
        return value
    days, hours, minutes, rest = (int(word or 0) for word in words.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


@pytest.fixture
def switches(server: Node, rack: Rack) -> tuple[str, ...]:  # noqa: ARG001
    """The names of the switches that this node reads."""
    found = tuple(switch_reader.switches(rack))
    if not found:
        pytest.skip("no switch is read")
    return found


def test_the_switches_are_read_every_minute(
    server: Node,
    machine: Machine,
    switches: tuple[str, ...],  # noqa: ARG001
    report: CheckReporter,
) -> None:
    """The timer runs and starts at boot."""
    report.judge(f"{server.name}: {fault}" for fault in unit_faults(server, machine, switch_reader.TIMER))


def test_the_last_reading_of_each_switch_is_whole_and_new(
    server: Node, machine: Machine, switches: tuple[str, ...], report: CheckReporter
) -> None:
    """As the exporter of the server shows it."""
    now = float(output(server, machine, "date +%s"))
    text = fetched(server, machine, exporter(server), "/metrics")
    report.judge(f"{server.name}: {fault}" for name in switches for fault in reading_faults(text, name, now))


def reading_faults(text: str, switch: str, now: float) -> list[str]:
    """Return what is wrong with the reading of a switch in the answer of an exporter."""
    line = re.compile(rf'sparkrack_switch_(\w+)\{{(?=[^}}]*switch="{re.escape(switch)}")[^}}]*\}} (\S+)')
    word = re.compile(r'(?:problem|part)="(\w+)"')
    found = [(match, match[1], float(match[2])) for match in map(line.fullmatch, text.splitlines()) if match]
    asked = [value for _, name, value in found if name == "reading_timestamp_seconds"]
    if not asked:
        return [f"{switch} has no reading"]
    faults = []
    if now - asked[0] > switch_reader.STALE:
        faults.append(f"{switch} was read {now - asked[0]:.0f} s ago, wanted at most {switch_reader.STALE}")
    named = [(name, value, word.search(match[0])) for match, name, value in found]
    problems = [label[1] for name, value, label in named if name == "problem" and value and label]
    if not any(name == "up" and value == 1 for name, value, _ in named):
        faults.append(f"{switch} cannot be read: {', '.join(problems) or 'unknown'}")
    faults += [
        f"{switch}: its {label[1]} cannot be read"
        for name, value, label in named
        if name == "part_read" and value == 0 and label
    ]
    return faults
