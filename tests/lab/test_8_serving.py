"""A unit on two of three nodes, from `apply` to a completion; then what ends it. The engine is a stand-in in an image.

Systemd, docker, slices, sandboxes, the guard and both networks are real; the GPU and the RDMA devices are not (lab.md).
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import namespace as ns
from lab.image import build
from lab.layout import REGISTRY
from lab.paths import cache
from lab.served_unit import CONFIG, ENGINE, IMAGE, SECTIONS, UNIT, VERSION
from tests.lab.conftest import NODES
from tests.lab.drift_table import IMAGE as OTHER
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=1, of=3)

KEY = "sk-quiet-horse-1234567890"
HEAD, WORKER = RANKS = ("spark1", "spark2")
COORDINATOR = f"/usr/local/lib/sparkrack/serve/serve_coordinator.py /etc/sparkrack/serve/{UNIT}.json"
RECORD = f"/var/lib/sparkrack/serve/{UNIT}.json"
SERVICE = f"sparkrack-serve-{UNIT}"
ROLES = ("images", "models", "serving")
ADDRESSES = {"spark1": "10.77.0.11", "spark2": "10.77.0.12"}
API, LEASES, RENDEZVOUS = 8000, 29400, 29501
TRY = """
import json, socket, sys
found = []
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 3).close()
        found.append(int(port))
    except OSError:
        pass
print(json.dumps(found))
"""
SECONDS = 120
"""Until a test gives up waiting for a state."""


@dataclass
class ServedRack:
    """The rack with its unit."""

    rack: VirtualRack
    file: Path

    def deploy(self) -> str:
        done = self.rack.deploy("-y", rack=self.file, roles=ROLES)
        return done.stdout + done.stderr

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rack.ssh(HEAD, f"cat {RECORD}"))
        return found

    def wait(self, *states: str) -> dict[str, Any]:
        """Wait on the head until the unit has one of these states, and return its record."""
        pattern = f'"state": "({"|".join(states)})"'
        loop = f"for _ in $(seq {SECONDS * 4}); do grep -qE '{pattern}' {RECORD} && break; sleep 0.25; done"
        self.rack.ssh(HEAD, loop)
        found = self.record()
        assert found["state"] in states, f"{found}\n{self.journal()}"
        return found

    def up(self, *words: str) -> dict[str, Any]:
        """DesiredState it up, and return the record once it is ready or held."""
        self.rack.ssh(HEAD, f"{COORDINATOR} up {' '.join(words)}")
        return self.wait("ready", "busy", "held")

    def journal(self) -> str:
        script = f"journalctl -q -o short-precise -n 30 -u '{SERVICE}*'"
        return "\n".join(self.rack.ssh(node, script) for node in RANKS)

    def containers(self) -> list[str]:
        """The containers of all ranks, running or not, by their IDs."""
        return [one for node in RANKS for one in self.rack.ssh(node, "docker ps --all --quiet --no-trunc").split()]

    def starts(self) -> list[int]:
        """How often systemd has begun to start each rank."""
        script = f"journalctl -q -o cat -t systemd -u {SERVICE} | grep -c '^Starting ' || true"
        return [int(self.rack.ssh(node, script)) for node in RANKS]

    def complete(self, key: str = KEY) -> str:
        """The answer to a client on the operator's machine, which `api.direct` names; the key is in no argument."""
        settings = self.file.with_name("client")
        settings.touch(mode=0o600)
        settings.write_text(f'header = "Authorization: Bearer {key}"\nheader = "Content-Type: application/json"\n')
        body = json.dumps({"model": UNIT, "prompt": "2+2=", "max_tokens": 8})
        at = "http://10.77.0.11:8000/v1/completions"
        return self.rack.inside("curl", "-sS", "-m", "20", "-K", str(settings), at, "-d", body).stdout

    def reached(self, source: str, node: str) -> set[int]:
        """The TCP ports of a node, of those that something listens at beside loopback, that another node reaches."""
        rows = self.rack.ssh(node, "ss -Hltn").splitlines()
        ends = {tuple(row.split()[3].rsplit(":", 1)) for row in rows}
        ports = sorted({int(port) for host, port in ends if not host.startswith(("127.", "[::1]"))})
        words = shlex.join(["python3", "-c", TRY, ADDRESSES[node], *map(str, ports)])
        return set(json.loads(self.rack.ssh(source, words)))

    def age(self) -> None:
        """Let the running generation be 700 s older: one that ends within 600 s is not started again."""
        older = f"import json; d = json.load(open('{RECORD}')); d['started'] -= 700; d['proven'] -= 600"
        script = f"systemctl stop {SERVICE}-coordinator && python3 -c \"{older}; json.dump(d, open('{RECORD}', 'w'))\""
        self.rack.ssh(HEAD, f"{script} && systemctl start {SERVICE}-coordinator")

    def nothing_is_left(self) -> None:
        """No container, no listener of the engine, no shared memory on any rank."""
        assert self.containers() == []
        listeners = "ss -Hltn 'sport = :8000 or sport = :29501'"
        containers = "find /sys/fs/cgroup/sparkrack.slice -name 'docker-*'"
        for node in RANKS:
            left = self.rack.ssh(node, f"{listeners}; ls /dev/shm; {containers}")
            assert left == "", f"{node}: {left}"


