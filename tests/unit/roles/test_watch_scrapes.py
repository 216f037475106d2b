"""A run that changes the watch ends when Prometheus has scraped what it has started: by a real Prometheus, and for the
way to it by a node that is an ssh server of this process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from core.model import Rack, load
from core.util.event import Action, Event, EventKind
from core.util.progress import NO_PROGRESS
from core.verify.reporter import CheckReporter
from roles.watch import desired, verify
from sparkrack.engine.plan import HostPlan, Plan
from sparkrack.watch.prometheus_api import PrometheusApi, PrometheusError
from sparkrack.watch.scrapes import (
    INTERVALS,
    START_SECONDS,
    AwaitedScrapes,
    awaited_scrapes,
    unscraped,
    wait_for_scrapes,
)
from tests.unit.drift.plans import machine, plan
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.roles.checked_node import Machine
from tests.unit.roles.forwarding_node import ForwardingNode
from tests.unit.roles.watch_server import Server, own_loopback, running, wait_for  # noqa: F401

INTERVAL = 5
"""Seconds, as declared; the Prometheus of these tests scrapes every second."""
WATCH = f"watch: {{server: spark2, interval: {INTERVAL}s}}"
EXPORTER, PROMETHEUS, ALERTMANAGER = map(desired.unit, desired.PACKAGES)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("watch")) as found:
        yield found


def started(name: str, *units: str) -> HostPlan:
    """The plan of a node on which these units are started."""
    return machine(name, *(("watch", Event(EventKind.RESTART, subject=unit, action=Action.START)) for unit in units))


def awaited(rack: Rack, *hosts: HostPlan) -> AwaitedScrapes:
    found = awaited_scrapes(rack, plan(*hosts))
    assert found is not None
    return found


@dataclass
class Clock:
    """Time that passes by sleeping alone."""

    seconds: float = 0.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds


def never() -> bool:
    return False


def up(server: Server) -> Callable[[], bool]:
    def both() -> bool:
        try:
            return len(PrometheusApi(server.url).query('up{job="node"} == 1')) == 2
        except PrometheusError:
            return False

    return both


def down(server: Server, name: str) -> Callable[[], bool]:
    targets = PrometheusApi(server.url).targets
    return lambda: any(one.labels.get("node") == name and one.health == "down" for one in targets())


def test_the_proof_passes_at_once_after_an_exporter_was_started(server: Server, tmp_path: Path) -> None:
    wait_for("both nodes are scraped", up(server))
    server.stop("spark1")
    wait_for("spark1 is down", down(server, "spark1"))
    server.start("spark1", desired.exporter_dropin(server.rack, server.rack.nodes["spark1"]))
    line = wait_for_scrapes(
        server.rack, PrometheusApi(server.url), awaited(server.rack, started("spark1", EXPORTER)), never
    )
    assert line == ""
    report, here = CheckReporter([]), Machine(tmp_path)
    verify.test_every_node_is_scraped(server.rack.nodes["spark2"], here, server.rack, report)


def test_the_proof_passes_at_once_after_prometheus_was_started(server: Server, tmp_path: Path) -> None:
    wait_for("both nodes are scraped", up(server))
    server.stop("prometheus")
    server.start("prometheus", desired.prometheus_dropin(server.rack))
    line = wait_for_scrapes(
        server.rack, PrometheusApi(server.url), awaited(server.rack, started("spark2", PROMETHEUS)), never
    )
    assert line == ""
    report, here, node = CheckReporter([]), Machine(tmp_path), server.rack.nodes["spark2"]
    verify.test_every_node_is_scraped(node, here, server.rack, report)
    verify.test_the_alerts_are_evaluated(node, here, server.rack, report)
    verify.test_prometheus_knows_its_alertmanager(node, here, server.rack)


def test_an_exporter_that_does_not_answer_is_named_with_its_reason_when_the_time_is_over(server: Server) -> None:
    wait_for("both nodes are scraped", up(server))
    server.stop("spark1")
    try:
        wait_for("spark1 is down", down(server, "spark1"))
        clock = Clock()
        line = wait_for_scrapes(
            server.rack,
            PrometheusApi(server.url),
            awaited(server.rack, started("spark1", EXPORTER)),
            never,
            clock.now,
            clock.sleep,
        )
        assert line.startswith('not scraped yet: spark1: Get "http://')
        assert sum(clock.slept) == START_SECONDS + INTERVALS * INTERVAL
    finally:
        server.start("spark1", desired.exporter_dropin(server.rack, server.rack.nodes["spark1"]))


def test_an_operator_who_stops_the_run_does_not_wait(server: Server) -> None:
    """Of Prometheus's own start: no scrape of before counts."""
    wait_for("both nodes are scraped", up(server))
    clock = Clock()
    found = awaited(server.rack, started("spark2", EXPORTER))
    line = wait_for_scrapes(server.rack, PrometheusApi(server.url), found, lambda: True, clock.now, clock.sleep)
    assert (line, clock.slept) == ("not scraped yet: spark2: no scrape since it was started", [])


