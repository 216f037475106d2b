"""Two operators, an operator whose machine is killed, and where the API key is: commands as processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import namespace
from tests.serving.serving_rack import KEY, PATIENCE, ServingRack
from tests.serving.test_serve_verbs import VerbRack
from tests.unit.model.serving_racks import machines, put, text, unit

VERBS = ("start", "stop", "restart", "recreate")


class OperatorRack(VerbRack):
    """The rack of the verbs, with gates that wait until the file `open` is there."""

    def __init__(self, rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gates = rack.folder / "open"
        rack.up(gate=["sh", "-c", f"while [ ! -e {self.gates} ]; do sleep 0.1; done"])
        super().__init__(rack, monkeypatch)
        self.commands: list[subprocess.Popen[str]] = []

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command as another operator does."""
        line = [sys.executable, "-m", "sparkrack.cli.main", "serve", *words, "toy", "--rack", str(self.file)]
        begun = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.commands.append(begun)
        return begun

    def end(self) -> None:
        for command in self.commands:
            if command.poll() is None:
                os.killpg(command.pid, signal.SIGKILL)
            command.communicate()


@pytest.fixture
def operators(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> Iterator[OperatorRack]:
    made = OperatorRack(rack, monkeypatch)
    try:
        yield made
    finally:
        made.end()


def test_a_second_operator_is_refused_by_each_verb_and_one_run_starts_the_unit(operators: OperatorRack) -> None:
    rack = operators.rack
    first = operators.begin("start")
    rack.wait(lambda: rack.record().get("state") == "gating", "the first operator's command reached the coordinator")
    for verb in VERBS:
        done = operators.run(verb)
        assert done.exit_code == 1, f"{verb}: {done.output}"
        assert re.search(r"locked by run \S+ .*if that run is dead: sparkrack unlock", done.output), done.output
        assert [one["state"] for one in rack.status()["ranks"]] != ["stopping"] * 2
    assert (rack.record()["desired_state"], rack.record()["state"], rack.record()["generation"]) == ("up", "gating", 1)
    operators.gates.touch()
    out, err = first.communicate(timeout=PATIENCE)
    assert first.returncode == 0, out + err
    assert [node.starts for node in rack.nodes] == [1, 1]
    assert rack.record()["generation"] == 1


def test_a_unit_starts_after_the_operators_machine_was_killed(operators: OperatorRack) -> None:
    rack = operators.rack
    first = operators.begin("start")
    rack.wait(lambda: rack.record().get("state") == "gating", "the command reached the coordinator")
    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait(PATIENCE) == -signal.SIGKILL
    operators.gates.touch()
    assert rack.wait_for("ready")["generation"] == 1
    assert [node.starts for node in rack.nodes] == [1, 1]
    assert operators.state() == ("ready", ["running", "running"], 0)
    refused = operators.run("stop")
    found = re.search(r"sparkrack unlock (\S+)", refused.output)
    assert (refused.exit_code, bool(found)) == (1, True), refused.output


def test_a_unit_stops_after_the_operators_machine_was_killed(operators: OperatorRack) -> None:
    rack = operators.rack
    operators.gates.touch()
    rack.start()
    first = operators.begin("stop")
    rack.wait(lambda: rack.record()["desired_state"] == "down", "the command reached the coordinator")
    os.killpg(first.pid, signal.SIGKILL)
    assert first.wait(PATIENCE) == -signal.SIGKILL
    rack.wait_for("down")
    assert not any(node.processes() for node in rack.nodes)


def test_the_key_is_in_no_argument_file_or_line_of_an_operators_command(
    operators: OperatorRack, tmp_path: Path
) -> None:
    """Nor in what coordinator, agents and the worker print, or keep."""
    rack = operators.rack
    key = tmp_path / "toy.key"
    key.touch(mode=0o600)
    key.write_text(f"{KEY}\n")
    api = {"port": 8000, "listen": "management", "key": {"file": key.name}}
    hosts = machines(len(rack.nodes))
    for node in rack.nodes:
        hosts = hosts.replace(f"n{node.rank}:", f"{node.name}:")
    operators.file = put(rack.folder, text({"toy": unit(nodes=[node.name for node in rack.nodes], api=api)}, hosts))
    operators.gates.touch()
    command = operators.begin("start")
    seen: set[str] = set()
    until = time.monotonic() + PATIENCE
    while command.poll() is None and time.monotonic() < until:
        seen |= {word for pid in _list_pids() for word in namespace._read_arguments(pid)}
        time.sleep(0.5)
    out, err = command.communicate(timeout=PATIENCE)
    assert command.returncode == 0, out + err
    status = operators.run("status", "--json")
    assert json.loads(status.stdout)["units"][0]["state"] in ("ready", "busy")
    assert len(seen) > 20
    assert not [word for word in (*seen, out, err, status.output) if KEY in word]
    kept = [path for folder in (rack.folder / "state", *(node.folder for node in rack.nodes)) for path in files(folder)]
    holders = {path.relative_to(rack.folder).as_posix() for path in kept if KEY.encode() in path.read_bytes()}
    # Each node of this rack has a key file; the role writes it on the head alone.
    assert holders == {f"{node.name}/etc/unit.key" for node in rack.nodes}
    (worker,) = rack.nodes[1].workers()
    assert KEY.encode() not in Path(f"/proc/{worker}/environ").read_bytes()
    (headed,) = rack.nodes[0].workers()
    assert KEY.encode() in Path(f"/proc/{headed}/environ").read_bytes(), "the variables are not looked through"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _list_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