@pytest.fixture(scope="module")
def served(rack: VirtualRack) -> Iterator[ServedRack]:
    """The rack file with a unit, whose image is in the registry; in the end the nodes are as they were."""
    base = build.base(cache(), print)
    operator = "10.77.0.1"
    push = (sys.executable, "-m", "lab.images", "--engine", IMAGE, "vllm", "0.19.1", f"{operator}:{REGISTRY}")
    rack.inside(*push, str(base.busybox), str(base.python), OTHER, IMAGE)
    model = rack.folder / "model-source"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(bytes(1 << 20))
    file = rack.paths.rack.with_name("serving.yaml")
    key = file.with_name(f"{UNIT}.key")
    key.touch(mode=0o600)
    key.write_text(f"{KEY}\n")
    text, added = re.subn(r"^images:\n( *)- ", rf"\g<0>{IMAGE}\n\1- ", rack.paths.rack.read_text(), flags=re.MULTILINE)
    assert added == 1
    names = {"unit": UNIT, "engine": ENGINE, "version": VERSION, "image": IMAGE}
    file.write_text(text + SECTIONS.format(**names, model=model, key=key.name, ranks=", ".join(RANKS)))
    for node in RANKS:
        rack.ssh(node, "systemctl --quiet enable --now lab-rdma")
    try:
        yield ServedRack(rack, file)
    finally:
        units = f"/etc/systemd/system/{SERVICE}*.service"
        clean = (
            f"systemctl --quiet disable --now {SERVICE}-coordinator {SERVICE}-agent lab-rdma; systemctl stop "
            f"{SERVICE}; "
            f"rm -rf {units} /etc/systemd/system/sparkrack-{UNIT}.slice /etc/sparkrack/serve /var/lib/sparkrack/serve "
            f"/usr/local/lib/sparkrack/serve /srv/models/{UNIT}; systemctl daemon-reload; docker image rm {IMAGE}; true"
        )
        for node in NODES:
            rack.ssh(node, f"({clean}) >/dev/null 2>&1", check=False)
            (rack.paths.node(node) / "shared/api-key").unlink(missing_ok=True)
        shutil.rmtree(model)
        for kept in (file, key, file.with_name("serving.lock.json")):
            kept.unlink(missing_ok=True)


def test_apply_brings_the_unit_to_a_completion(served: ServedRack, capsys: pytest.CaptureFixture[str]) -> None:
    begun = time.monotonic()
    served.deploy()
    applied = time.monotonic()
    record = served.wait("ready", "busy", "held")
    assert record["state"] != "held", record["reason"]
    assert '"text": "4' in served.complete()
    figures = {**record["figures"], "apply_s": round(applied - begun, 1), "all_s": round(time.monotonic() - begun, 1)}
    with capsys.disabled():
        print(f"\nfrom apply to a completion: {figures}")
    assert "Incorrect API key" in served.complete("another")
    for node in RANKS:
        group = served.rack.ssh(node, f"cat /proc/$(docker inspect -f {{{{.State.Pid}}}} sparkrack-{UNIT})/cgroup")
        assert group.startswith(f"0::/sparkrack.slice/sparkrack-{UNIT}.slice/docker-"), "what the guard ends"


def test_the_key_is_on_the_head_alone_and_in_no_argument(served: ServedRack) -> None:
    for node in RANKS:
        (served.rack.paths.node(node) / "shared/api-key").write_text(KEY)
        shown = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null; journalctl -b -q"
        files = "grep -rlF -f /lab/api-key /etc /var/lib/sparkrack /run/systemd 2>/dev/null"
        if node != HEAD:
            shown += f"; docker inspect sparkrack-{UNIT}"
        script = f"({shown}) | grep -cF -f /lab/api-key; for f in $({files}); do stat -c '%a %U %n' $f; done"
        counted, *holders = served.rack.ssh(node, script).splitlines()
        assert counted == "0", f"{node}: {counted} lines show the key"
        folder = f"600 root /etc/sparkrack/serve/{UNIT}"
        assert sorted(holders) == ([f"{folder}.key", f"{folder}.token"] if node == HEAD else [])


