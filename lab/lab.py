"""The lab as a whole: up, down, its state, and the reset of one machine to factory state."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from core.model import load
from core.util import regular_file
from core.util.project_files import PACKAGES
from lab import namespace as ns
from lab import network, rack_file, services
from lab.errors import LabError, NoLabHereError
from lab.image.build import Base, base, remove_unfinished
from lab.image.kernel import describe
from lab.layout import FROM_THE_BOX, Layout
from lab.machines import LabMachines
from lab.node import VirtualNode
from lab.node_login import Logins
from lab.paths import LabPaths, cache, caller, make_for_caller, runner
from lab.snapshots import LabSnapshot
from lab.switch import VirtualSwitch
from serving.options import served_units

UP = "sparkrack lab up"
BOOT_SECONDS = 600
"""Eight nodes on two busy cores took 175 s."""
REFUSED_SECONDS = 120
"""From the first answer of a node's sshd to the end of its boot, at most; a machine with a load of 30 takes 60 s."""
SHUTDOWN_SECONDS = 120
"""systemd gives a unit 90 s to stop."""
HOST_NEEDS = Path(__file__).parent / "host_needs.sh"
"""Says what this machine lacks; set-up asks it, too."""


def require_host(nodes: int) -> None:
    """Raise LabError with what this machine lacks for so many nodes that do not run yet."""
    environment = {**os.environ, "SPARKRACK_CACHE": str(cache())}
    done = subprocess.run(["sh", str(HOST_NEEDS), str(nodes)], env=environment, capture_output=True, text=True)
    if done.returncode:
        error = NoLabHereError if done.returncode == 2 else LabError
        raise error((done.stdout + done.stderr).strip())


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
    """The lab of one folder. Needs root; see `lab.privileges` for how a user gets there."""

    paths: LabPaths
    say: Callable[[str], None]

    @cached_property
    def layout(self) -> Layout:
        """Wiring of the rack of this lab. Raises LabError when there is no lab."""
        if not self.paths.plan.exists():
            raise LabError(f"there is no lab in {self.paths.folder}; `{UP}` makes one", UP)
        return Layout(load(self.paths.plan))

    @property
    def kernel(self) -> str:
        """Source of the kernel of the nodes, in one line."""
        return describe(cache() / "lab")

    @property
    def machines(self) -> LabMachines:
        """Its machines, as files."""
        return LabMachines(self.layout, self.paths)

    @property
    def logins(self) -> Logins:
        """Logins to its nodes."""
        return Logins(self.layout, self.paths)

    def up(self, nodes: int, given: Path | None, *, factory: bool = False) -> None:
        """Build the lab, or what of it is missing; safe to run again. Raises LabError when it does not come up.

        `factory`: new machines are in factory state. Existing machines stay as they are.
        """
        self._settle_rack(nodes, given)
        self._bring_up(factory=factory)

    def snapshot(self, name: str) -> None:
        """Keep all machines as they are now under a name. They are shut down for it and started again. Raises LabError.

        A shutdown, since a copy of a running node's disk would come back as after a loss of power.
        """
        kept = LabSnapshot(name)
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
        kept.save(self.paths, base(cache(), self.say))
        self._bring_up()

    def restore(self, name: str) -> None:
        """Replace the lab of this folder, if there is one, by what a snapshot kept, and start it. Raises LabError."""
        require_host(1)
        image, kept = base(cache(), self.say), LabSnapshot(name)
        kept.check(image)
        self.down()
        kept.load(self.paths, image)
        self._bring_up()

    def _bring_up(self, *, factory: bool = False) -> None:
        image = base(cache(), self.say)
        rack, namespace = self.layout.rack, self.paths.namespace
        self.machines.prepare(factory=factory)
        services.prepare(self.layout, self.paths, image)
        self.paths.give_to_caller()
        ns.create(namespace)
        self._build_network()
        for service in services.services(self.layout, self.paths, image):
            if not service.pids():
                self.say(f"starting the {service.name}")
                service.start()
        for switch in self.machines.switches:
            if not switch.pids():
                self.say(f"starting the emulated switch {switch.name}")
                switch.start()
        waiting = [node for node in self.machines.nodes if not node.pids()]
        if waiting:
            require_host(len(waiting))
            self.say(f"booting {len(waiting)} of {len(rack.nodes)} nodes")
        for node in waiting:
            node.start(image)
        self._push_images(image)  # while they boot
        self.paths.give_to_caller()
        self._wait_for_logins(self.machines.nodes)

    def down(self) -> None:
        """End everything and delete the lab's folder; nothing is left but the cache. Nothing there is fine."""
        ns.delete(self.paths.namespace)
        remove_unfinished(cache())
        if (self.paths.folder / "nodes").exists() or self.paths.plan.exists():
            shutil.rmtree(self.paths.folder)

    def reset(self, name: str, *, factory: bool = False, serial: str | None = None) -> None:
        """Bring one machine to factory state: a node gets a fresh disk, a switch loses its settings.

        `factory`: to that of a real one, as for a machine from `lab up --factory` in any case. `serial`: of the switch
        that takes the place of this one. Raises LabError.
        """
        layout = self.layout
        if not ns.exists(self.paths.namespace):
            raise LabError(f"the lab is not running; `{UP}` starts it", UP)
        if name in layout.rack.nodes:
            node = VirtualNode(name, layout, self.paths)
            node.stop()
            if factory or node.in_factory_state:
                self.machines.box(node)
            node.factory()
            node.start(base(cache(), self.say))
            self.paths.give_to_caller()
            self._wait_for_logins([node])
        elif name in layout.rack.switches:
            switch = VirtualSwitch(name, layout, self.paths)
            again = factory or switch.in_factory_state
            if again:
                self.machines.may_be_boxed([switch])
            switch.stop()
            if again:
                switch.box(serial)
                self.paths.give_to_caller()
                self._build_network()
            switch.start(factory=True)
        else:
            known = ", ".join([*layout.rack.nodes, *layout.rack.switches])
            raise LabError(f"{name} is not in this lab; there are {known}")

    def reboot(self, name: str) -> None:
        """Restart a node the way its owner would, and wait until it takes logins again."""
        self.logins.ssh(name)  # a name that is not a node's stops here
        before = self.logins.boot_id(name)
        if before is None:
            raise LabError(f"{name} takes no logins; `sparkrack lab status` shows what runs")
        self.logins.reboot(name)
        VirtualNode(name, self.layout, self.paths).record_boot()
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
            found.append(self._describe_member(node.name, "node", address, 22, bool(node.pids())))
        for switch in self.machines.switches:
            spec, running = rack.switches[switch.name], bool(switch.pids())
            member = self._describe_member(switch.name, "switch", str(spec.address), spec.port, running)
            if switch.in_factory_state and not member.answers:
                member = self._describe_member(switch.name, "switch", str(FROM_THE_BOX.ip), spec.port, running)
            found.append(member)
        return found

    def takes_logins(self, node: VirtualNode) -> bool:
        """Return whether the operator can log in there: sshd listens some seconds before PAM accepts users."""
        return self._sshd_answers(node) and self.logins.boot_id(node.name) is not None

    def _sshd_answers(self, node: VirtualNode) -> bool:
        address = str(self.layout.rack.nodes[node.name].address)
        return ns.answers(self.paths.namespace, address, 22, greeting=True)

    def ssh(self, name: str) -> list[str]:
        """Return the ssh command that logs in to a node, to be run inside the namespace. Raises LabError, also when the
        node is in factory state and does not have the operator's key yet.
        """
        command = self.logins.ssh(name)
        if VirtualNode(name, self.layout, self.paths).in_factory_state and not self.logins.boot_id_by_key(name):
            raise LabError(f"{name} does not let the operator in yet; `sparkrack bootstrap nodes {name}` sees to that")
        return command

    def entering(self) -> list[str]:
        """Return the words that run the command after them inside the lab's network, as who called. Raises LabError."""
        if not ns.exists(self.paths.namespace):
            raise LabError(f"the lab is not running; `{UP}` starts it", UP)
        uid, gid = caller()
        user = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--"] if uid != os.geteuid() else []
        return ["nsenter", f"--net=/run/netns/{self.paths.namespace}", "--", *user]

    def variables(self) -> dict[str, str]:
        """Return the variables of such a command: RACK, and where records of runs (backups, journals) are kept."""
        return {"RACK": str(self.paths.rack), "XDG_STATE_HOME": str(self.paths.folder / "state")}

    def _settle_rack(self, nodes: int, given: Path | None) -> None:
        """Settle which rack this lab is. A lab that exists keeps its rack: another one wants `down` first."""
        # A file that cannot be used stops here, under the name its owner knows it by.
        own = load(given) if given else None
        nodes = len(own.nodes) if own else nodes
        if not ns.exists(self.paths.namespace):
            require_host(nodes)
        text = regular_file.read_text(given) if given else rack_file.invented(nodes)
        if self.paths.plan.exists() and self.paths.plan.read_text() != text:
            if ns.processes(self.paths.namespace):
                raise LabError("a lab of another rack is running here; `sparkrack lab down` ends it")
            self.down()
        make_for_caller(self.paths.folder)
        if own:
            rack_file.copy_unit_files(own, self.paths.folder)
        rack_file.write(self.paths.plan, text)
        self.paths.give_to_caller()
        self.layout  # noqa: B018 - a rack that cannot be loaded stops here, before anything is built

    def _build_network(self) -> None:
        factory = any(switch.in_factory_state for switch in self.machines.switches)
        network.build(self.layout, self.paths.namespace, runner(), factory=factory)

    def _push_images(self, base: Base) -> None:
        """Bring the images of the rack file, which its owner may have edited, to the registry."""
        rack = load(self.paths.rack)
        if not rack.images:
            return
        serving = served_units(rack).values()
        engines = [word for unit in serving for word in ("--engine", unit.image, unit.family, unit.version)]
        command = [sys.executable, "-m", "lab.images", *engines, self.layout.registry, str(base.busybox)]
        command += [str(base.python), *rack.images]
        done = self.logins.inside(command, cwd=PACKAGES)
        if done.returncode:
            raise LabError(f"the images of the rack cannot be pushed:\n{done.stderr.strip()}")

    def _wait_for_logins(self, nodes: list[VirtualNode]) -> None:
        """Wait until every node takes logins; raises LabError when one has ended or takes too long."""
        begin = time.monotonic()
        waiting = list(nodes)
        answered: dict[str, float] = {}
        while waiting:
            for node in list(waiting):
                if self.takes_logins(node):
                    waiting.remove(node)
                    self.say(f"{node.name} takes logins after {time.monotonic() - begin:.0f} s")
                elif not node.pids():
                    raise LabError(f"{node.name} ended while it booted; its console ends with:\n{node.last_words()}")
                elif (
                    self._sshd_answers(node)
                    and time.monotonic() - answered.setdefault(node.name, time.monotonic()) > REFUSED_SECONDS
                ):
                    raise LabError(
                        f"{node.name} answers, and refuses the key of the lab and the first account, as after a "
                        "bootstrap with another key; `sparkrack lab down` ends this lab"
                    )
            if waiting and time.monotonic() - begin > BOOT_SECONDS:
                names = ", ".join(node.name for node in waiting)
                raise LabError(f"{names} did not come up within {BOOT_SECONDS} s; see console.log in its folder")
            if waiting:
                time.sleep(0.5)

    def _describe_member(self, name: str, kind: str, address: str, port: int, running: bool) -> Member:
        return Member(
            name, kind, address, running, running and ns.answers(self.paths.namespace, address, port, kind == "node")
        )
