"""The proof of the role watch by systemd and the kernel's sockets: it passes on a node that is right, and each thing
broken fails it. Its questions to Prometheus are in test_watch_end_to_end.py."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from roles.watch import desired, node_metrics, notifications, rules, scrape, switch_reader, verify
from tests.unit.ops.shells import stand_in, write
from tests.unit.roles.checked_node import Check, function_of, reported
from tests.unit.roles.watch_tools import rack

SOCKETS = """\
LISTEN 0 4096 10.77.0.12:9100 0.0.0.0:* users:(("prometheus-node",pid=11,fd=3))
LISTEN 0 4096 127.0.0.1:9090 0.0.0.0:* users:(("prometheus",pid=12,fd=7))
LISTEN 0 4096 127.0.0.1:9093 0.0.0.0:* users:(("prometheus-aler",pid=13,fd=8))
LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=1,fd=3))
"""


def judged(root: Path, check: Check, name: str, sockets: str = SOCKETS, units: str = "") -> list[str]:
    """What a check reports against a node of this name."""
    found = rack("{server: spark2}")
    states = "ActiveState=active\nUnitFileState=enabled\n"
    stand_in(root, "systemctl", f'case "$*" in {units} *) printf %s {shlex.quote(states)};; esac')
    stand_in(root, "ss", f"printf %s {shlex.quote(sockets)}")
    return reported(check, root, found, node=found.nodes[name], server=found.nodes[name], switches=("crs812",))


@pytest.mark.parametrize("name", ["spark1", "spark2"])
def test_a_node_as_declared(tmp_path: Path, name: str) -> None:
    sockets = SOCKETS if name == "spark2" else SOCKETS.splitlines()[0].replace(".12:", ".11:") + "\n"
    assert not judged(tmp_path, verify.test_the_units_run_and_start_at_boot, name)
    assert not judged(tmp_path, verify.test_they_listen_where_they_are_to_and_nowhere_else, name, sockets)
    assert not judged(tmp_path, verify.test_the_switches_are_read_every_minute, name)


@pytest.mark.parametrize(
    ("check", "unit"),
    [
        (verify.test_the_units_run_and_start_at_boot, "prometheus.service"),
        (verify.test_the_switches_are_read_every_minute, "sparkrack-switch-reader.timer"),
    ],
)
def test_a_unit_that_is_stopped_and_disabled(tmp_path: Path, check: Check, unit: str) -> None:
    units = rf"*{unit}) printf 'ActiveState=failed\nUnitFileState=disabled\n';;"
    assert judged(tmp_path, check, "spark2", units=units) == [
        f"spark2: {unit} is failed, wanted active",
        f"spark2: {unit} is disabled, wanted enabled",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("10.77.0.12:9100", "0.0.0.0:9100", "prometheus-node-exporter listens on 0.0.0.0:9100, wanted 10.77.0.12:9100"),
        ("127.0.0.1:9090", "*:9090", "prometheus listens on *:9090, wanted 127.0.0.1:9090"),
        # The port of its cluster.
        (
            "LISTEN 0 128 0.0.0.0:22",
            'LISTEN 0 4096 *:9094 *:* users:(("prometheus-aler",pid=13,fd=9))\nLISTEN 0 128 0.0.0.0:22',
            "prometheus-alertmanager listens on *:9094, 127.0.0.1:9093, wanted 127.0.0.1:9093",
        ),
        ("127.0.0.1:9093 ", "10.77.0.12:9093 ", "prometheus-alertmanager listens on 10.77.0.12:9093, wanted 127.0.0.1"),
        (SOCKETS.splitlines()[1] + "\n", "", "prometheus listens on nothing, wanted 127.0.0.1:9090"),
    ],
)
def test_a_program_that_listens_elsewhere(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in SOCKETS
    found = judged(
        tmp_path, verify.test_they_listen_where_they_are_to_and_nowhere_else, "spark2", SOCKETS.replace(old, new)
    )
    assert found[0].startswith(f"spark2: {said}")


@pytest.mark.parametrize(
    ("wanted", "read", "lines"),
    [
        ("24h", "1d", []),
        ("90s", "1m30s", []),
        ("1d2h3m4s", "93784s", []),
        ("1h", "2h", ["x is 2h, wanted 1h"]),
        ("spark1", "spark2", ["x is spark2, wanted spark1"]),
        ("", "0s", ["x is 0s, wanted "]),
        ("1h", None, ["x is not there, wanted 1h"]),
        ({"a": ["5m", "1h"]}, {"a": ["300s", "2h"], "b": 1}, ["x.a.1 is 2h, wanted 1h"]),
        (["1h"], ["1h", "2h"], ["x has another form"]),
        (verify.HIDDEN, "any", []),
        (verify.HIDDEN, None, ["x is not there, wanted <secret>"]),
    ],
)
def test_what_a_program_has_read_differs_by_its_meaning(wanted: object, read: object, lines: list[str]) -> None:
    assert list(verify.differences("x", wanted, read)) == lines


def answers(root: Path, contents: dict[str, Any]) -> None:
    """What the programs of spark2 answer at a port and path: a text, or data; nothing answers at any other."""
    cases = ""
    for number, (place, content) in enumerate(contents.items()):
        write(root, f"/answers/{number}", content if isinstance(content, str) else json.dumps(content))
        address = "10.77.0.12" if place.startswith("9100") else "127.0.0.1"
        cases += f"http://{address}:{place}) cat {root}/answers/{number} ;;\n"
    stand_in(
        root,
        "python3",
        f"case $4 in\n{cases}*) echo 'urlopen error [Errno 111] Connection refused' >&2; exit 1 ;; esac",
    )


def asked(root: Path, check: Check, **values: object) -> list[str]:
    """What a check reports about spark2, the server."""
    found = rack("{server: spark2}")
    at = found.nodes["spark2"]
    return reported(check, root, found, node=at, server=at, **values)


SERIES = ("node_memory_MemAvailable_bytes", "node_boot_time_seconds", "node_network_up", "node_uname_info")


def test_an_exporter_with_what_alerts_look_at(tmp_path: Path) -> None:
    answers(tmp_path, {"9100/metrics": "".join(f'{name}{{device="x"}} 1\n' for name in SERIES)})
    assert asked(tmp_path, verify.test_the_exporter_answers) == []


def test_an_exporter_that_lacks_series_fails(tmp_path: Path) -> None:
    answers(tmp_path, {"9100/metrics": "node_load1 1\n"})
    lacking = ", ".join(sorted(SERIES))
    assert asked(tmp_path, verify.test_the_exporter_answers) == [f"spark2: the exporter has no {lacking}"]


def test_an_exporter_that_does_not_answer_fails(tmp_path: Path) -> None:
    answers(tmp_path, {})
    assert asked(tmp_path, verify.test_the_exporter_answers) == [
        "spark2: http://10.77.0.12:9100/metrics: urlopen error [Errno 111] Connection refused"
    ]


def test_the_exporter_answers_the_rack_the_server_and_who_is_allowed() -> None:
    """By settings of systemd, which a drop-in of others may not change."""
    found = rack("{server: spark2, allow: [10.77.9.0/24]}")
    settings = desired.exporter_dropin(found, found.nodes["spark1"]).content.decode().splitlines()
    assert "IPAddressDeny=any" in settings
    assert "IPAddressAllow=localhost 10.77.0.11 10.77.0.12 10.77.9.0/24" in settings
    outside = rack("{server: 10.77.0.50}")
    text = desired.exporter_dropin(outside, outside.nodes["spark1"]).content.decode()
    assert "IPAddressAllow=localhost 10.77.0.11 10.77.0.12 10.77.0.50\n" in text
    folder = "/etc/systemd/system/prometheus-node-exporter.service.d"
    assert len(desired.overridden(f"{folder}/zzz.conf:IPAddressAllow=any", desired.EXPORTER)) == 1


def test_what_may_silence_alerts_listens_on_loopback_of_a_node_only() -> None:
    """A machine outside of the rack listens as it is configured there."""
    for section, address in (("{server: spark2}", "127.0.0.1"), ("{server: 10.77.0.50}", "10.77.0.50")):
        found = rack(section)
        dropins = (desired.prometheus_dropin(found), desired.alertmanager_dropin(found))
        listening = [word for one in dropins for word in one.content.decode().split() if "web.listen-address" in word]
        assert listening == [f"--web.listen-address={address}:{port}" for port in (9090, 9093)]
        assert f"{address}:9093" in scrape.prometheus_file(found).content.decode()


def target(node: str, health: str = "up") -> dict[str, Any]:
    return {"labels": {"job": "node", "node": node}, "health": health, "lastError": "connection refused"}


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ([target("spark1"), target("spark2")], []),
        ([target("spark1")], ["spark2: spark2 is not a target"]),
        ([target("spark1"), target("spark2"), target("old")], ["spark2: old is not a node of the rack"]),
        ([target("spark1", "down"), target("spark2")], ["spark2: spark1 is down: connection refused"]),
    ],
)
def test_the_targets_of_prometheus(tmp_path: Path, targets: list[dict[str, Any]], said: list[str]) -> None:
    other = {"labels": {"job": "engines", "node": "spark9"}, "health": "down"}
    answers(tmp_path, {"9090/api/v1/targets?state=active": {"data": {"activeTargets": [*targets, other]}}})
    assert asked(tmp_path, verify.test_every_node_is_scraped) == said


OWN = "http://127.0.0.1:9093/api/v2/alerts"


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        ([OWN], []),
        ([], [f"spark2: Prometheus sends alerts to nothing, wanted {OWN}"]),
        ([OWN, "http://x:9093/y"], [f"spark2: Prometheus sends alerts to {OWN}, http://x:9093/y, wanted {OWN}"]),
    ],
)
def test_where_prometheus_sends_alerts(tmp_path: Path, urls: list[str], said: list[str]) -> None:
    data = {"data": {"activeAlertmanagers": [{"url": url} for url in urls]}}
    answers(tmp_path, {"9090/api/v1/alertmanagers": data, "9093/-/ready": "OK"})
    assert asked(tmp_path, verify.test_prometheus_knows_its_alertmanager) == said


def test_an_alertmanager_that_does_not_answer_fails(tmp_path: Path) -> None:
    answers(tmp_path, {"9090/api/v1/alertmanagers": {"data": {"activeAlertmanagers": [{"url": OWN}]}}})
    assert asked(tmp_path, verify.test_prometheus_knows_its_alertmanager) == [
        "spark2: http://127.0.0.1:9093/-/ready: urlopen error [Errno 111] Connection refused"
    ]


def test_a_node_whose_own_metrics_are_missing_fails(tmp_path: Path) -> None:
    answers(tmp_path, {"9100/metrics": "node_load1 1\n"})
    stand_in(tmp_path, "systemctl", "echo ActiveState=active; echo UnitFileState=enabled")
    assert asked(tmp_path, verify.test_the_node_exports_what_it_knows_of_itself) == [
        f"spark2: the exporter has nothing of {node_metrics.METRICS}; journalctl --unit={node_metrics.SERVICE}"
    ]


def test_the_last_reading_of_a_switch(tmp_path: Path) -> None:
    name = 'sparkrack_switch_reading_timestamp_seconds{switch="crs812"}'
    answers(tmp_path, {"9100/metrics": f'{name} 1000\nsparkrack_switch_up{{switch="crs812"}} 1\n'})
    check = verify.test_the_last_reading_of_each_switch_is_whole_and_new
    stand_in(tmp_path, "date", "echo 1010")
    assert asked(tmp_path, check, switches=("crs812",)) == []
    assert asked(tmp_path, check, switches=("crs813",)) == ["spark2: crs813 has no reading"]
    stand_in(tmp_path, "date", "echo 9000")
    assert asked(tmp_path, check, switches=("crs812",)) == [
        f"spark2: crs812 was read 8000 s ago, wanted at most {switch_reader.STALE}"
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("scrape_interval: 15s", "scrape_interval: 15s", []),
        (
            "scrape_interval: 15s",
            "scrape_interval: 1m",
            ["spark2: prometheus.global.scrape_interval is 1m, wanted 15s"],
        ),
    ],
)
def test_a_configuration_that_runs(tmp_path: Path, old: str, new: str, said: list[str]) -> None:
    found = rack("{server: spark2}")
    running = scrape.prometheus_file(found).content.decode()
    assert old in running
    answers(
        tmp_path,
        {
            "9090/api/v1/status/config": {"data": {"yaml": running.replace(old, new)}},
            "9090/api/v1/rules": {"data": {"groups": []}},
            "9093/api/v2/status": {"config": {"original": notifications.alertmanager_text(found, {}).decode()}},
        },
    )
    assert asked(tmp_path, verify.test_the_declared_configuration_is_what_runs) == said


def test_alerts_that_are_not_loaded_or_fail(tmp_path: Path) -> None:
    found = rack("{server: spark2}")
    loaded = [{"name": name, "type": "alerting", "health": "ok"} for name in rules.alert_names(found)]
    loaded[0] |= {"health": "err", "lastError": "many-to-many matching not allowed"}
    gone = loaded.pop()
    loaded.append({"name": "Strange", "type": "alerting", "health": "ok"})
    data = {"data": {"groups": [{"rules": loaded}]}}
    answers(tmp_path, {"9090/api/v1/rules": data})
    assert asked(tmp_path, verify.test_the_alerts_are_evaluated) == [
        f"spark2: {gone['name']} is not loaded",
        "spark2: Strange is loaded and not declared",
        "spark2: NodeSilent: many-to-many matching not allowed",
    ]


def test_the_switches_that_are_read_are_those_with_a_reader() -> None:
    server = rack("{server: spark2}").nodes["spark2"]
    switches = function_of(verify.switches)
    reader = ("    mtu: 9000\n    l2mtu", "    reader: {password: {env: READER}}\n    mtu: 9000\n    l2mtu")
    assert switches(server, rack("{server: spark2}", reader)) == ("crs812",)
    with pytest.raises(pytest.skip.Exception, match="no switch is read"):
        switches(server, rack("{server: spark2}"))
