"""Injects one failure into a served unit on a rack of its own, and observes what follows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import namespace
from tests.serving.engines import STAND_IN
from tests.serving.failure_cells import TIMES, Cell
from tests.serving.serving_rack import API_PORT, COORDINATOR_PORT, KEY, ServingRack

LOOK = 0.05
CLIENT = """
import http.client, json, os, time
body = json.dumps({"model": "toy", "prompt": "x", "max_tokens": 1})
headers = {"Authorization": "Bearer " + os.environ["CLIENT_KEY"], "Content-Type": "application/json"}
while True:
    try:
        connection = http.client.HTTPConnection(os.environ["CLIENT_HEAD"], int(os.environ["CLIENT_PORT"]))
        connection.request("POST", "/v1/chat/completions", body, headers)
        connection.getresponse().read()
        connection.close()
    except OSError:
        pass
    time.sleep(0.2)
"""


@dataclass
class Outcome:
    """What one injection led to. `noticed`, `gone`: seconds from the injection. `load`: of the machine, over 1 min."""

    cell: str
    detector: str = ""
    noticed: float | None = None
    gone: float | None = None
    state: str = ""
    reason: str = ""
    restarts: int = 0
    generation: int = 0
    left: list[str] = field(default_factory=list)
    load: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def values(self) -> dict[str, Any]:
        return asdict(self)


def machine_load() -> float:
    return round(os.getloadavg()[0], 1)


@contextmanager
def clients(rack: ServingRack, wanted: bool) -> Iterator[None]:
    """A client beyond the switch that asks for completions, one after the other."""
    if not wanted:
        yield
        return
    namespace.ip("address", "add", "10.77.0.99/24", "dev", "br0", namespace=rack.switch)
    head = rack.nodes[0].address
    environment = {**os.environ, "CLIENT_KEY": KEY, "CLIENT_HEAD": head, "CLIENT_PORT": str(API_PORT)}
    client = subprocess.Popen(["ip", "netns", "exec", rack.switch, sys.executable, "-c", CLIENT], env=environment)
    try:
        rack.wait(lambda: rack.requests("/v1/chat/completions") > 3, "requests of a client")
        rack.wait(lambda: rack.record()["state"] == "busy", "state busy")
        yield
    finally:
        client.kill()
        client.wait()


class Observation:
    """The first report of a failure, and the end of all ranks, from the injection on."""

    def __init__(self, rack: ServingRack) -> None:
        self.rack = rack
        self.pids = {pid for node in rack.nodes for pid in node.processes()}
        self.lengths = [node.log.stat().st_size for node in rack.nodes]
        self.starts = [node.starts for node in rack.nodes]
        self.begun = time.time()
        self.too_early = ""
        """A state in which every rank is stopped, that was reported while one ran."""

    def _first_report(self) -> tuple[float, str, str] | None:
        """Time, reporter and reason of what is reported by now: the state of the coordinator, or an agent for
        itself."""
        found = []
        error = self.rack.nodes[0].clock_error
        wrong = float(error.read_text()) if error else 0.0
        for at, state, _, reason in self.rack.record().get("transitions", []):
            at -= wrong
            if at >= self.begun and state in ("stuck", "stopping", "held"):
                found.append((at, "coordinator", reason))
                break
        for node, length in zip(self.rack.nodes, self.lengths, strict=True):
            with node.log.open("rb") as log:
                log.seek(length)
                text = log.read().decode(errors="replace")
            if stopped := re.search(
                r"^stop sparkrack-serve-toy.service: (no answer .*|the coordinator .*)$", text, re.M
            ):
                found.append((time.time(), f"agent of {node.name}", stopped[1]))
        return min(found, default=None)

    def follow(self, outcome: Outcome, patience: float) -> None:
        """Wait until the failure is reported and no rank runs."""
        until = self.begun + patience
        reported = gone = None
        scanned = 0.0
        while not (reported and gone):
            now = time.time()
            if now > until:
                outcome.faults.append(f"not noticed, or ranks run, after {patience:g} s: {sorted(self.pids)}")
                break
            reported = reported or self._first_report()
            stopped = self._stopped_state()
            self.pids = {pid for pid in self.pids if namespace.alive(pid)}
            if stopped and self.pids:
                self.too_early = f"{stopped} while ranks run: {sorted(self.pids)}"
            if not self.pids and not gone:
                gone = now
            elif now - scanned > 1 and [node.starts for node in self.rack.nodes] == self.starts:
                scanned, gone = now, gone if self._none_runs() else None
            time.sleep(LOOK)
        outcome.faults += [self.too_early] if self.too_early else []
        if reported:
            outcome.noticed = round(max(reported[0] - self.begun, 0.0), 1)
            outcome.detector = f"{reported[1]}: {reported[2]}"
        if gone and [node.starts for node in self.rack.nodes] != [0, 0]:
            outcome.gone = round(gone - self.begun, 1)

    def _stopped_state(self) -> str:
        """The state since the injection in which every rank is stopped, empty for another one."""
        at, state, *_ = [[0.0, ""], *self.rack.record().get("transitions", [])][-1]
        return str(state) if at >= self.begun and state in ("down", "held") else ""

    def _none_runs(self) -> bool:
        """Look for ranks that began to run after the injection."""
        self.pids |= {pid for node in self.rack.nodes for pid in node.processes()}
        return not self.pids


def left_behind(rack: ServingRack) -> list[str]:
    """What of the unit is left on the nodes beside coordinator and agents, once its processes had 20 s to be reaped."""
    until = time.monotonic() + 20
    while (found := _list_leftovers(rack)) and time.monotonic() < until:
        time.sleep(LOOK)
    return found


def _list_leftovers(rack: ServingRack) -> list[str]:
    found = []
    for node in rack.nodes:
        found += [
            f"{node.name}: process {' '.join(words)}"[:200] for words in _remove_systemctl_calls(node.strangers())
        ]
        found += [f"{node.name}: port {port}" for port in sorted(node.listening() - {COORDINATOR_PORT})]
        expected = {"toy.rank.json", "toy.hang.json", *(["toy.json"] if not node.rank else [])}
        files = {file.name for file in (node.folder / "state").iterdir()}
        found += [f"{node.name}: file {name}" for name in sorted(files - expected)]
        found += [f"{node.name}: {file.name} in shared memory" for file in (node.folder / "shm").iterdir()]
        for mounts in Path("/proc").glob("[0-9]*/mounts"):
            try:
                held = f"{node.shared_memory} /dev/shm " in mounts.read_text()
            except OSError:
                continue
            if held:
                found.append(f"{node.name}: shared memory, held by process {mounts.parent.name}")
    return found


def _remove_systemctl_calls(processes: list[list[str]]) -> list[list[str]]:
    """Leave out the questions to systemctl that are being asked, whose last process may be a fork or `cat`."""
    return [words for words in processes if not any("/service" in word for word in words)]


def times_of(pace: float) -> dict[str, float]:
    """The times of the unit at a pace: 1 for those that the published limits are about, 0.25 for a quarter of them."""
    return {**STAND_IN.times, **{name: seconds * pace for name, seconds in TIMES.items()}}


def run(cell: Cell, pace: float = 1.0) -> Outcome:
    """Inject a failure once. Failures of what must follow are in `faults` of the outcome.

    `pace`: factor of the unit's times, of those in the unit files of systemd, and of how long a failure lasts.
    """
    folder = Path(tempfile.mkdtemp(prefix="sparkrack-failure-"))
    rack = ServingRack(folder, as_installed=True, pace=pace)
    outcome = Outcome(cell.name)
    try:
        _inject_failure(cell, rack, outcome)
    except (AssertionError, subprocess.SubprocessError) as error:
        outcome.faults.append(str(error)[:4000])
    finally:
        rack.down()
        shutil.rmtree(folder)
    outcome.load = machine_load()
    outcome.faults += judged(cell, outcome, times_of(pace))
    return outcome


def judged(cell: Cell, outcome: Outcome, times: Mapping[str, float]) -> list[str]:
    """What is wrong with an outcome, whatever time it took."""
    found = [f"left behind: {one}" for one in outcome.left]
    reason, detector = outcome.detector.partition(": ")[2], cell.detector.format_map(times)
    if detector and not re.match(detector, reason):
        found.append(f"first report {reason!r}, expected {detector!r}")
    return found


def _inject_failure(cell: Cell, rack: ServingRack, outcome: Outcome) -> None:
    if cell.clock:
        for node in rack.nodes:
            node.clock_error = node.folder / "clock"
            node.clock_error.write_text("0")
    if cell.docker:
        rack.with_docker()
    rack.up(times=times_of(rack.pace), **({"rdma": "required"} if cell.rdma else {}))
    rack.wait(lambda: "the coordinator listens" in rack.nodes[0].log.read_text(), "the coordinator listens")
    if cell.when == "gating":
        cell.inject(rack)
        observed = Observation(rack)
        assert rack.ask_coordinator("up").returncode == 0
        observed.begun = rack.record()["transitions"][0][0]
    elif cell.when in ("down", "starting"):
        if cell.when == "down":
            cell.inject(rack)
        assert rack.ask_coordinator("up").returncode == 0
        rack.wait(lambda: rack.nodes[1].starts and rack.nodes[1].processes("serve"), "the second rank starts")
        observed = Observation(rack)
        if cell.when == "starting":
            cell.inject(rack)
    else:
        rack.start()
    with clients(rack, cell.load):
        if cell.when == "ready":
            observed = Observation(rack)
            cell.inject(rack)
        if cell.detector:
            observed.follow(outcome, 2 * cell.gone_limit + 30)
            if cell.repair:
                cell.repair(rack)
        else:
            _check_undisturbed(cell, rack, observed)
    _check_end(cell, rack, outcome)


def _check_undisturbed(cell: Cell, rack: ServingRack, observed: Observation) -> None:
    """See that the failure ends nothing, for longer than a lease and a question. Raises AssertionError."""
    time.sleep(cell.lasts * rack.pace)
    if cell.repair:
        cell.repair(rack)
    times = times_of(rack.pace)
    time.sleep(times["lease"] + 3 * times["ask"])
    assert all(namespace.alive(pid) for pid in observed.pids), "a rank has ended"
    assert [node.starts for node in rack.nodes] == observed.starts


def _check_end(cell: Cell, rack: ServingRack, outcome: Outcome) -> None:
    """Wait for the state that must follow, then see what is left behind. Raises AssertionError."""
    state, reason = cell.end

    def reached() -> bool:
        if rack.record().get("state", state) != state and (rack.record()["state"], state) != ("busy", "ready"):
            return False  # a question to the coordinator takes more of the machine than a look into its file
        asked = rack.ask_coordinator("status")
        if asked.returncode:
            return False
        found = json.loads(asked.stdout)
        outcome.state, outcome.reason = found["state"], found["reason"]
        outcome.restarts, outcome.generation = len(found["restarts"]), found["generation"]
        if state == "ready":
            again = 2 if cell.detector else 1
            counted = (outcome.generation, outcome.restarts) == (again, again - 1)
            return counted and found["state"] in ("ready", "busy")
        settled = found["unconfirmed"] == (["spark2"] if state == "stopping" else [])
        return found["state"] == state and settled and (state == "stopping" or reason in found["reason"])

    rack.wait(reached, f"state {state}: {reason}", every=0.5)
    if state == "ready":
        assert rack.ask_coordinator("down").returncode == 0
        rack.wait_for("down")
    outcome.left = left_behind(rack)
