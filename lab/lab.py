"""The lab as one thing: up, down, what state it is in, and one machine back to factory state."""

from __future__ import annotations

import shutil
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
from lab.image.kernel import describe
from lab.layout import FROM_THE_BOX, Layout
from lab.logins import Logins
from lab.machines import Machines
from lab.node import VirtualNode
from lab.place import Place, cache, runner
from lab.snapshots import Snapshot
from lab.switch import VirtualSwitch
from sparkrack.fleet import load, regular

BOOT_SECONDS = 600
"""Eight nodes on two busy cores took 175 s."""
SHUTDOWN_SECONDS = 120
"""systemd gives a unit 90 s to stop."""
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

    @property
    def kernel(self) -> str:
        """What the kernel of the nodes was built from, in one line."""
        return describe(cache() / "lab")

    @property
    def machines(self) -> Machines:
        """Its machines, as files."""
        return Machines(self.layout, self.place)

    @property
    def logins(self) -> Logins:
        """The ways into its nodes."""
        return Logins(self.layout, self.place)

    def up(self, nodes: int, given: Path | None, *, boxed: bool = False) -> None:
        """Build the lab, or what of it is missing; safe to run again. Raises LabError when it does not come up.

        `boxed`: with machines as they come from their boxes. Those that are there already are as they were made.
        """
        self._plan(nodes, given)
        self._bring_up(boxed=boxed)

    def snapshot(self, name: str) -> None:
        """Keep all machines as they are now under a name. They are shut down for it and started again. Raises LabError.

        A shutdown, since a copy of a running node's disk would come back as after a loss of power.
        """
        kept = Snapshot(name)
        silent = [node.name for node in self.machines.nodes if not self.takes_logins(node)]
        if silent:
            raise LabError(f"{', '.join(silent)} takes no logins, so it cannot be shut down; nothing was kept")
        self.say(f"shutting down {len(self.machines.nodes)} nodes")
        for node in self.machines.nodes:
            self.logins.power_off(node.name)
        until = time.monotonic() + SHUTDOWN_SECONDS
        while running := [node.name for node in self.machines.nodes if node.pids()]:
            if time.monotonic() > until:
                raise LabError(f"{', '.join(running)} did not shut down within {SHUTDOWN_SECONDS} s; nothing was kept")
            time.sleep(0.2)
        for switch in self.machines.switches:
            switch.stop()
        kept.save(self.place, base(cache(), self.say))
        self._bring_up()

    def restore(self, name: str) -> None:
        """Replace the lab of this folder, if there is one, by what a snapshot kept, and start it. Raises LabError."""
        image, kept = base(cache(), self.say), Snapshot(name)
        kept.check(image)
        self.down()
        kept.load(self.place, image)
        self._bring_up()

    def _bring_up(self, *, boxed: bool = False) -> None:
        image = base(cache(), self.say)
        rack, namespace = self.layout.rack, self.place.namespace
        self.machines.prepare(boxed=boxed)
        services.prepare(self.layout, self.place, image)
        self.place.give_to_caller()
        ns.create(namespace)
        self._wire()
        for service in services.services(self.layout, self.place, image):
            if not service.pids():
                self.say(f"starting the {service.name}")
                service.start()
        for switch in self.machines.switches:
            if not switch.pids():
                self.say(f"starting the emulated switch {switch.name}")
                switch.start()
        waiting = [node for node in self.machines.nodes if not node.pids()]
        if waiting:
            self._afford(len(waiting))
            self.say(f"booting {len(waiting)} of {len(rack.nodes)} nodes")
        for node in waiting:
            node.start(image)
        self._push(image)  # while they boot
        self.place.give_to_caller()
        self._wait(self.machines.nodes)

    def down(self) -> None:
        """End everything and delete the lab's folder; nothing is left but the cache. Nothing there is fine."""
        ns.delete(self.place.namespace)
        if (self.place.folder / "nodes").exists() or self.place.plan.exists():
            shutil.rmtree(self.place.folder)

    def reset(self, name: str, *, boxed: bool = False, serial: str | None = None) -> None:
        """Bring one machine to factory state: a node gets a fresh disk, a switch loses its settings.

        `boxed`: to that of a real one, as a machine that is boxed already comes in any case. `serial`: of the switch
        that takes the place of this one. Raises LabError.
        """
        layout = self.layout
        if not ns.exists(self.place.namespace):
            raise LabError("the lab is not running; `sparkrack lab up` starts it")
        if name in layout.rack.nodes:
            node = VirtualNode(name, layout, self.place)
            node.stop()
            if boxed or node.boxed:
                self.machines.box(node)
            node.factory()
            node.start(base(cache(), self.say))
            self.place.give_to_caller()
            self._wait([node])
        elif name in layout.rack.switches:
            switch = VirtualSwitch(name, layout, self.place)
            again = boxed or switch.boxed
            if again:
                self.machines.may_be_boxed([switch])
            switch.stop()
            if again:
                switch.box(serial)
                self.place.give_to_caller()
                self._wire()
            switch.start(factory=True)
        else:
            known = ", ".join([*layout.rack.nodes, *layout.rack.switches])
            raise LabError(f"{name} is not in this lab; there are {known}")

    def reboot(self, name: str) -> None:
        """Restart a node the way its owner would, and wait until it takes logins again."""
        self.logins.ssh(name)  # a name that is no node's stops here
        before = self.logins.boot_id(name)
        if before is None:
            raise LabError(f"{name} takes no logins; `sparkrack lab status` shows what runs")
        self.logins.reboot(name)
        begin = time.monotonic()
        while self.logins.boot_id(name) in (None, before):
            if time.monotonic() - begin > BOOT_SECONDS:
                raise LabError(f"{name} did not come back within {BOOT_SECONDS} s; see console.log in its folder")
            time.sleep(0.5)

    def status(self) -> list[Member]:
        """Every machine of the lab, whether its process runs and whether it answers on its management address."""
        rack = self.layout.rack
        found = []
        for node in self.machines.nodes:
            address = str(rack.nodes[node.name].address)
            found.append(self._member(node.name, "node", address, 22, bool(node.pids())))
        for switch in self.machines.switches:
            spec, running = rack.switches[switch.name], bool(switch.pids())
            member = self._member(switch.name, "switch", str(spec.address), spec.port, running)
            if switch.boxed and not member.answers:
                member = self._member(switch.name, "switch", str(FROM_THE_BOX.ip), spec.port, running)
            found.append(member)
        return found

    def takes_logins(self, node: VirtualNode) -> bool:
        """Whether the operator can log in there: sshd listens some seconds before PAM lets users in."""
        address = str(self.layout.rack.nodes[node.name].address)
        if not ns.answers(self.place.namespace, address, 22, greeting=True):
            return False
        return self.logins.boot_id(node.name) is not None

    def ssh(self, name: str) -> list[str]:
        """The ssh command that logs in to a node, to be run inside the namespace. Raises LabError; it says so too when
        the node is boxed and does not know the operator yet."""
        command = self.logins.ssh(name)
        if VirtualNode(name, self.layout, self.place).boxed and not self.logins.operators_boot_id(name):
            raise LabError(f"{name} does not let the operator in yet; `sparkrack bootstrap nodes {name}` sees to that")
        return command

    def _plan(self, nodes: int, given: Path | None) -> None:
        """Settle which rack this lab is. A lab that exists keeps its rack: another one wants `down` first."""
        if given:
            load(given)  # a file that cannot be used stops here, under the name its owner knows it by
        text = regular.read_text(given) if given else rackfile.invented(nodes)
        if self.place.plan.exists() and self.place.plan.read_text() != text:
            if ns.processes(self.place.namespace):
                raise LabError("a lab of another rack is running here; `sparkrack lab down` ends it")
            self.down()
        self.place.folder.mkdir(parents=True, exist_ok=True)
        rackfile.write(self.place.plan, text)
        self.layout  # noqa: B018 - a rack that cannot be loaded stops here, before anything is built

    def _wire(self) -> None:
        boxed = any(switch.boxed for switch in self.machines.switches)
        network.build(self.layout, self.place.namespace, runner(), boxed=boxed)

    def _push(self, base: Base) -> None:
        """Bring the rack's images to the registry, those that are not there."""
        names = self.layout.rack.images
        if not names:
            return
        command = [sys.executable, "-m", "lab.images", self.layout.registry, str(base.busybox), *names]
        done = self.logins.inside(command, cwd=Path(__file__).parent.parent)
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
