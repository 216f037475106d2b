"""The machines of a lab as files: their parts, and the operator's advance information about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab import first_boot, known_hosts, rack_file
from lab.errors import LabError
from lab.keys import make_key
from lab.layout import FROM_THE_BOX, Layout
from lab.node import VirtualNode
from lab.paths import LabPaths
from lab.switch import VirtualSwitch

PLACEHOLDER = "0" * 64
"""The fingerprint in rack.yaml of a switch before first contact; no certificate has it."""


@dataclass(frozen=True)
class LabMachines:
    """Nodes and switches of one lab. Nothing here starts or asks one."""

    layout: Layout
    paths: LabPaths

    @property
    def nodes(self) -> list[VirtualNode]:
        """The nodes, by rank."""
        return [VirtualNode(name, self.layout, self.paths) for name in self.layout.rack.nodes]

    @property
    def switches(self) -> list[VirtualSwitch]:
        """The switches."""
        return [VirtualSwitch(name, self.layout, self.paths) for name in self.layout.rack.switches]

    def prepare(self, *, factory: bool) -> None:
        """Write what is missing. `factory`: new machines are in factory state; those that are there
        stay what they are. Raises LabError before anything is written."""
        nodes, switches = self.nodes, self.switches
        if factory:
            ordinary = [node.name for node in nodes if node.made and not node.in_factory_state]
            ordinary += [switch.name for switch in switches if switch.made and not switch.in_factory_state]
            if ordinary:
                raise LabError(
                    f"this lab's {', '.join(ordinary)} are not in factory state; `sparkrack lab reset --factory NAME` "
                    "brings one to it, `sparkrack lab down` ends the lab"
                )
            self.may_be_boxed(switches)
        make_key(self.paths.key, "operator")
        for node in nodes:
            if factory and not node.made:
                self.box(node)
            else:
                node.prepare()
        for switch in switches:
            switch.prepare(factory=factory and not switch.made)
        self._pin_host_keys()
        if not self.paths.rack.exists():
            fingerprints = {
                switch.name: PLACEHOLDER if switch.in_factory_state else switch.fingerprint() for switch in switches
            }
            passwords = {switch.name: (switch.password, switch.reader) for switch in switches}
            text = rack_file.own(self.paths.plan.read_text(), self.layout.rack, self.paths, fingerprints, passwords)
            rack_file.write(self.paths.rack, text)

    def box(self, node: VirtualNode) -> None:
        """Put a node, which does not run, into its box; its console's fingerprints are known then."""
        first_boot.prepare(self.paths)
        node.box()
        lines = (first_boot.console(other.name, self.paths) for other in self.nodes if other.in_factory_state)
        rack_file.write(self.paths.host_keys, "".join(lines))

    def may_be_boxed(self, switches: Iterable[VirtualSwitch]) -> None:
        """Raise LabError for a switch that a lab cannot bring to factory state."""
        plain = [switch.name for switch in switches if self.layout.rack.switches[switch.name].tls is False]
        if plain:
            raise LabError(f"{plain[0]} has tls: false, so nothing would take it from its box")
        if len(self.layout.rack.switches) > 1:
            raise LabError(
                f"machines in factory state need one switch in the rack: each has the factory address {FROM_THE_BOX.ip}"
            )

    def _pin_host_keys(self) -> None:
        """The host keys of the nodes that did not come from a box; of the others nothing is known beforehand."""
        file, rack = self.paths.known_hosts, self.layout.rack
        before = file.read_text() if file.exists() else ""
        own = {str(rack.nodes[node.name].address): node.host_key for node in self.nodes if not node.in_factory_state}
        after = known_hosts.merged(before, own)
        if after != before or not file.exists():
            rack_file.write(file, after)
