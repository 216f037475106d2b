"""Verify a node's docker with docker, systemd and the kernel, not with the role's own facts."""

from __future__ import annotations

import json
import shlex

from core.model import CONTAINER_SLICE, Node, Rack, mebibytes
from core.ssh.client import Machine
from core.verify.reporter import CheckReporter
from roles.docker import desired, json_edit
from roles.docker.options import DockerOptions

_INFO = "{{.CgroupDriver}} {{.LiveRestoreEnabled}} {{.LoggingDriver}} {{json .Runtimes}}"
_CUT = "%%"
_CONTAINERS = """\
ids=$(docker ps -q --no-trunc) || exit
for id in $ids; do
said=$(docker inspect "$id" --format '{{.Name}} {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.State.Pid}}') ||
continue
echo "$said $(cut -d: -f3- "/proc/${said##* }/cgroup")"
done"""


def test_the_engine_runs_now_and_after_a_boot(node: Node, machine: Machine) -> None:
    """systemd reports docker as active and enabled."""
    reported = machine.run("systemctl is-active docker.service; systemctl is-enabled docker.service").stdout.split()
    assert reported[:1] == ["active"], (
        f"{node.name}: docker.service is {' '.join(reported[:1]) or 'unknown'}, wanted active"
    )
    assert reported[1:] == ["enabled"], f"{node.name}: docker.service is {' '.join(reported[1:])}, wanted enabled"


def test_the_engine_has_the_settings(node: Node, machine: Machine, rack: Rack) -> None:
    """`docker info` of the running engine shows the settings."""
    info = machine.run(f"docker info --format {shlex.quote(_INFO)} || exit; command -v nvidia-ctk || true")
    assert info.rc == 0, f"{node.name}: docker info: {info.stderr.strip()}"
    lines = info.stdout.splitlines()
    driver, live, log, runtimes = lines[0].split(" ", 3)
    assert driver, f"{node.name}: docker info reports no cgroup driver: {info.stderr.strip() or 'no reason given'}"
    assert driver == "systemd", f"{node.name}: docker's cgroup driver is {driver}, wanted systemd"
    docker = rack.options(DockerOptions)
    wanted = str(docker.live_restore).lower()
    assert live == wanted, f"{node.name}: docker's live-restore is {live}, wanted {wanted}"
    assert log == docker.logs, f"{node.name}: docker's log driver is {log}, wanted {docker.logs}"
    if len(lines) > 1:
        assert "nvidia" in json.loads(runtimes), (
            f"{node.name}: docker has no runtime nvidia, though nvidia-ctk is there"
        )


def test_daemon_json_is_what_dockerd_takes(node: Node, machine: Machine) -> None:
    """dockerd itself validates the file, with the flags of its unit: a setting in both places prevents the
    next start.
    """
    done = machine.run(
        "pid=$(systemctl show --property=MainPID --value docker.service); "
        f'tail -z -n +2 "/proc/$pid/cmdline" | xargs -0 dockerd --validate --config-file {desired.CONFIG}'
    )
    assert done.rc == 0, f"{node.name}: {(done.stderr or done.stdout).strip()}"


def test_daemon_json_says_what_the_rack_says(node: Node, machine: Machine, rack: Rack) -> None:
    """The file, and the copy of it that systemd's present start of docker left: so the engine runs with it."""
    read = machine.run(
        f"cat {desired.CONFIG}; echo; echo {_CUT}; "
        f'cat "{desired.RUN}/docker.$(systemctl show -p InvocationID --value docker.service)"; echo; echo {_CUT}; '
        f"stat -L -c %U:%G:%a {desired.CONFIG}"
    )
    parts = read.stdout.split(f"\n{_CUT}\n")
    assert len(parts) == 3, f"{node.name}: {desired.CONFIG}: {read.stderr.strip()}"
    assert not read.stderr.strip(), f"{node.name}: {read.stderr.strip()}"
    file, started, mode = parts
    for name, text in (("says", file), ("was started with", started)):
        config = json.loads(text.strip() or "{}")
        found = [" ".join(path) for path in desired.differences(config, rack.options(DockerOptions))]
        assert not found, f"{node.name}: docker's daemon.json {name} another {', '.join(found)} than rack.yaml"
    json_edit.parse(file)
    owner, _, bits = mode.strip().rpartition(":")
    assert owner == "root:root", f"{node.name}: {desired.CONFIG} belongs to {owner}"
    assert not int(bits, 8) & 0o022, f"{node.name}: {desired.CONFIG} can be written by others, its mode is {bits}"


def test_every_container_is_bounded(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """Its limits as docker has them, and where the kernel counts its memory."""
    listed = machine.run(_CONTAINERS)
    assert listed.rc == 0, f"{node.name}: docker ps: {listed.stderr.strip()}"
    ceiling = rack.options(DockerOptions).memory
    most = mebibytes(ceiling) * 1024 * 1024
    faults = []
    for line in listed.stdout.splitlines():
        name, memory, swap, _, cgroup = line.split(" ", 4)
        name = name.lstrip("/")
        if not 0 < int(memory) <= most:
            faults.append(f"{node.name}: container {name} may take {_size_text(memory)}, wanted at most {ceiling}")
        elif swap != memory:
            faults.append(f"{node.name}: container {name} may swap, wanted --memory-swap equal to --memory")
        if not cgroup.startswith(f"/{CONTAINER_SLICE}/"):
            faults.append(f"{node.name}: container {name} is outside {CONTAINER_SLICE}, in {cgroup}: recreate it")
    report.judge(faults)


def _size_text(memory: str) -> str:
    return "all memory" if memory == "0" else f"{memory} bytes"


def test_the_user_may_use_docker(node: Node, machine: Machine, rack: Rack) -> None:
    """The groups of a new login include docker."""
    groups = machine.run(f"id -nG {shlex.quote(rack.access.user)}")
    assert groups.rc == 0, f"{node.name}: {groups.stderr.strip()}"
    assert "docker" in groups.stdout.split(), f"{node.name}: {rack.access.user} is not in group docker"
