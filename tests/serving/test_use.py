"""`serve use` with the real coordinators and agents of two units of a slot: it comes, it goes back, it is killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import load
from serving.options import served_units
from sparkrack.cli.main import sparkrack
from tests.serving.killed_use import KILLED_USE
from tests.serving.second_unit import SecondUnit
from tests.serving.serving_rack import API_PORT, PATIENCE, ServingRack
from tests.serving.test_drain import client
from tests.serving.test_serve_verbs import VerbRack
from tests.serving.use_kills import ABSENT, CLIENT, COORDINATOR, client_load, use_beside
from tests.unit.model.serving_racks import put, text, unit

BESIDE_PORT = 8001


class SlotRack(VerbRack):
    """The rack of the verbs, whose units toy and tiny are alternatives; toy is up. `beside`: one that is up on the same
    nodes.
    """

    names = ("toy", "tiny")
    beside: SecondUnit | None = None

    def __init__(self, rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
        rack.up(times={"probe_interval": 3600.0, "drain": 3600.0})
        self.tiny = SecondUnit(rack)
        self.tiny.up(times={"probe_interval": 3600.0})
        super().__init__(rack, monkeypatch)
        names = [node.name for node in rack.nodes]
        both: dict[str, Any] = {"nodes": names, "api": {"listen": "management"}, "slot": "main"}
        self.units = {"toy": unit(state="up", **both), "tiny": unit(state="down", **both)}
        put(rack.folder, text(self.units, self.hosts))
        rack.start()

    def with_unit_beside(self) -> None:
        """Start a third unit on the same nodes, which is of no slot."""
        self.beside = SecondUnit(self.rack, BESIDE_PORT, "beside", 2)
        self.beside.up(times={"probe_interval": 3600.0})
        shared = {name: {**one, "memory": 0.4} for name, one in self.units.items()}
        own = {key: value for key, value in shared["toy"].items() if key != "slot"}
        shared["beside"] = {**own, "model": "other", "api": {"listen": "management", "port": BESIDE_PORT}}
        put(self.rack.folder, text(shared, self.hosts))
        self.beside.start()

    def end(self) -> None:
        """End the nodes and what ran on them."""
        self.rack.down()
        self.tiny.down()
        if self.beside:
            self.beside.down()

    def serve(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["serve", *words, "--rack", str(self.file)])

    def run_verb(self, *words: str) -> tuple[int, str]:
        """Run a verb of the operator; return its exit code and what it printed."""
        done = CliRunner().invoke(sparkrack, [*words, "--rack", str(self.file)])
        return done.exit_code, done.stdout if "--json" in words else done.output

    def program(self, *words: str) -> subprocess.Popen[str]:
        """Start a Python program of the operator, whose output is read."""
        return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def client(self, out: Path) -> subprocess.Popen[bytes]:
        """Start clients for the models of both units, which have one address."""
        return self.asking(out, API_PORT, *self.names)

    def asking(self, out: Path, port: int, *models: str) -> subprocess.Popen[bytes]:
        """Start clients for models at a port of the head."""
        second = self.rack.nodes[1]
        url = f"http://{self.rack.nodes[0].address}:{port}/v1/chat/completions"
        key = second.folder / "etc/unit.key"
        words = ["ip", "netns", "exec", second.namespace, sys.executable, "-c", CLIENT, url, str(key), "", str(out)]
        return subprocess.Popen([*words, *models])

    def client_beside(self, out: Path) -> subprocess.Popen[bytes]:
        """Start a client of the unit beside the slot."""
        return self.asking(out, BESIDE_PORT, "beside")

    def processes_beside(self) -> list[list[int]]:
        """The processes of the unit beside the slot, by node."""
        assert self.beside
        return [sorted(node.processes("beside")) for node in self.beside.nodes]

    def unit(self, name: str) -> ServingRack:
        return self.rack if name == "toy" else self.tiny

    def ranks(self, unit: str) -> int:
        """Return on how many nodes a rank of a unit runs."""
        return sum(bool(node.processes(unit)) for node in self.rack.nodes)

    def kill_coordinator(self, unit: str) -> None:
        """Kill the coordinator of a unit once it is starting, and start it again, as systemd does."""
        self.unit(unit).wait_for("starting")
        head = self.unit(unit).nodes[0]
        assert head.coordinator
        head.coordinator.kill()
        head.coordinator.wait()
        head.start_coordinator()

    def hinder(self, unit: str, hindered: bool) -> None:
        """Make a gate of a unit fail, or pass again."""
        reason = self.unit(unit).nodes[1].gate_reason
        reason.write_text("no room\n") if hindered else reason.unlink()

    def declared(self) -> dict[str, str]:
        """The states in rack.yaml by unit."""
        units = served_units(load(self.file))
        return {name: declared.state for name, declared in units.items()}

    def states(self) -> tuple[dict[str, str], int, str]:
        """The states of the units, the exit code of `serve status`, and what it says of the slot."""
        done = self.serve("status", "--json")
        assert done.stdout.startswith("{"), (done.stdout, done.stderr, done.exc_info)
        found = json.loads(done.stdout)
        (slot,) = found["slots"]
        return {one["unit"]: one["state"] for one in found["units"]}, done.exit_code, slot["reason"]

    def killed(self, at: str) -> None:
        """Run `serve use tiny`, which is killed at a step."""
        words = [sys.executable, "-c", KILLED_USE, at, "tiny", "--rack", str(self.file)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == -signal.SIGKILL, f"{at} was not reached: {done.stdout}{done.stderr}"

    def unlock(self) -> None:
        """End the lock of a killed run, as the message of a refused one says."""
        refused = self.serve("use", "tiny", "-y")
        found = re.search(r"sparkrack unlock (\S+)", refused.output)
        assert (refused.exit_code, bool(found)) == (1, True), refused.output
        assert found
        done = CliRunner().invoke(sparkrack, ["unlock", found[1], "--rack", str(self.file)])
        assert done.exit_code == 0, done.output


@pytest.fixture
def slot(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlotRack]:
    """Two units of a slot, of which toy is up."""
    made = SlotRack(rack, monkeypatch)
    yield made
    made.end()


def test_another_unit_of_the_slot_is_used_and_rack_yaml_says_so(slot: SlotRack) -> None:
    before = slot.file.read_text()
    done = slot.serve("use", "tiny", "-y")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "use unit tiny of slot main"
    assert lines[1] == "  toy: its requests end within 30s, then it is stopped on spark1, spark2, and stays down"
    assert lines[2].startswith("  tiny: is started on spark1, spark2; until then the slot is away for an unknown time")
    assert re.match(
        r"  if it does not come, toy is started again: away for about 1 min: its last start took \d+ s", lines[3]
    )
    assert slot.states() == ({"toy": "down", "tiny": "ready"}, 0, "")
    assert slot.declared() == {"toy": "down", "tiny": "up"}
    swapped = before.replace("state: up", "state: X").replace("state: down", "state: up").replace("X", "down")
    assert slot.file.read_text() == swapped, "another byte of rack.yaml was changed"
    again = slot.serve("use", "tiny", "-y")
    assert (again.exit_code, again.stdout.splitlines()[0]) == (0, "unit tiny is up already, and rack.yaml says so")
    back = slot.serve("use", "toy", "-y")
    assert back.exit_code == 0, back.output
    assert slot.states() == ({"toy": "ready", "tiny": "down"}, 0, "")
    assert slot.file.read_text() == before


def test_a_unit_that_does_not_come_gives_way_to_the_former_one(slot: SlotRack) -> None:
    before = slot.file.read_bytes()
    slot.tiny.nodes[1].gate_reason.write_text("12 GiB are available; 103 GiB are needed\n")
    done = slot.serve("use", "tiny", "-y")
    assert done.exit_code == 1, done.output
    assert "spark2: 12 GiB are available; 103 GiB are needed" in done.stderr
    assert "tiny: does not serve (spark2: 12 GiB are available; 103 GiB are needed); toy serves again" in done.stderr
    assert slot.states() == ({"toy": "ready", "tiny": "down"}, 0, "")
    assert slot.file.read_bytes() == before
    assert slot.rack.record()["generation"] == 2


def test_requests_of_the_former_unit_are_answered_before_it_is_stopped(slot: SlotRack) -> None:
    slot.rack.nodes[0].fault("busy")
    waiting = client(slot.rack)
    words = [
        sys.executable,
        "-c",
        "from sparkrack.cli.main import sparkrack; sparkrack()",
        "serve",
        "use",
        "tiny",
        "-y",
    ]
    use = subprocess.Popen([*words, "--rack", str(slot.file)], stdout=subprocess.PIPE, text=True)
    slot.rack.wait_for("draining")
    looks = slot.rack.requests("/metrics")
    slot.rack.wait(lambda: slot.rack.requests("/metrics") > looks + 3, "the coordinator has looked several times")
    assert slot.tiny.record() == {}, "the unit is started before the former one is stopped"
    slot.rack.nodes[0].fault("busy", False)
    output = use.communicate(timeout=PATIENCE)[0]
    assert use.returncode == 0, output
    assert waiting.communicate(timeout=PATIENCE)[1] == ""
    assert waiting.returncode == 0, "the request of the client was ended"
    assert slot.declared() == {"toy": "down", "tiny": "up"}


def test_nothing_is_stopped_where_the_answer_is_no_or_rack_yaml_cannot_be_changed(slot: SlotRack) -> None:
    generation = slot.rack.record()["generation"]
    done = CliRunner().invoke(sparkrack, ["serve", "use", "tiny", "--rack", str(slot.file)], input="n\n")
    assert done.exit_code == 1, done.output
    slot.file.write_text(
        slot.file.read_text().replace("state: up", "state: &up up").replace("state: down", "state: *up")
    )
    assert slot.serve("use", "tiny", "-y").exit_code == 1
    assert (slot.rack.record()["state"], slot.rack.record()["generation"]) == ("ready", generation)


KILLED = {
    "before down of toy": ({"toy": "ready", "tiny": "down"}, 0, ""),
    "after down of toy": ({"toy": "down", "tiny": "down"}, 2, "no unit is up, and rack.yaml has toy up"),
    "toy is down": ({"toy": "down", "tiny": "down"}, 2, "no unit is up, and rack.yaml has toy up"),
    "after up of tiny": ({"toy": "down", "tiny": "ready"}, 2, "rack.yaml has toy up, and tiny is: a change was not"),
    "tiny is starting": ({"toy": "down", "tiny": "ready"}, 2, "rack.yaml has toy up, and tiny is: a change was not"),
    "before down in rack.yaml": (
        {"toy": "down", "tiny": "ready"},
        2,
        "rack.yaml has toy up, and tiny is: a change was",
    ),
    "after down in rack.yaml": (
        {"toy": "down", "tiny": "ready"},
        2,
        "rack.yaml has none up, and tiny is: a change",
    ),
    "after up in rack.yaml": ({"toy": "down", "tiny": "ready"}, 0, ""),
}


ALWAYS = ("tiny is starting", "after down in rack.yaml")
"""The others are in `make soak`."""


@pytest.mark.parametrize("at", [one if one in ALWAYS else pytest.param(one, marks=pytest.mark.soak) for one in KILLED])
def test_a_change_that_was_killed_is_shown_and_continued(slot: SlotRack, at: str) -> None:
    slot.killed(at)
    states, code, reason = KILLED[at]
    if states["toy"] == "down":
        slot.rack.wait_for("down")
    if states["tiny"] == "ready":
        slot.tiny.wait_for("ready")
    shown = slot.states()
    assert shown[:2] == (states, code)
    assert shown[2].startswith(reason)
    assert not code or "`sparkrack serve use " in shown[2]
    if at != "after up in rack.yaml":  # there is nothing left to do, so that no lock is asked for
        slot.unlock()
    done = slot.serve("use", "tiny", "-y")
    assert done.exit_code == 0, done.output
    assert slot.states() == ({"toy": "down", "tiny": "ready"}, 0, "")
    assert slot.declared() == {"toy": "down", "tiny": "up"}


def test_a_change_that_was_killed_goes_back_by_the_former_unit(slot: SlotRack) -> None:
    slot.killed("before down in rack.yaml")
    slot.unlock()
    before = slot.file.read_bytes()
    done = slot.serve("use", "toy", "-y")
    assert done.exit_code == 0, done.output
    assert slot.states() == ({"toy": "ready", "tiny": "down"}, 0, "")
    assert slot.file.read_bytes() == before


def test_a_unit_that_fails_after_a_kill_gives_way_to_the_one_that_rack_yaml_has_up(slot: SlotRack) -> None:
    slot.killed("toy is down")
    slot.unlock()
    slot.tiny.nodes[0].gate_reason.write_text("no room\n")
    done = slot.serve("use", "tiny", "-y")
    assert done.exit_code == 1, done.output
    assert slot.states() == ({"toy": "ready", "tiny": "down"}, 0, "")


@pytest.mark.parametrize(
    "step",
    [
        "{new} is starting",
        pytest.param(ABSENT, marks=pytest.mark.soak),
        pytest.param(COORDINATOR, marks=pytest.mark.soak),
    ],
)
def test_no_client_has_the_answer_of_another_model_while_a_slot_changes(slot: SlotRack, step: str) -> None:
    """`python -m tests.serving.use_kills` does it at each step, ten times. A third unit answers throughout."""
    slot.with_unit_beside()
    with client_load(slot) as clients, client_load(slot, beside=True) as beside:
        done = use_beside(slot, clients, beside, step)
    assert done["answers"]
    assert done["up"] == "toy" or step != ABSENT
