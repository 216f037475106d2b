"""The lab as one thing: up, down, what state it is in, and one machine back to factory state."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lab import namespace as ns
from lab import network, rackfile, services
from lab.errors import LabError
from lab.image.build import Base, base
from lab.layout import Layout
from lab.node import VirtualNode, make_key
from lab.place import Place, cache, runner
from lab.switch import VirtualSwitch
from sparkrack.fleet import load

BOOT_SECONDS = 600
"""Eight nodes on two busy cores took 175 s."""
MEGABYTES = 700
"""What a node costs the machine while it is worked with; idle it is about 300."""


@dataclass(frozen=True)
class Member:
    """A machine of the lab and how it is."""

    name: str
    kind: str
    address: str
    running: bool
    answers: bool


@dataclass(frozen=True)
class Lab:
    """The lab of one folder. Needs root; see `sparkrack.cli.lab` for how a user gets there."""

    place: Place
    say: Callable[[str], None]

    @cached_property
    def layout(self) -> Layout:
        """How the rack of this lab is wired. Raises LabError when there is no lab."""
        if not self.place.plan.exists():
            raise LabError(f"there is no lab in {self.place.folder}; `sparkrack lab up` makes one")
        return Layout(load(self.place.plan))

    def up(self, nodes: int, given: Path | None) -> None:
        """Build the lab, or what of it is missing; safe to run again. Raises LabError when it does not come up."""
        self._plan(nodes, given)
        image = base(cache(), self.say)
        rack, namespace = self.layout.rack, self.place.namespace
        self._prepare()
        services.prepare(self.layout, self.place, image)
        self.place.give_to_caller()
        ns.create(namespace)
        network.build(self.layout, namespace, runner())
        for service in services.services(self.layout, self.place, image):
            if not service.pids():
                self.say(f"starting the {service.name}")
                service.start()
        for switch in self.switches:
            if not switch.pids():
                self.say(f"starting the emulated switch {switch.name}")
                switch.start()
        waiting = [node for node in self.nodes if not node.pids()]
        if waiting:
            self._afford(len(waiting))
            self.say(f"booting {len(waiting)} of {len(rack.nodes)} nodes")
        for node in waiting:
            node.start(image)
        self._push(image)  # while they boot
        self.place.give_to_caller()
        self._wait(self.nodes)

    def down(self) -> None:
        """End everything and delete the lab's folder; nothing is left but the cache. Nothing there is fine."""
        ns.delete(self.place.namespace)
        if (self.place.folder / "nodes").exists() or self.place.plan.exists():
            shutil.rmtree(self.place.folder)

    def reset(self, name: str) -> None:
        """Bring one machine to factory state: a node gets a fresh disk, a switch loses its settings."""
        layout = self.layout
        if not ns.exists(self.place.namespace):
            raise LabError("the lab is not running; `sparkrack lab up` starts it")
        if name in layout.rack.nodes:
            node = VirtualNode(name, layout, self.place)
            node.stop()
            node.factory()
            node.start(base(cache(), self.say))
            self.place.give_to_caller()
            self._wait([node])
        elif name in layout.rack.switches:
            switch = VirtualSwitch(name, layout, self.place)
            switch.stop()
            switch.start(factory=True)
        else:
            known = ", ".join([*layout.rack.nodes, *layout.rack.switches])
            raise LabError(f"{name} is not in this lab; there are {known}")

    def reboot(self, name: str) -> None:
        """Restart a node the way its owner would, and wait until it takes logins again."""
        before = self._boot_id(name)
        if before is None:
            raise LabError(f"{name} takes no logins; `sparkrack lab status` shows what runs")
        self._inside([*self.ssh(name), "sudo", "systemctl", "reboot"])
        begin = time.monotonic()
        while self._boot_id(name) in (None, before):
            if time.monotonic() - begin > BOOT_SECONDS:
                raise LabError(f"{name} did not come back within {BOOT_SECONDS} s; see console.log in its folder")
            time.sleep(0.5)

    def status(self) -> list[Member]:
        """Every machine of the lab, whether its process runs and whether it answers on its management address."""
        rack = self.layout.rack
        found = []
        for node in self.nodes:
            address = str(rack.nodes[node.name].address)
            found.append(self._member(node.name, "node", address, 22, bool(node.pids())))
        for switch in self.switches:
            spec = rack.switches[switch.name]
            found.append(self._member(switch.name, "switch", str(spec.address), spec.port, bool(switch.pids())))
        return found

    @property
    def nodes(self) -> list[VirtualNode]:
        """The nodes, by rank."""
        return [VirtualNode(name, self.layout, self.place) for name in self.layout.rack.nodes]

    @property
    def switches(self) -> list[VirtualSwitch]:
        """The switches."""
        return [VirtualSwitch(name, self.layout, self.place) for name in self.layout.rack.switches]

    def takes_logins(self, node: VirtualNode) -> bool:
        """Whether the operator can log in there: sshd listens some seconds before PAM lets users in."""
        address = str(self.layout.rack.nodes[node.name].address)
        if not ns.answers(self.place.namespace, address, 22, greeting=True):
            return False
        return self._boot_id(node.name) is not None

    def ssh(self, name: str) -> list[str]:
        """The ssh command that logs in to a node, to be run inside the namespace."""
        rack = self.layout.rack
        if name not in rack.nodes:
            raise LabError(f"{name} is not a node of this lab; there are {', '.join(rack.nodes)}")
        options = {
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.place.known_hosts,
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": 10,
            "LogLevel": "ERROR",
        }
        return [
            *("ssh", "-F", "none", "-i", str(self.place.key)),
            *(f"-o{key}={value}" for key, value in options.items()),
            f"{rack.access.user}@{rack.nodes[name].address}",
        ]

    def _boot_id(self, name: str) -> str | None:
        """What names the node's present boot; None while it takes no logins."""
        done = self._inside([*self.ssh(name), "cat", "/proc/sys/kernel/random/boot_id"])
        return done.stdout.strip() if done.returncode == 0 else None

    def _inside(self, command: list[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        enter = ["ip", "netns", "exec", self.place.namespace]
        return subprocess.run([*enter, *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=cwd)

    def _plan(self, nodes: int, given: Path | None) -> None:
        """Settle which rack this lab is. A lab that exists keeps its rack: another one wants `down` first."""
        if given:
            load(given)  # a file that cannot be used stops here, under the name its owner knows it by
        text = given.read_text() if given else rackfile.invented(nodes)
        if self.place.plan.exists() and self.place.plan.read_text() != text:
            if ns.processes(self.place.namespace):
                raise LabError("a lab of another rack is running here; `sparkrack lab down` ends it")
            self.down()
        self.place.folder.mkdir(parents=True, exist_ok=True)
        rackfile.write(self.place.plan, text)
        self.layout  # noqa: B018 - a rack that cannot be loaded stops here, before anything is built

    def _prepare(self) -> None:
        make_key(self.place.key, "operator")
        for node in self.nodes:
            node.prepare()
        for switch in self.switches:
            switch.prepare()
        rack = self.layout.rack
        hosts = "".join(f"{rack.nodes[node.name].address} {node.host_key}\n" for node in self.nodes)
        rackfile.write(self.place.known_hosts, hosts)
        fingerprints = {switch.name: switch.fingerprint() for switch in self.switches}
        passwords = {switch.name: (switch.password, switch.reader) for switch in self.switches}
        if not self.place.rack.exists():
            text = rackfile.own(self.place.plan.read_text(), rack, self.place, fingerprints, passwords)
            rackfile.write(self.place.rack, text)

    def _push(self, base: Base) -> None:
        """Bring the rack's images to the registry, those that are not there."""
        names = self.layout.rack.images
        if not names:
            return
        command = [sys.executable, "-m", "lab.images", self.layout.registry, str(base.busybox), *names]
        done = self._inside(command, cwd=Path(__file__).parent.parent)
        if done.returncode:
            raise LabError(f"the images of the rack cannot be pushed:\n{done.stderr.strip()}")

    def _afford(self, count: int) -> None:
        available = next(
            int(line.split()[1]) // 1024
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemAvailable:")
        )
        if available < count * MEGABYTES:
            raise LabError(
                f"{count} nodes need about {count * MEGABYTES} MB of memory, this machine has {available} MB to give; "
                "use fewer nodes"
            )

    def _wait(self, nodes: list[VirtualNode]) -> None:
        """Wait until every node takes logins; raises LabError when one has ended or takes too long."""
        begin = time.monotonic()
        waiting = list(nodes)
        while waiting:
            for node in list(waiting):
                if self.takes_logins(node):
                    waiting.remove(node)
                    self.say(f"{node.name} takes logins after {time.monotonic() - begin:.0f} s")
                elif not node.pids():
                    raise LabError(f"{node.name} ended while it booted; its console ends with:\n{node.last_words()}")
            if waiting and time.monotonic() - begin > BOOT_SECONDS:
                names = ", ".join(node.name for node in waiting)
                raise LabError(f"{names} did not come up within {BOOT_SECONDS} s; see console.log in its folder")
            if waiting:
                time.sleep(0.5)

    def _member(self, name: str, kind: str, address: str, port: int, running: bool) -> Member:
        return Member(
            name, kind, address, running, running and ns.answers(self.place.namespace, address, port, kind == "node")
        )
