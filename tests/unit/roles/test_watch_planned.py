"""Planned work silences its alerts: by real Prometheus, Alertmanager and amtool; ssh and the nodes are stand-ins."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from core.model import Rack
from core.util.progress import ProgressObserver
from core.verify.outcomes import Outcome
from roles.watch import desired
from sparkrack.cli import reboot
from sparkrack.cli.main import sparkrack
from sparkrack.engine.silences import (
    SETTLE_SECONDS,
    Silence,
    silenced,
    silences_of_nodes,
    silences_of_switches,
    silences_of_units,
)
from sparkrack.maintenance import rolling_reboot
from sparkrack.rebuild import restart
from sparkrack.watch.prometheus_api import PrometheusApi, PrometheusError
from tests.unit.cli.test_reboot import CAT, FIND, SSH
from tests.unit.model import serving_racks
from tests.unit.model.racks import DIRECT, changed, loaded
from tests.unit.roles.test_watch_inhibitions import READER, UNITS
from tests.unit.roles.watch_server import Server, on_loopback, own_loopback, running, wait_for  # noqa: F401
from tests.unit.roles.watch_tools import PROGRAMS, call, written

RUN = "20260314T091500-3fa2c1d0"
SYSTEMCTL = """#!/bin/sh
basename "$NODE" >> "$NODES/restarted"
rm -rf "$NODE/run/sparkrack"
"""

Alert = tuple[str, Mapping[str, str]]
"""The name of an alert, and its labels."""


class StandInNodes:
    """Nodes that are folders: shells of this machine, on which amtool is installed."""

    def __init__(self, folder: Path, found: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name, text in {"ssh": SSH, "bin/cat": CAT, "bin/find": FIND, "bin/systemctl": SYSTEMCTL}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        (folder / "bin/amtool").symlink_to(PROGRAMS / "amtool")
        for name in found.nodes:
            (folder / name / "run").mkdir(parents=True)
            (folder / name / "boot").write_text("first\n")
            (folder / name / "containers").write_text("")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("NODES", str(folder))
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))

    @property
    def restarted(self) -> list[str]:
        noted = self.folder / "restarted"
        return noted.read_text().splitlines() if noted.exists() else []


@dataclass
class Alerting:
    """A real Alertmanager, and the nodes of its rack. `said`: what a run printed."""

    rack: Rack
    nodes: StandInNodes
    server: Server
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{desired.listen_address(self.rack)}:{desired.ALERTMANAGER_PORT}"

    def get(self, what: str) -> Any:
        url = f"{self.url}/api/v2/{what}"
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - an address of this machine
            return json.load(answer)

    def add(self, case: str, alert: Alert) -> bool:
        labels = {"alertname": alert[0], **alert[1], "case": case}
        words = (f"{key}={value}" for key, value in labels.items())
        return call("amtool", f"--alertmanager.url={self.url}", "alert", "add", *words).returncode == 0

    def silent(self) -> set[str]:
        """The cases of alerts that a silence mutes now."""
        return {one["labels"]["case"] for one in self.get("alerts") if one["status"]["silencedBy"]}

    def silences(self) -> list[dict[str, Any]]:
        """Those that are active."""
        return [one for one in self.get("silences") if one["status"]["state"] == "active"]

    @contextmanager
    def work(self, *wanted: Silence, seconds: float = 600) -> Iterator[None]:
        with silenced(self.rack, RUN, "restart of n0", wanted, seconds, self.said.append):
            yield


@contextmanager
def alerting(folder: Path, declared: Rack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Alerting]:
    found, _ = on_loopback(declared)
    written(folder, found)
    server = Server(found, folder)
    server.start("alertmanager", desired.alertmanager_dropin(found))
    try:
        yield Alerting(found, StandInNodes(folder / "nodes", found, monkeypatch), server)
    finally:
        server.stop_all()


def behind_a_switch() -> Rack:
    """Four nodes behind a switch, a unit of n0 and n1, and one of n2 alone; n3 is the server."""
    file = serving_racks.text(UNITS, serving_racks.machines(4), watch={"server": "n3"})
    return loaded(changed(file, READER))


def direct() -> Rack:
    """Nodes left and right with direct cables; right is the server."""
    return loaded(changed(DIRECT, ("rack: ", "watch: {server: right}\nrack: ")))


LEFT, RIGHT = ({"node": name} for name in ("left", "right"))
N0, N1, N2 = ({"node": name} for name in ("n0", "n1", "n2"))
CASES: dict[
    str, tuple[Callable[[], Rack], Callable[[Rack], list[Silence]], Mapping[str, Alert], Mapping[str, Alert]]
] = {
    "a node with direct cables": (
        direct,
        lambda found: silences_of_nodes(found, ["left"]),
        {
            "it is silent": ("NodeSilent", LEFT),
            "its link": ("LinkDown", {**LEFT, "device": "enp1s0f1np1"}),
            "the other end": ("LinkDown", {**RIGHT, "device": "enp1s0f1np1"}),
            "the other end flaps": ("LinkFlaps", {**RIGHT, "device": "enP2p1s0f1np1"}),
        },
        {
            "the other node": ("NodeSilent", RIGHT),
            "another interface of it": ("LinkDown", {**RIGHT, "device": "enP7s7"}),
            "something else of the other end": ("MtuChanged", {**RIGHT, "device": "enp1s0f1np1"}),
            "of the rack": ("KernelsDiffer", {}),
            "the sign of life": ("Watchdog", {}),
        },
    ),
    "a node behind a switch": (
        behind_a_switch,
        lambda found: silences_of_nodes(found, ["n1"]),
        {
            "it is silent": ("NodeSilent", N1),
            "its unit, whose head is another": ("EngineDown", {**N0, "unit": "pair"}),
            "its leg drops": ("SwitchDrops", {"switch": "s0", "leg": "s0/qsfp56-dd-1-2", "to": "n1/1"}),
        },
        {
            "a node with another name": ("NodeSilent", {"node": "n10"}),
            "the head of the unit": ("NodeSilent", N0),
            "another unit": ("EngineDown", {**N2, "unit": "alone"}),
            "the leg of another": ("SwitchDrops", {"switch": "s0", "leg": "s0/qsfp56-dd-1-1", "to": "n0/1"}),
            "the switch": ("SwitchSilent", {"switch": "s0", "problem": "unreachable", "node": "n3"}),
        },
    ),
    "a unit": (
        behind_a_switch,
        lambda _: silences_of_units(["pair"]),
        {"it is down": ("EngineDown", {**N0, "unit": "pair"})},
        {"another": ("EngineDown", {**N2, "unit": "alone"}), "its node": ("NodeSilent", N0)},
    ),
    "a switch": (
        behind_a_switch,
        lambda found: silences_of_switches(found, ["s0"]),
        {
            "it is silent": ("SwitchSilent", {"switch": "s0", "problem": "unreachable", "node": "n3"}),
            "a link to it": ("LinkDown", {**N2, "device": "enp1s0f1np1"}),
        },
        {
            "another switch": ("SwitchSilent", {"switch": "s1", "problem": "unreachable", "node": "n3"}),
            "a node": ("NodeSilent", N0),
            "an interface that is not cabled to it": ("LinkDown", {**N2, "device": "enP7s7"}),
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_touched_is_silent_and_nothing_else_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, wanted, quiet, loud = CASES[name]
    with alerting(tmp_path, declared(), monkeypatch) as site:
        for case, alert in {**quiet, **loud}.items():
            wait_for("Alertmanager takes alerts", partial(site.add, case, alert))
        with site.work(*wanted(site.rack)):
            wait_for(f"{sorted(quiet)} are silent", lambda: site.silent() == set(quiet))
        assert site.said == []


def test_a_silence_ends_soon_after_its_work_and_names_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with alerting(tmp_path, direct(), monkeypatch) as site:
        wait_for("Alertmanager takes alerts", lambda: site.add("gone", ("NodeSilent", LEFT)))
        with suppress(KeyboardInterrupt), site.work(*silences_of_nodes(site.rack, ["left"])):
            first = site.silences()
            raise KeyboardInterrupt
        after = site.silences()
        assert len(first) == len(after) > 1
        assert not {one["id"] for one in first} & {one["id"] for one in after}
        for one in (*first, *after):
            assert (one["createdBy"], one["comment"]) == ("sparkrack", f"{RUN} restart of n0")
        soon = datetime.now(UTC) + timedelta(seconds=SETTLE_SECONDS)
        assert all(datetime.fromisoformat(one["endsAt"].replace("Z", "+00:00")) <= soon for one in after)
        assert all(datetime.fromisoformat(one["endsAt"].replace("Z", "+00:00")) > soon for one in first)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("off", "restart of n0: alerts are not silenced: right: ssh: connect: No route to host"),
        ("no Alertmanager", "restart of n0: alerts are not silenced: right: "),
        ("no amtool", ""),
    ],
)
def test_what_cannot_be_silenced_is_one_line_and_the_work_is_done(
    broken: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = on_loopback(direct())
    nodes, lines, done = StandInNodes(tmp_path / "nodes", found, monkeypatch), list[str](), []
    if broken == "off":
        (nodes.folder / "right/off").touch()
    if broken == "no amtool":
        (nodes.folder / "bin/amtool").unlink()
    with silenced(found, RUN, "restart of n0", silences_of_nodes(found, ["left"]), 600, lines.append):
        done.append(True)
    assert done
    assert len(lines) == bool(said)
    assert all(line.startswith(said) and "\n" not in line for line in lines)


def test_a_server_outside_of_the_rack_is_reported_in_one_line() -> None:
    found = loaded(changed(DIRECT, ("rack: ", "watch: {server: 10.77.0.99}\nrack: ")))
    lines: list[str] = []
    with silenced(found, RUN, "restart of n0", silences_of_nodes(found, ["left"]), 600, lines.append):
        pass
    assert lines == ["restart of n0: alerts are not silenced: 10.77.0.99, their server, is not a node of the rack"]


@dataclass
class RollingReboot:
    """A rolling reboot of three nodes, each of which is away until Alertmanager has its alert; n2 is the server of the
    watch, and takes Prometheus and Alertmanager with it.
    """

    server: Server
    nodes: StandInNodes
    reported: Callable[[str], object]
    faults: list[BaseException] = field(default_factory=list)

    def boot(self, name: str) -> None:
        """End the programs of a node as its shutdown does, and start them again."""
        programs = [name] if name != "n2" else [name, "prometheus", "alertmanager"]
        dropins = {
            name: desired.exporter_dropin(self.server.rack, self.server.rack.nodes[name]),
            "prometheus": desired.prometheus_dropin(self.server.rack),
            "alertmanager": desired.alertmanager_dropin(self.server.rack),
        }
        for program in programs:
            process = self.server.processes.pop(program)
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        if name != "n2":
            wait_for(f"the alert of {name}", lambda: self.reported(name))
        for program in programs:
            self.server.start(program, dropins[program])
        (self.nodes.folder / name / "boot").write_text("second\n")

    def watch(self, over: threading.Event) -> None:
        """Boot each node that the command restarts."""
        done = 0
        try:
            while not over.wait(0.05):
                for name in self.nodes.restarted[done:]:
                    self.boot(name)
                    done += 1
        except BaseException as fault:
            self.faults.append(fault)
            raise


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "without silences"])
def test_a_rolling_reboot_of_three_nodes_pages_nobody(
    silent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its silences each node pages, but for the server, which evaluates nothing meanwhile."""
    watch = {"server": "n2", "interval": "5s", "notify": {"webhook": {"env": "WATCH_WEBHOOK"}}}
    declared = loaded(serving_racks.text({}, serving_racks.machines(3), watch=watch))
    with running(tmp_path / "watch", declared) as server:
        nodes = StandInNodes(tmp_path / "nodes", server.rack, monkeypatch)
        site, api = Alerting(server.rack, nodes, server), PrometheusApi(server.url)

        def pages() -> set[tuple[str, str]]:
            # This machine has no interfaces of a GB10.
            alerts = [one["labels"] for message in list(server.posted) for one in message["alerts"]]
            found = {(one["alertname"], one.get("node", "")) for one in alerts if one.get("severity") == "page"}
            return {page for page in found if page[0] != "HalfMissing"}

        def reported(name: str) -> bool:
            """Whether Alertmanager has decided about NodeSilent of this node."""
            if not silent:
                return ("NodeSilent", name) in pages()
            alerts = [one for one in site.get("alerts") if one["labels"].get("node") == name]
            return any(one["labels"]["alertname"] == "NodeSilent" and one["status"]["silencedBy"] for one in alerts)

        def scraped() -> bool:
            try:
                return len(api.query('up{job="node"} == 1')) == 3
            except PrometheusError:
                return False

        def proven(
            _rack: object, _files: object, names: list[str], _junit: None, *, progress: ProgressObserver
        ) -> list[Outcome]:
            progress.phase("verify", names)
            wait_for("all nodes are scraped", scraped)
            return [Outcome(names[0], "memory", "test_swap", passed=True, why="")]

        monkeypatch.setattr(reboot, "load", lambda _: server.rack)
        monkeypatch.setattr(restart, "run_checks", proven)
        monkeypatch.setattr(restart, "POLL_SECONDS", 0.05)
        if not silent:
            monkeypatch.setattr(rolling_reboot, "silences_of_nodes", lambda *_: [])
        wait_for("all nodes are scraped", scraped)
        over, rolling = threading.Event(), RollingReboot(server, nodes, reported)
        thread = threading.Thread(target=rolling.watch, args=(over,))
        thread.start()
        (tmp_path / "rack.yaml").write_text(serving_racks.text({}, serving_racks.machines(3), watch=watch))
        try:
            done = CliRunner().invoke(sparkrack, ["reboot", "--rack", str(tmp_path / "rack.yaml"), "-y"])
        finally:
            over.set()
            thread.join(120)
        assert not rolling.faults
        assert done.exit_code == 0, done.output
        assert nodes.restarted == ["n0", "n1", "n2"]
        assert "not silenced" not in done.output
        # What was to be sent before this one is sent.
        wait_for("Alertmanager takes alerts", lambda: site.add("last", ("Last", {"severity": "page"})))
        wait_for("the last page", lambda: ("Last", "") in pages())
        assert pages() - {("Last", "")} == (set() if silent else {("NodeSilent", "n0"), ("NodeSilent", "n1")})