def test_a_node_that_is_not_of_the_unit_reaches_none_of_its_ports(served: ServedRack) -> None:
    """It tries each port that something listens at on the nodes of the unit; the nodes of the unit reach theirs. The
    stand-in of the engine listens at its rendezvous only until its ranks have met.
    """
    strange, known = served.reached("spark3", HEAD), served.reached(WORKER, HEAD)
    assert {API, LEASES} <= known
    assert 22 in strange, "the ports that are not of the unit are as before"
    assert not strange & {API, LEASES, RENDEZVOUS}
    group = f"/sys/fs/cgroup/sparkrack.slice/sparkrack-{UNIT}.slice"
    inodes = f"for p in $(cat {group}/*/cgroup.procs); do ls -l /proc/$p/fd; done 2>/dev/null | grep -o 'socket:.*'"
    for node in RANKS:
        mine = set(re.findall(r"\d+", served.rack.ssh(node, inodes)))
        rows = [row.split() for row in served.rack.ssh(node, "cat /proc/net/tcp /proc/net/tcp6").splitlines()]
        ports = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3:4] == ["0A"] and row[9] in mine}
        assert ports or node != HEAD
        assert not ports & served.reached("spark3", node)


def test_a_second_apply_changes_nothing(served: ServedRack) -> None:
    before = served.record()["generation"], served.starts(), served.containers()
    again = served.deploy()
    assert re.search(r"Grand total +(\d+) +- +- +\1 *$", again, re.MULTILINE), again
    assert (served.record()["generation"], served.starts(), served.containers()) == before
    verified = served.rack.verify("--only", "serving", rack=served.file)
    assert re.search(r"passed, 0 failed$", verified.stdout, re.MULTILINE), verified.stdout


@pytest.mark.soak
def test_a_killed_coordinator_comes_back_and_ends_nothing(served: ServedRack) -> None:
    """The first tier has tests/serving/test_conformance.py::test_a_coordinator_that_comes_back_disturbs_no_rank."""
    served.up()
    before = served.containers()
    generation = served.record()["generation"]
    assert len(before) == len(RANKS)
    script = f"for _ in $(seq {SECONDS}); do {COORDINATOR} status 2>/dev/null && exit; sleep 1; done; exit 1"
    served.rack.ssh(HEAD, f"systemctl kill -s KILL {SERVICE}-coordinator; {script}")
    time.sleep(12)  # longer than a lease
    assert served.containers() == before
    assert served.wait("ready", "busy")["generation"] == generation


def test_a_rank_that_is_killed_ends_all_then_they_start_once_and_then_they_are_held(served: ServedRack) -> None:
    first, generation = served.starts(), served.up()["generation"]
    served.age()
    served.rack.ssh(WORKER, f"docker kill sparkrack-{UNIT}")
    served.wait("gating", "starting")
    record = served.wait("ready", "held")
    assert (record["state"], record["generation"]) == ("ready", generation + 1), record["reason"]
    assert len(record["restarts"]) == 1
    second = served.starts()
    assert second == [number + 1 for number in first]
    states = [state for _, state, _, _ in record["transitions"]]
    assert states[-4:] == ["stopping", "gating", "starting", "ready"]
    served.age()
    served.rack.ssh(HEAD, f"docker kill sparkrack-{UNIT}")
    record = served.wait("held")
    assert re.match(rf"{HEAD} \(rank 0\) .*ended.* exit code 137", record["reason"])
    assert "not restarted: 1 restarts within" in record["reason"]
    assert served.starts() == second
    served.nothing_is_left()


@pytest.mark.soak
def test_a_gate_that_fails_on_one_node_starts_no_rank_anywhere(served: ServedRack) -> None:
    """The first tier has tests/serving/test_gang.py::test_four_nodes_start_and_stop_together, and test_gate.py."""
    before = served.starts()
    weights = f"/srv/models/{UNIT}/model.safetensors"
    served.rack.ssh(WORKER, f"systemctl stop sparkrack-memory-guard; mv {weights} /srv/models/kept")
    try:
        record = served.up()
        assert record["state"] == "held"
        assert WORKER in record["reason"]
        assert "sparkrack-memory-guard.service does not run" in record["reason"]
        served.rack.ssh(WORKER, "systemctl start sparkrack-memory-guard")
        record = served.up()
        assert record["state"] == "held"
        assert f"1 of 2 files of model {UNIT} are wrong" in record["reason"]
    finally:
        served.rack.ssh(WORKER, f"systemctl start sparkrack-memory-guard; mv /srv/models/kept {weights}")
    assert served.starts() == before
    assert served.containers() == []


