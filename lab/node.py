"""One virtual node: its folder, and the kernel process that is it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import boxed, hardware, private
from lab import namespace as ns
from lab.image.build import Base
from lab.keys import make_key
from lab.layout import FRAME, Layout
from lab.place import Place, runner

MEMORY = "8G"
"""What a node believes to have. Only touched pages cost the machine. By default a rack keeps 1.5 GiB free in each node
(vm.min_free_kbytes) and ends its containers below 3 GiB, which must leave room for work."""
MANAGEMENT_DEVICE = 8
"""Number of the vector device that becomes enP7s7; wires have 0 to 3."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where this kernel keeps a node's memory


@dataclass(frozen=True)
class VirtualNode:
    """A node of the lab, by the name it has in rack.yaml."""

    name: str
    layout: Layout
    place: Place

    @property
    def folder(self) -> Path:
        """Everything of this node."""
        return self.place.node(self.name)

    @property
    def shared(self) -> Path:
        """What the node sees as /lab."""
        return self.folder / "shared"

    @property
    def hardware(self) -> Path:
        """The state file behind the stand-in commands."""
        return self.shared / "hardware.json"

    @property
    def seed(self) -> Path:
        """What the first boot takes up."""
        return self.shared / "seed"

    @property
    def made(self) -> bool:
        """Whether this node was prepared before."""
        return self.seed.exists()

    @property
    def password(self) -> Path:
        """The password of the user that the wizard made; only a boxed node has one."""
        return self.folder / "password"

    @property
    def boxed(self) -> bool:
        """Whether its factory state is that of a real node, and not the lab's, which the operator can log in to."""
        return self.password.exists()

    @property
    def host_key(self) -> str:
        """The public host key, as known_hosts has it."""
        return (self.seed / "ssh_host_ed25519_key.pub").read_text().strip()

    def box(self) -> None:
        """Make it a boxed node, or again one, with a new identity unless it is a clone. It must be stopped."""
        shutil.rmtree(self.seed, ignore_errors=True)
        self.prepare(box=True)

    def prepare(self, *, box: bool = False) -> None:
        """Write what the first boot takes up. Host keys are kept when there are any: a reset disk is the same node.

        `box`: as a real node, see `lab.boxed`; a node that is boxed stays so.
        """
        if box or self.boxed:
            boxed.box(self.name, self.layout, self.place)
            private.make(self.password, self.place.password.read_text())
        else:
            self.seed.mkdir(parents=True, exist_ok=True)
            make_key(self.seed / "ssh_host_ed25519_key", f"root@{self.name}")
            shutil.copyfile(self.place.key.with_suffix(".pub"), self.seed / "authorized_keys")
            (self.seed / "hostname").write_text(f"{self.name}\n")
        self._write_surroundings()

    def _write_surroundings(self) -> None:
        """What the node's owner and the lab set up: its address, where packages and images come from, its hardware."""
        seed = self.seed
        address = f"{self.layout.rack.nodes[self.name].address}/{self.layout.management.prefixlen}"
        (seed / "management.yaml").write_text(
            "# The management interface of this node, as its owner set it up.\n"
            "network:\n  version: 2\n  ethernets:\n    enP7s7:\n"
            f"      addresses: [{address}]\n"
        )
        (seed / "lab.sources").write_text(f"Types: deb\nURIs: {self.layout.repository}\nSuites: ./\nTrusted: yes\n")
        # Valid, but as nobody's program would lay it out: who adds something to it has to keep that.
        (seed / "daemon.json").write_text(
            f'{{ "registry-mirrors":\n     [ "http://{self.layout.registry}" ],\n'
            f'  "insecure-registries": ["{self.layout.registry}"] }}\n'
        )
        if not self.hardware.exists():
            rack = self.layout.rack
            self.hardware.write_text(json.dumps(hardware.state(rack, rack.nodes[self.name]), indent=1))

    def pids(self) -> list[int]:
        """The processes of this node's kernel."""
        return ns.matching(self.place.namespace, f"umid={self._umid}")

    def start(self, base: Base) -> None:
        """Boot the node, with its disk as it is or factory-fresh when there is none."""
        uid, gid = runner()
        disk, kernel = self.folder / "disk.cow", base.kernel
        command = [
            *("ip", "netns", "exec", self.place.namespace),
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
                for device, tap, mac, mtu in self._interfaces()
            ),
            f"umid={self._umid}",
            f"uml_dir={self.folder}/",
            *("con=null", "con0=null,fd:1", "ssl=null", "quiet"),
        ]
        for path in (self.folder, self.shared):
            os.chown(path, uid, gid)
        # Without HOME the kernel ends with "failed to wait for stub".
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder), **self._memory_folder()}
        with (self.folder / "console.log").open("ab") as console:
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Pull the plug."""
        ns.end(self.pids())

    def factory(self) -> None:
        """Throw the disk away; the node must be stopped."""
        (self.folder / "disk.cow").unlink(missing_ok=True)

    def last_words(self) -> str:
        """The end of the console, for a node that does not come up."""
        console = self.folder / "console.log"
        lines = console.read_text(errors="replace").splitlines() if console.exists() else []
        return "\n".join(lines[-5:])

    def _interfaces(self) -> Iterator[tuple[int, str, str, int]]:
        """Number of the vector device, tap, hardware address and MTU of each interface."""
        tap, mac = self.layout.management_tap(self.name), self.layout.management_mac(self.name)
        yield MANAGEMENT_DEVICE, tap, mac, 1500
        for wire in self.layout.wires(self.name):
            yield wire.device, wire.tap, wire.mac, FRAME

    @property
    def _umid(self) -> str:
        return f"{self.place.namespace}-{self.name}"

    def _memory_folder(self) -> dict[str, str]:
        # A node's memory is a file in /dev/shm, which containers often bound to 64 MB: then the disk must do.
        shm = os.statvfs(SHARED_MEMORY)
        need = len(self.layout.rack.nodes) * 1024**3
        return {} if shm.f_bavail * shm.f_frsize >= need else {"TMPDIR": str(self.folder)}
