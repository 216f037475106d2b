"""systemd itself as the first process of a node that is a network namespace, with unit files as the role renders them.

It has control groups of its own, so that what it has the kernel enforce is enforced. Needs root.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from lab import namespace

SYSTEMD = "/lib/systemd/systemd"
PATIENCE = 30.0
_BOOT = """\
set -e
mount --make-rprivate /
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t proc proc /proc
export container=test SYSTEMD_UNIT_PATH={units}
exec {systemd} --system --unit=node.target --log-target=console --show-status=no
"""


def group_file_system() -> str:
    """Where the hierarchy of control groups of version 2 is mounted on this machine; empty without one."""
    rows = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return next((place for _, place, kind, *_ in rows if kind == "cgroup2"), "")


def lacking() -> str:
    """Why systemd cannot be started here; empty when it can."""
    if os.geteuid() != 0:
        return "control groups need root"
    if not Path(SYSTEMD).exists():
        return "systemd is not installed"
    return "" if group_file_system() else "there is no hierarchy of control groups of version 2"


class RunningSystemd:
    """systemd in a network namespace; `units` is the folder of its unit files."""

    def __init__(self, folder: Path, name: str) -> None:
        self.namespace, self.units, self.log = name, folder / "units", folder / "systemd.log"
        self.group = Path(group_file_system(), name)
        self.units.mkdir(parents=True)

    def write(self, name: str, text: str) -> None:
        """Write a unit file; without the default dependencies, of which this node has none."""
        path = self.units / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n", 1))

    def start(self, *wanted: str) -> None:
        """Start it with these units."""
        self.write("node.target", f"[Unit]\nWants={' '.join(wanted)}\n")
        self.group.mkdir()
        script = _BOOT.format(units=self.units, systemd=SYSTEMD)
        own = ["unshare", "--cgroup", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
        # Before `ip netns exec`, which hides the control groups of this machine.
        join = f'echo $$ > {self.group}/cgroup.procs; exec "$@"'
        inside = ["sh", "-c", join, "sh", "ip", "netns", "exec", self.namespace, *own]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_for(self, ports: set[int]) -> None:
        """Wait until something listens at these TCP ports of the node. Raises AssertionError."""
        words = ["ip", "netns", "exec", self.namespace, "ss", "--no-header", "--listening", "--tcp", "--numeric"]
        until = time.monotonic() + PATIENCE
        while True:
            rows = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
            open_ports = {int(row.split()[3].rpartition(":")[2]) for row in rows}
            if ports <= open_ports:
                return
            assert time.monotonic() < until, f"{ports - open_ports} not open\n{self.log.read_text()[-4000:]}"
            time.sleep(0.1)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command among its processes, mounts and control groups."""
        (first,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        inside = ["nsenter", "--target", first, "--mount", "--pid", "--net", "--cgroup", *words]
        return subprocess.run(inside, capture_output=True, text=True, check=False)

    def end(self) -> None:
        """End it with all that it has started, and remove its control groups."""
        if hasattr(self, "process"):
            namespace.end(namespace.processes(self.namespace))
            self.process.wait(PATIENCE)
        until = time.monotonic() + PATIENCE
        while self.group.exists():
            for path in sorted(self.group.rglob("*/"), reverse=True):
                path.rmdir()
            try:
                self.group.rmdir()
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)  # the kernel counts a process that has ended for a moment longer
