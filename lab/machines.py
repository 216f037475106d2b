"""The machines of a lab as files: what each is made of, and what its operator knows of them beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab import boxed, knownhosts, rackfile
from lab.errors import LabError
from lab.keys import make_key
from lab.layout import FROM_THE_BOX, Layout
from lab.node import VirtualNode
from lab.place import Place
from lab.switch import VirtualSwitch

PLACEHOLDER = "0" * 64
"""The fingerprint in rack.yaml of a switch that nobody met yet; no certificate has it."""


@dataclass(frozen=True)
class Machines:
    """Nodes and switches of one lab. Nothing here starts or asks one."""

    layout: Layout
    place: Place

    @property
    def nodes(self) -> list[VirtualNode]:
        """The nodes, by rank."""
        return [VirtualNode(name, self.layout, self.place) for name in self.layout.rack.nodes]

    @property
    def switches(self) -> list[VirtualSwitch]:
        """The switches."""
        return [VirtualSwitch(name, self.layout, self.place) for name in self.layout.rack.switches]

    def prepare(self, *, boxed: bool) -> None:
        """Write what is missing. `boxed`: machines that are made now come from their boxes; those that are there
        stay what they are. Raises LabError before anything is written."""
        nodes, switches = self.nodes, self.switches
        if boxed:
            ordinary = [node.name for node in nodes if node.made and not node.boxed]
            ordinary += [switch.name for switch in switches if switch.made and not switch.boxed]
            if ordinary:
                raise LabError(
                    f"this lab's {', '.join(ordinary)} did not come from a box; `sparkrack lab reset --boxed NAME` "
                    "makes it so, `sparkrack lab down` ends the lab"
                )
            self.may_be_boxed(switches)
        make_key(self.place.key, "operator")
        for node in nodes:
            if boxed and not node.made:
                self.box(node)
            else:
                node.prepare()
        for switch in switches:
            switch.prepare(boxed=boxed and not switch.made)
        self._pin()
        if not self.place.rack.exists():
            fingerprints = {switch.name: PLACEHOLDER if switch.boxed else switch.fingerprint() for switch in switches}
            passwords = {switch.name: (switch.password, switch.reader) for switch in switches}
            text = rackfile.own(self.place.plan.read_text(), self.layout.rack, self.place, fingerprints, passwords)
            rackfile.write(self.place.rack, text)

    def box(self, node: VirtualNode) -> None:
        """Put a node, which does not run, into its box; its console's fingerprints are known then."""
        boxed.prepare(self.place)
        node.box()
        lines = (boxed.console(other.name, self.place) for other in self.nodes if other.boxed)
        rackfile.write(self.place.host_keys, "".join(lines))

    def may_be_boxed(self, switches: Iterable[VirtualSwitch]) -> None:
        """Raises LabError for a switch that nobody could take from its box in a lab."""
        plain = [switch.name for switch in switches if self.layout.rack.switches[switch.name].tls is False]
        if plain:
            raise LabError(f"{plain[0]} has tls: false, so nothing would take it from its box")
        if len(self.layout.rack.switches) > 1:
            raise LabError(f"boxed machines want one switch in the rack: from the box each is at {FROM_THE_BOX.ip}")

    def _pin(self) -> None:
        """The host keys of the nodes that did not come from a box; of the others nothing is known beforehand."""
        file, rack = self.place.known_hosts, self.layout.rack
        before = file.read_text() if file.exists() else ""
        own = {str(rack.nodes[node.name].address): node.host_key for node in self.nodes if not node.boxed}
        after = knownhosts.merged(before, own)
        if after != before or not file.exists():
            rackfile.write(file, after)