@pytest.mark.soak
def test_a_rank_without_its_coordinator_ends_itself(served: ServedRack) -> None:
    """Its management cable is disconnected, over which coordinator and ranks speak: nothing can ask it to stop."""
    assert served.up()["state"] == "ready"
    cable = ("ip", "link", "set", "n2-m")  # at the switch: a tap that is down ends the interface of the node always
    served.rack.inside(*cable, "nomaster")
    try:
        record = served.wait("stopping")
        assert record["reason"] == f"no report from {WORKER} (rank 1) for 10 s"
        time.sleep(15)
        assert served.record()["state"] == "stopping", "it is not known whether the other rank has ended"
    finally:
        served.rack.inside(*cable, "master", "br-mgmt")
    assert served.wait("held")["cause"] == "failed"
    served.nothing_is_left()
    said = served.rack.ssh(WORKER, f"journalctl -q -o cat -u {SERVICE}-agent")
    assert f"stop {SERVICE}.service: no answer of the coordinator for 10 s" in said
    assert said.index("no answer of the coordinator for 10 s") < said.index("the coordinator answers again")


@pytest.mark.soak
def test_after_a_loss_of_power_the_unit_is_held(served: ServedRack) -> None:
    assert served.up()["state"] == "ready"
    ns.end(ns.matching(served.rack.paths.namespace, f"umid={served.rack.paths.namespace}-{WORKER}"))
    served.wait("stopping")
    served.rack.lab("up", "--nodes", str(len(NODES)))
    record = served.wait("held")
    assert record["reason"] == f"{WORKER} ended without a clean shutdown while the unit ran"
    served.nothing_is_left()
    refused = served.rack.ssh(HEAD, f"{COORDINATOR} up 2>&1", check=False)
    assert f"reboot {HEAD}, or use --anyway" in refused
    assert served.up("--anyway")["state"] == "ready"


GUARD = (
    "/usr/local/lib/sparkrack/memory-guard 100000000 > /run/guard & "
    "until grep -q 'ended every' /run/guard; do sleep 0.2; done; kill $!; rm /run/guard"
)
"""A second guard, with a floor that no node has."""
ENDS = {
    "docker stop": (f"docker stop -t 5 sparkrack-{UNIT}", "ended without being asked to"),
    "docker restarts": ("systemctl restart docker", f"{WORKER} (rank 1)"),
    "agent killed": (f"systemctl kill -s KILL {SERVICE}-agent", f"{WORKER} (rank 1)"),
    "guard": (GUARD, "exit code 137"),
    "systemctl stop": (f"systemctl stop {SERVICE}", f"{WORKER} (rank 1)"),
}


EMPTY = f"grep -q 'populated 0' /sys/fs/cgroup/sparkrack.slice/sparkrack-{UNIT}.slice/cgroup.events"


@pytest.mark.soak
def test_a_unit_is_not_down_before_the_engine_of_a_stopped_docker_has_ended(served: ServedRack) -> None:
    assert served.up()["state"] == "ready"
    served.rack.ssh(WORKER, "kill -STOP $(pgrep -xo dockerd)")
    try:
        served.rack.ssh(HEAD, f"{COORDINATOR} down")
        served.wait("down")
        # A slice without processes may be gone.
        left = f"[ ! -e /sys/fs/cgroup/sparkrack.slice/sparkrack-{UNIT}.slice ] || {EMPTY} || echo left"
        assert served.rack.ssh(WORKER, left) == ""
        said = served.rack.ssh(WORKER, f"journalctl -q -o cat -u {SERVICE}-agent")
        assert "docker has not ended the container: the kernel ends " in said
    finally:
        served.rack.ssh(WORKER, "kill -CONT $(pgrep -xo dockerd)")
    # The container has --rm: docker removes it when it sees its end.
    served.rack.ssh(WORKER, 'for _ in $(seq 60); do [ -n "$(docker ps --all --quiet)" ] || break; sleep 1; done')
    served.nothing_is_left()


@pytest.mark.soak
def test_a_docker_that_is_killed_leaves_no_engine(served: ServedRack) -> None:
    assert served.up()["state"] == "ready"
    served.rack.ssh(WORKER, "kill -KILL $(pgrep -xo dockerd)")
    record = served.wait("held")
    assert f"{WORKER} (rank 1)" in record["reason"]
    # systemd starts docker again, which removes the container.
    served.rack.ssh(WORKER, 'for _ in $(seq 60); do [ -n "$(docker ps --all --quiet)" ] || break; sleep 1; done')
    served.nothing_is_left()


@pytest.mark.soak
@pytest.mark.parametrize("name", ENDS)
def test_what_ends_a_rank_ends_the_unit(served: ServedRack, name: str) -> None:
    script, reason = ENDS[name]
    assert served.up()["state"] == "ready"
    served.rack.ssh(WORKER, script)
    record = served.wait("held")
    assert reason in record["reason"]
    served.nothing_is_left()
