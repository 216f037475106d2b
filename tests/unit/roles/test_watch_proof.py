"""The proof of the role watch by systemd and the kernel's sockets: it passes on a node that is right, and each thing
broken fails it. Its questions to Prometheus are in test_watch_end_to_end.py."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from roles.watch import desired, rules, verify
from roles.watch.options import WatchOptions
from tests.unit.ops.shells import stand_in
from tests.unit.roles.checked_node import Machine
from tests.unit.roles.watch_tools import rack

SOCKETS = """\
LISTEN 0 4096 10.77.0.12:9100 0.0.0.0:* users:(("prometheus-node",pid=11,fd=3))
LISTEN 0 4096 10.77.0.12:9090 0.0.0.0:* users:(("prometheus",pid=12,fd=7))
LISTEN 0 4096 10.77.0.12:9093 0.0.0.0:* users:(("prometheus-aler",pid=13,fd=8))
LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=1,fd=3))
"""


class Report:
    """The part of the reporter that these checks use."""

    def judge(self, faults: Any) -> None:
        found = list(faults)
        assert not found, "; ".join(found)


def judged(root: Path, check: Any, name: str, sockets: str = SOCKETS, units: str = "") -> str:
    """What a check says against a node of this name; empty when it passes."""
    found = rack("{server: spark2}")
    states = "ActiveState=active\nUnitFileState=enabled\n"
    stand_in(root, "systemctl", f'case "$*" in {units} *) printf %s {shlex.quote(states)};; esac')
    stand_in(root, "ss", f"printf %s {shlex.quote(sockets)}")
    machine: Any = Machine(root)
    try:
        check(found.nodes[name], machine, found, found.options(WatchOptions), Report())
    except AssertionError as fault:
        return str(fault).splitlines()[0]
    return ""


@pytest.mark.parametrize("name", ["spark1", "spark2"])
def test_a_node_as_declared(tmp_path: Path, name: str) -> None:
    sockets = SOCKETS if name == "spark2" else SOCKETS.splitlines()[0].replace(".12:", ".11:") + "\n"
    assert not judged(tmp_path, verify.test_the_units_run_and_start_at_boot, name)
    assert not judged(tmp_path, verify.test_they_listen_on_the_management_address_only, name, sockets)


def test_a_unit_that_is_stopped_and_disabled(tmp_path: Path) -> None:
    units = r"*prometheus.service) printf 'ActiveState=failed\nUnitFileState=disabled\n';;"
    said = judged(tmp_path, verify.test_the_units_run_and_start_at_boot, "spark2", units=units)
    assert (
        said
        == "spark2: prometheus.service is failed, wanted active; spark2: prometheus.service is disabled, wanted enabled"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("10.77.0.12:9100", "0.0.0.0:9100", "prometheus-node-exporter listens on 0.0.0.0:9100, wanted 10.77.0.12:9100"),
        ("10.77.0.12:9090", "*:9090", "prometheus listens on *:9090, wanted 10.77.0.12:9090"),
        # The port of its cluster.
        (
            "LISTEN 0 128 0.0.0.0:22",
            'LISTEN 0 4096 *:9094 *:* users:(("prometheus-aler",pid=13,fd=9))\nLISTEN 0 128 0.0.0.0:22',
            "prometheus-alertmanager listens on *:9094, 10.77.0.12:9093, wanted 10.77.0.12:9093",
        ),
        ("10.77.0.12:9093 ", "10.77.0.12:9999 ", "prometheus-alertmanager listens on 10.77.0.12:9999, wanted"),
        (SOCKETS.splitlines()[1] + "\n", "", "prometheus listens on nothing, wanted 10.77.0.12:9090"),
    ],
)
def test_a_program_that_listens_elsewhere(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in SOCKETS
    found = judged(
        tmp_path, verify.test_they_listen_on_the_management_address_only, "spark2", SOCKETS.replace(old, new)
    )
    assert said in found


def test_alerts_that_are_not_loaded_or_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rack("{server: spark2}")
    loaded = [{"name": name, "type": "alerting", "health": "ok"} for name in rules.alert_names(found)]
    loaded[0] |= {"health": "err", "lastError": "many-to-many matching not allowed"}
    gone = loaded.pop()
    loaded.append({"name": "Strange", "type": "alerting", "health": "ok"})
    data = {"data": {"groups": [{"rules": loaded}]}}
    stand_in(tmp_path, "python3", f"printf %s {shlex.quote(json.dumps(data))}")
    machine: Any = Machine(tmp_path)
    with pytest.raises(AssertionError) as fault:
        verify.test_the_alerts_are_evaluated(found.nodes["spark2"], machine, found, Report())  # type: ignore[arg-type]
    for part in (f"{gone['name']} is not loaded", "Strange is loaded and not declared", "NodeSilent: many-to-many"):
        assert part in str(fault.value)
    assert desired.server(found) == found.nodes["spark2"]


def timer_judged(root: Path, state: str) -> None:
    found = rack("{server: spark2}")
    stand_in(root, "systemctl", f"printf %s {shlex.quote(state)}")
    machine: Any = Machine(root)
    report: Any = Report()
    verify.test_the_switches_are_read_every_minute(found.nodes["spark2"], machine, ("crs812",), report)


def test_the_timer_of_the_switches(tmp_path: Path) -> None:
    timer_judged(tmp_path, "ActiveState=active\nUnitFileState=enabled\n")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("ActiveState=inactive\nUnitFileState=enabled\n", "is inactive, wanted active"),
        ("ActiveState=active\n", "is unknown, wanted enabled"),
    ],
)
def test_a_timer_of_the_switches_that_does_not_run(tmp_path: Path, state: str, said: str) -> None:
    with pytest.raises(AssertionError, match=f"spark2: sparkrack-switch-reader.timer {said}"):
        timer_judged(tmp_path, state)
