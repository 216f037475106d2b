"""One virtual node: its folder, and the kernel process that is it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab import fake_hardware, first_boot, private_file
from lab import namespace as ns
from lab.image.build import Base
from lab.keys import make_key
from lab.layout import FRAME, Layout
from lab.paths import LabPaths, runner

MEMORY = "8G"
"""Memory that a node reports. Only touched pages cost the machine. By default a rack keeps 1.5 GiB free in each node
(vm.min_free_kbytes) and ends its containers below 3 GiB, which must leave memory for work.
"""
MANAGEMENT_DEVICE = 8
"""Number of the vector device that becomes enP7s7; wires have 0 to 3."""
BOOTS = "SPARKRACK_LAB_BOOTS"
"""Names a file that gets a line for each boot that the lab makes: the tests count them."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where this kernel keeps a node's memory


@dataclass(frozen=True)
class VirtualNode:
    """A node of the lab, by the name it has in rack.yaml."""

    name: str
    layout: Layout
    paths: LabPaths

    @property
    def folder(self) -> Path:
        """Everything of this node."""
        return self.paths.node(self.name)

    @property
    def shared(self) -> Path:
        """The folder that the node mounts as /lab."""
        return self.folder / "shared"

    @property
    def hardware(self) -> Path:
        """The state file behind the stand-in commands."""
        return self.shared / "hardware.json"

    @property
    def seed(self) -> Path:
        """Data that the first boot reads."""
        return self.shared / "seed"

    @property
    def made(self) -> bool:
        """Whether this node was prepared before."""
        return self.seed.exists()

    @property
    def password(self) -> Path:
        """The password of the user that the wizard made; only a node in factory state has one."""
        return self.folder / "password"

    @property
    def in_factory_state(self) -> bool:
        """Whether its factory state is that of a real node and not the lab's, which the operator can log in to."""
        return self.password.exists()

    @property
    def host_key(self) -> str:
        """The public host key, as known_hosts has it."""
        return (self.seed / "ssh_host_ed25519_key.pub").read_text().strip()

    def box(self) -> None:
        """Bring the node to factory state, with a new identity unless it is a clone. It must be stopped."""
        shutil.rmtree(self.seed, ignore_errors=True)
        self.prepare(box=True)

    def prepare(self, *, box: bool = False) -> None:
        """Write what the first boot takes up. Host keys are kept when there are any: a reset disk is the same node.

        `box`: as a real node, see `lab.first_boot`; a node in factory state stays so.
        """
        if box or self.in_factory_state:
            first_boot.box(self.name, self.layout, self.paths)
            private_file.make(self.password, self.paths.password.read_text())
        else:
            self.seed.mkdir(parents=True, exist_ok=True)
            make_key(self.seed / "ssh_host_ed25519_key", f"root@{self.name}")
            shutil.copyfile(self.paths.key.with_suffix(".pub"), self.seed / "authorized_keys")
            (self.seed / "hostname").write_text(f"{self.name}\n")
        self._write_surroundings()

    def _write_surroundings(self) -> None:
        """Write the settings from outside the node: its address, the sources of packages and images, its hardware."""
        seed = self.seed
        address = f"{self.layout.rack.nodes[self.name].address}/{self.layout.management.prefixlen}"
        (seed / "management.yaml").write_text(
            "# The management interface of this node, as its owner set it up.\n"
            "network:\n  version: 2\n  ethernets:\n    enP7s7:\n"
            f"      addresses: [{address}]\n"
        )
        (seed / "lab.sources").write_text(f"Types: deb\nURIs: {self.layout.repository}\nSuites: ./\nTrusted: yes\n")
        # Valid, but with an unusual layout: a program that edits it has to keep the layout.
        (seed / "daemon.json").write_text(
            f'{{ "registry-mirrors":\n     [ "http://{self.layout.registry}" ],\n'
            f'  "insecure-registries": ["{self.layout.registry}"] }}\n'
        )
        if not self.hardware.exists():
            rack = self.layout.rack
            self.hardware.write_text(json.dumps(fake_hardware.state(rack, rack.nodes[self.name]), indent=1))

    def pids(self) -> list[int]:
        """The processes of this node's kernel."""
        return ns.matching(self.paths.namespace, f"umid={self._machine_id}")

    def start(self, base: Base) -> None:
        """Boot the node, with its disk as it is or factory-fresh when there is none."""
        self.record_boot()
        uid, gid = runner()
        disk, kernel = self.folder / "disk.cow", base.kernel
        command = [
            *("ip", "netns", "exec", self.paths.namespace),
            *("setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--"),
            str(kernel.program),
            f"mem={MEMORY}",
            f"ubda={disk},{base.disk}",
            "root=/dev/ubda",
            "rw",
            f"hostfs={self.shared}",
            "seccomp=on",  # a system call of a node costs half of what it does with ptrace (measured, decision 0016)
            *(
                f"vec{device}:transport=tap,ifname={tap},mac={mac},mtu={mtu},depth=128"
                for device, tap, mac, mtu in self._list_interfaces()
            ),
            f"umid={self._machine_id}",
            f"uml_dir={self.folder}/",
            *("con=null", "con0=null,fd:1", "ssl=null", "quiet"),
        ]
        for path in (self.folder, self.shared):
            os.chown(path, uid, gid)
        # Without HOME the kernel ends with "failed to wait for stub".
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder), **self._memory_folder()}
        # A node is one processor: its kernel and its processes take turns, and wake one another at each system call. On
        # one CPU of this machine such a turn needs no interrupt to another that sleeps: a converge takes half the time
        # (measured, decision 0016). The node's processes inherit the CPU.
        allowed = os.sched_getaffinity(0)
        with (self.folder / "console.log").open("ab") as console:
            os.sched_setaffinity(0, {_least_used_cpu(allowed)})
            try:
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=console,
                    env=environment,
                    start_new_session=True,
                )
            finally:
                os.sched_setaffinity(0, allowed)

    def record_boot(self) -> None:
        """Add a line to the file that `SPARKRACK_LAB_BOOTS` names, where it is set."""
        if name := os.environ.get(BOOTS):
            with Path(name).open("a") as file:
                file.write(f"boot {self.name}\n")

    def stop(self) -> None:
        """Cut the power."""
        ns.end(self.pids())

    def factory(self) -> None:
        """Throw the disk away; the node must be stopped."""
        (self.folder / "disk.cow").unlink(missing_ok=True)

    def last_words(self) -> str:
        """The end of the console, for a node that does not come up."""
        console = self.folder / "console.log"
        lines = console.read_text(errors="replace").splitlines() if console.exists() else []
        return "\n".join(lines[-5:])

    def _list_interfaces(self) -> Iterator[tuple[int, str, str, int]]:
        """Number of the vector device, tap, hardware address and MTU of each interface."""
        tap, mac = self.layout.management_tap(self.name), self.layout.management_mac(self.name)
        yield MANAGEMENT_DEVICE, tap, mac, 1500
        for wire in self.layout.wires(self.name):
            yield wire.device, wire.tap, wire.mac, FRAME

    @property
    def _machine_id(self) -> str:
        return f"{self.paths.namespace}-{self.name}"

    def _memory_folder(self) -> dict[str, str]:
        # A node's memory is a file in /dev/shm, which containers often bound to 64 MB: then the disk must do.
        shm = os.statvfs(SHARED_MEMORY)
        need = len(self.layout.rack.nodes) * 1024**3
        return {} if shm.f_bavail * shm.f_frsize >= need else {"TMPDIR": str(self.folder)}


def _least_used_cpu(allowed: set[int]) -> int:
    """Return the CPU of these on which the fewest nodes of any lab on this machine run."""
    nodes = dict.fromkeys(sorted(allowed), 0)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"\0umid=" in (process / "cmdline").read_bytes():
                cpus = os.sched_getaffinity(int(process.name))
                if len(cpus) == 1 and cpus <= allowed:
                    nodes[cpus.pop()] += 1
    return min(nodes, key=nodes.__getitem__)