@pytest.mark.parametrize(
    ("targets", "url", "line"),
    [
        ({("node", "spark9"): True}, "", "not scraped yet: spark9: is not a target of Prometheus"),
        ({("node", "spark1"): True}, "http://127.0.0.1:9", "not scraped yet: Prometheus: http://127.0.0.1:9: connec"),
    ],
)
def test_what_this_run_cannot_have_changed_is_not_waited_for(
    server: Server, targets: dict[tuple[str, str], bool], url: str, line: str
) -> None:
    """The server was left out of the run: Prometheus does not know a new node, or it does not run."""
    wait_for("both nodes are scraped", up(server))
    clock, api = Clock(), PrometheusApi(url or server.url)
    found = wait_for_scrapes(server.rack, api, AwaitedScrapes("spark2", targets, False), never, clock.now, clock.sleep)
    assert found.startswith(line)
    assert clock.slept == []


N1, N2 = ("node", "spark1"), ("node", "spark2")
SELF, ALERTS = ("prometheus", ""), ("alertmanager", "")


@pytest.mark.parametrize(
    ("hosts", "wanted"),
    [
        ([started("spark1", EXPORTER)], ({N1: True}, False)),
        ([started("spark1", "sparkrack-node-metrics.timer"), machine("spark2")], ({N1: True}, False)),
        ([started("spark2", ALERTMANAGER)], ({N2: True, ALERTS: True}, False)),
        ([started("spark2", PROMETHEUS)], ({N1: False, N2: True, SELF: True, ALERTS: False}, True)),
        ([started("spark1", PROMETHEUS)], ({N1: True}, False)),
        ([machine("spark1", ("memory", EventKind.CHANGE, "x"))], None),
        ([machine("spark1", ("watch", EventKind.NOTE, "x"))], None),
        ([machine("s0", ("watch", EventKind.CHANGE, "x"), kind="switch")], None),
    ],
)
def test_what_is_awaited_is_what_a_plan_starts(hosts: list[HostPlan], wanted: Any) -> None:
    """A Prometheus that is stopped on a node that is not the server is not awaited."""
    found = awaited_scrapes(loaded(changed(SWITCH, ("rack: ", f"{WATCH}\nrack: "))), plan(*hosts))
    assert (None if found is None else (found.targets, found.restarted)) == wanted


@pytest.mark.parametrize("server_line", ["", "watch: {server: 10.77.0.99}\n"])
def test_without_a_server_in_the_rack_nothing_is_awaited(server_line: str) -> None:
    found = loaded(changed(SWITCH, ("rack: ", f"{server_line}rack: ")))
    assert awaited_scrapes(found, plan(started("spark1", EXPORTER))) is None


@pytest.mark.parametrize(
    ("made", "ports"),
    [(plan(started("spark1", EXPORTER)), [("127.0.0.1", desired.PROMETHEUS_PORT)]), (plan(machine("spark1")), [])],
    ids=["a change", "no change"],
)
def test_prometheus_is_asked_over_ssh_and_only_after_a_change(
    server: Server, made: Plan, ports: list[tuple[str, int]], tmp_path: Path
) -> None:
    wait_for("both nodes are scraped", up(server))
    address = server.rack.nodes["spark2"].address
    node = ForwardingNode(address, desired.LOOPBACK)
    try:
        text = re.sub(
            r"access:\n( .*\n)+", node.access(tmp_path, address), changed(SWITCH, ("rack: ", f"{WATCH}\nrack: "))
        )
        file = tmp_path / "rack.yaml"
        file.write_text(changed(text, ("address: 10.77.0.12", f"address: {address}")))
        assert unscraped(load(file), made, never, NO_PROGRESS) == ""
    finally:
        node.close()
    assert list(dict.fromkeys(node.asked)) == ports
    assert len(node.transports) == len(ports)
