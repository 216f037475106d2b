"""`sparkrack serve start|status|stop|restart` with the real coordinator, agents and gates; only ssh is a stand-in."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from serving.programs import FOLDER
from sparkrack.cli.main import sparkrack
from sparkrack.serving import unit_run
from tests.serving.serving_rack import PATIENCE, ServingRack
from tests.serving.test_drain import loaded
from tests.unit.model.serving_racks import machines, put, text, unit

# The shell of a node, in its network namespace, with the paths that the role installs where this rack has them.
SSH = """\
#!/bin/sh
node="$NODES/$3"
sed -u "s#/etc/sparkrack/serve#$node/etc#g; s#{folder}#$NODES/programs#g; s#/run/sparkrack#$node/run#g" |
    exec ip netns exec "$PREFIX$(cat "$node/rank")" sh
"""


class VerbRack:
    """The rack of coordinator and agents, with a rack file that declares its unit."""

    def __init__(self, rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rack = rack
        hosts = machines(len(rack.nodes))
        for node in rack.nodes:
            hosts = hosts.replace(f"n{node.rank}:", f"{node.name}:")
            (node.folder / "rank").write_text(str(node.rank))
        names = [node.name for node in rack.nodes]
        self.hosts, self.units = hosts, {"toy": unit(nodes=names, api={"listen": "management"})}
        self.file = put(rack.folder, text(self.units, hosts))
        ssh = rack.folder / "bin/ssh"
        ssh.parent.mkdir()
        ssh.write_text(SSH.format(folder=FOLDER))
        for program in (ssh, *rack.programs.iterdir()):
            program.chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("NODES", str(rack.folder))
        monkeypatch.setenv("PREFIX", f"{rack.prefix}n")
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        monkeypatch.setenv("XDG_STATE_HOME", str(rack.folder / "state"))
        monkeypatch.setattr(unit_run, "POLL_SECONDS", 0.5)
        rack.wait(lambda: rack.ask_coordinator("status").returncode == 0, "the coordinator answers")

    def with_gateway(self, program: str) -> None:
        """Declare a gateway on the second node, whose program is this script. It notes how it is called."""
        declared = {"node": self.rack.nodes[1].name, "keys": {"alice": {"file": "alice.key"}}}
        put(self.rack.folder, text({}, self.hosts, serving={"units": self.units, "gateway": declared}))
        file = self.rack.folder / "programs-gateway"  # by the substitution of SSH
        desired_state = 'tr -d " " < "$NODES/spark1/state/toy.json" | grep -o ".desired_state.:.[a-z]*"'
        noted = f'echo "$* $({desired_state})" >> "$NODES/gateway-calls"'
        file.write_text(f"#!/bin/sh\n{noted}\n{program}\n")
        file.chmod(stat.S_IRWXU)

    def gateway_calls(self) -> list[str]:
        """How the program was called, each with the desired state that the coordinator had then."""
        return (self.rack.folder / "gateway-calls").read_text().splitlines()

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["serve", *words, "toy", "--rack", str(self.file)])

    def state(self) -> tuple[str, list[str], int]:
        """The state of the unit and of its ranks, as `serve status` gives them, and its exit code."""
        done = self.run("status", "--json")
        (one,) = json.loads(done.stdout)["units"]
        return one["state"], [rank["state"] for rank in one["ranks"]], done.exit_code


def test_a_unit_is_started_shown_restarted_and_stopped(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
    rack.up(times={"probe_interval": 3600.0})
    verbs = VerbRack(rack, monkeypatch)
    assert verbs.state()[0] == "down"
    assert verbs.state()[2] == 2
    done = verbs.run("start")
    assert done.exit_code == 0, done.output
    phases = [line.split(": ")[1].split(" ")[0] for line in done.stdout.splitlines() if line.startswith("toy: ")]
    assert phases == ["gating", "starting", "ready", "ready,"]
    proven = "a completion gave the known answer, a chat completion gave a clean text"
    assert f"toy: ready: {proven} (starting took " in done.stdout
    assert rack.record()["proven"] > rack.record()["started"], "no completion has proven it"
    assert all(node.processes("serve") for node in rack.nodes)
    assert verbs.state() == ("ready", ["running", "running"], 0)
    first = rack.nodes[1].processes()
    done = verbs.run("restart")
    assert done.exit_code == 0, done.output
    assert rack.record()["generation"] == 2
    assert rack.record()["restarts"] == []
    assert not set(first) & set(rack.nodes[1].processes())
    done = verbs.run("stop")
    assert done.exit_code == 0, done.output
    assert not any(node.processes() for node in rack.nodes), "stop ends before every rank is stopped"
    assert verbs.state() == ("down", ["idle", "idle"], 2)


def test_a_unit_is_stopped_behind_a_closed_gateway(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
    rack.up(times={"probe_interval": 3600.0})
    verbs = VerbRack(rack, monkeypatch)
    assert verbs.run("start").exit_code == 0
    verbs.with_gateway("exit 0")
    done = verbs.run("stop")
    assert done.exit_code == 0, done.output
    up, down = '"desired_state":"up', '"desired_state":"down'
    assert verbs.gateway_calls() == [f"close toy {up}", f"open toy {down}"]
    assert not any(node.processes() for node in rack.nodes)


def test_the_gateway_stays_closed_until_the_last_request_has_ended(
    rack: ServingRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = loaded(rack, 3600.0)
    verbs = VerbRack(rack, monkeypatch)
    verbs.with_gateway("exit 0")
    words = ["-c", "from sparkrack.cli.main import sparkrack; sparkrack()", "serve", "stop", "toy"]
    stop = subprocess.Popen([sys.executable, *words, "--rack", str(verbs.file)], stdout=subprocess.PIPE, text=True)
    rack.wait_for("draining")
    looks = rack.requests("/metrics")
    rack.wait(lambda: rack.requests("/metrics") > looks + 3, "the coordinator has looked several times")
    assert [call.split()[0] for call in verbs.gateway_calls()] == ["close"]
    rack.nodes[0].fault("busy", False)
    output = stop.communicate(timeout=PATIENCE)[0]
    assert stop.returncode == 0, output
    assert request.communicate(timeout=PATIENCE)[1] == ""
    assert request.returncode == 0, "the request of the client was ended"
    assert [call.split()[0] for call in verbs.gateway_calls()] == ["close", "open"]
    assert "toy: stopping: asked to stop; no request ran after " in output


def test_a_gateway_that_fails_keeps_no_unit_from_stopping(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
    rack.up(times={"probe_interval": 3600.0})
    verbs = VerbRack(rack, monkeypatch)
    assert verbs.run("start").exit_code == 0
    verbs.with_gateway('echo "serve-gateway: no space left" >&2; exit 1')
    done = verbs.run("stop")
    assert done.exit_code == 0, done.output
    assert "toy: is stopped with an open gateway: spark2: serve-gateway: no space left" in done.stderr
    assert "toy: may still be closed at the gateway: spark2: serve-gateway: no space left" in done.stderr
    assert verbs.state()[0] == "down"
    (rack.folder / "programs-gateway").unlink()
    assert verbs.run("start").exit_code == 0
    done = verbs.run("stop")
    assert done.exit_code == 0, done.output
    # A gateway that is not installed yet is not a fault.
    assert not [line for line in done.stderr.splitlines() if line.startswith("toy: ") and "gateway" in line]


def test_a_failed_gate_of_one_node_is_reported_with_its_reason(
    rack: ServingRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.nodes[1].gate_reason.write_text("12 GiB are available; 103 GiB are needed\n")
    rack.up()
    verbs = VerbRack(rack, monkeypatch)
    done = verbs.run("start")
    assert done.exit_code == 1, done.output
    lines = done.stderr.splitlines()
    at = lines.index("spark2: 12 GiB are available; 103 GiB are needed")
    assert lines[at + 1] == "toy: not started: a gate failed"
    assert [node.starts for node in rack.nodes] == [0, 0]
    status = verbs.run("status")
    assert "toy: spark2: gate: 12 GiB are available; 103 GiB are needed" in status.stdout.splitlines()
    rack.nodes[1].gate_reason.unlink()
    assert verbs.run("start").exit_code == 0
    assert rack.record()["failed_gates"] == {}


def test_a_machine_without_a_clean_end_is_refused_and_started_anyway(
    rack: ServingRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack.up()
    verbs = VerbRack(rack, monkeypatch)
    assert verbs.run("start").exit_code == 0
    rack.nodes[1].kill()
    rack.wait(lambda: rack.record()["state"] == "stopping", "the lost node is noticed")
    rack.nodes[1].plug(True)
    rack.nodes[1].boot()
    rack.wait_for("held")
    done = verbs.run("start")
    assert done.exit_code == 1
    assert "; reboot spark1, or use --anyway\n" in done.stderr
    done = verbs.run("start", "--anyway")
    assert done.exit_code == 0, done.output


def test_a_coordinator_that_does_not_run_is_unknown(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
    rack.up()
    verbs = VerbRack(rack, monkeypatch)
    assert rack.nodes[0].coordinator
    rack.nodes[0].coordinator.kill()
    rack.nodes[0].coordinator.wait()
    assert verbs.state() == ("unknown", [], 1)
    done = verbs.run("stop")
    assert done.exit_code == 1
    fault = "Error: spark1: the coordinator of unit toy does not answer at 10.77.0.11:29400: Connection refused"
    assert fault in done.stderr


def test_the_record_of_a_coordinator_before_this_release_is_read(rack: ServingRack) -> None:
    """Without the failed gates, which it did not keep."""
    rack.up()
    rack.wait(lambda: rack.ask_coordinator("down").returncode == 0, "the coordinator takes the desired state")
    head = rack.nodes[0]
    assert head.coordinator
    head.coordinator.kill()
    head.coordinator.wait()
    file = head.folder / "state/toy.json"
    old = {"name": "toy", "state": "held", "reason": "as before", "generation": 3}
    file.write_text(json.dumps(old))
    head.start_coordinator()
    rack.wait(lambda: rack.ask_coordinator("status").returncode == 0, "the coordinator answers")
    assert rack.status()["failed_gates"] == {}
