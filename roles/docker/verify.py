"""Prove a node's docker: by what docker, systemd and the kernel say, not by what the role reads."""

from __future__ import annotations

import json
import shlex

from roles.docker import layout, state
from sparkrack.fleet import SLICE, Node, Rack, mebibytes
from sparkrack.proof.machines import Machine
from sparkrack.proof.told import Told

_INFO = "{{.CgroupDriver}} {{.LiveRestoreEnabled}} {{.LoggingDriver}} {{json .Runtimes}}"
_CUT = "%%"
_CONTAINERS = """\
for id in $(docker ps -q --no-trunc); do
said=$(docker inspect "$id" --format '{{.Name}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.State.Pid}}') ||
continue
echo "$said $(cut -d: -f3- "/proc/${said##* }/cgroup")"
done"""


def test_the_engine_runs_now_and_after_a_boot(node: Node, machine: Machine) -> None:
    """As systemd has it."""
    said = machine.run("systemctl is-active docker.service; systemctl is-enabled docker.service").stdout.split()
    assert said[:1] == ["active"], f"{node.name}: docker.service is {' '.join(said[:1]) or 'unknown'}, wanted active"
    assert said[1:] == ["enabled"], f"{node.name}: docker.service is {' '.join(said[1:])}, wanted enabled"


def test_the_engine_has_the_settings(node: Node, machine: Machine, rack: Rack) -> None:
    """Those of the running engine that `docker info` shows."""
    info = machine.run(f"docker info --format {shlex.quote(_INFO)}; command -v nvidia-ctk || true")
    assert info.rc == 0, f"{node.name}: docker info: {info.stderr.strip()}"
    lines = info.stdout.splitlines()
    driver, live, log, runtimes = lines[0].split(" ", 3)
    assert driver == "systemd", f"{node.name}: docker's cgroup driver is {driver}, wanted systemd"
    wanted = str(rack.docker.live_restore).lower()
    assert live == wanted, f"{node.name}: docker's live-restore is {live}, wanted {wanted}"
    assert log == "json-file", f"{node.name}: docker's log driver is {log}, wanted json-file"
    if len(lines) > 1:
        assert "nvidia" in json.loads(runtimes), (
            f"{node.name}: docker has no runtime nvidia, though nvidia-ctk is there"
        )


def test_daemon_json_is_what_dockerd_takes(node: Node, machine: Machine) -> None:
    """dockerd's own opinion, with the flags of its unit: what is said in both stops the next start."""
    done = machine.run(
        "pid=$(systemctl show --property=MainPID --value docker.service); "
        f'tail -z -n +2 "/proc/$pid/cmdline" | xargs -0 dockerd --validate --config-file {state.CONFIG}'
    )
    assert done.rc == 0, f"{node.name}: {(done.stderr or done.stdout).strip()}"


def test_daemon_json_says_what_the_rack_says(node: Node, machine: Machine, rack: Rack) -> None:
    """The file, and the copy of it that systemd's present start of docker left: so the engine runs with it."""
    read = machine.run(
        f"cat {state.CONFIG}; echo; echo {_CUT}; "
        f'cat "{state.RUN}/docker.$(systemctl show -p InvocationID --value docker.service)"; echo; echo {_CUT}; '
        f"stat -L -c %U:%G:%a {state.CONFIG}"
    )
    parts = read.stdout.split(f"\n{_CUT}\n")
    assert len(parts) == 3, f"{node.name}: {state.CONFIG}: {read.stderr.strip()}"
    assert not read.stderr.strip(), f"{node.name}: {read.stderr.strip()}"
    file, started, mode = parts
    for name, text in (("says", file), ("was started with", started)):
        config = json.loads(text.strip() or "{}")
        found = [" ".join(path) for path in state.differences(config, rack.docker)]
        assert not found, f"{node.name}: docker's daemon.json {name} another {', '.join(found)} than rack.yaml"
    layout.parse(file)
    owner, _, bits = mode.strip().rpartition(":")
    assert owner == "root:root", f"{node.name}: {state.CONFIG} belongs to {owner}"
    assert not int(bits, 8) & 0o022, f"{node.name}: {state.CONFIG} can be written by others, its mode is {bits}"


def test_every_container_is_bounded(node: Node, machine: Machine, rack: Rack, told: Told) -> None:
    """Its limits as docker has them, and where the kernel counts its memory."""
    listed = machine.run(_CONTAINERS)
    assert listed.rc == 0, f"{node.name}: docker ps: {listed.stderr.strip()}"
    most = mebibytes(rack.docker.memory) * 1024 * 1024
    faults = []
    for line in listed.stdout.splitlines():
        name, memory, swap, _, cgroup = line.split(" ", 4)
        name = name.lstrip("/")
        if not 0 < int(memory) <= most:
            faults.append(
                f"{node.name}: container {name} may take {_size(memory)}, wanted at most {rack.docker.memory}"
            )
        elif swap != memory:
            faults.append(f"{node.name}: container {name} may swap, wanted --memory-swap equal to --memory")
        if not cgroup.startswith(f"/{SLICE}/"):
            faults.append(f"{node.name}: container {name} is outside {SLICE}, in {cgroup}: make it anew")
    told.judge(faults)


def _size(memory: str) -> str:
    return "all memory" if memory == "0" else f"{memory} bytes"


def test_the_user_may_use_docker(node: Node, machine: Machine, rack: Rack) -> None:
    """The groups that a new login has."""
    groups = machine.run(f"id -nG {shlex.quote(rack.access.user)}")
    assert groups.rc == 0, f"{node.name}: {groups.stderr.strip()}"
    assert "docker" in groups.stdout.split(), f"{node.name}: {rack.access.user} is not in group docker"
