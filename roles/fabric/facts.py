"""Facts of a node about its fabric, and their comparison with the rack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from core.hardware.gb10 import INTERFACES
from core.model import VLAN_DEVICES, Node, Rack
from core.ops import host_facts
from core.ops.rollback import PendingChange
from core.probes.links import parse_ethtool_of_all
from core.util import managed_file
from core.util.event import Event
from roles.fabric import desired, foreign_netplan, interface_owners
from serving import running_engines as running_units

TRIAL = PendingChange(name="fabric", revert="", seconds=90)
"""Common part of every pending change of this role; each has its own revert script."""
LINKS = "fabric-links"
OTHERS = "netplan-interfaces"
CONTENT = "netplan-content"
RENDERERS = "netplan-renderers"
OWNERS = "fabric-owners"
MODE = "netplan-mode"
SIGNALS = "fabric-signals"

host_facts.register(
    "fabric",
    host_facts.Probe(
        files=(desired.KEPT, desired.TRIED, TRIAL.script, desired.HOTPLUG),
        commands={
            LINKS: "ip -d -j address",
            # ethtool's output of each that is not switched off; nothing where ethtool fails.
            SIGNALS: f"""for i in {" ".join(sorted(INTERFACES))}; do
[ -e "/sys/class/net/$i" ] || continue
read -r s < "/sys/class/net/$i/operstate" && [ "$s" != down ] && o=$(ethtool "$i" 2>/dev/null) || continue
printf '%s\\n' "$o"
done""",
            OTHERS: foreign_netplan.NAMES_PROBE,
            CONTENT: foreign_netplan.CONTENT_PROBE,
            OWNERS: interface_owners.PROBE,
            RENDERERS: foreign_netplan.RENDERERS_PROBE,
            MODE: managed_file.probe_permissions((desired.KEPT,)),
            running_units.FACT: running_units.PROBE,
        },
    ),
)


@dataclass(frozen=True)
class FabricFacts:
    """Fabric facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading
    rack: Rack
    node: Node

    @cached_property
    def _live_interfaces(self) -> Mapping[str, desired.InterfaceState]:
        try:
            return desired.live(self.reading.text(LINKS), [*sorted(INTERFACES), *VLAN_DEVICES])
        except ValueError as error:
            raise ValueError(f"{LINKS}: {error}") from None

    @cached_property
    def now(self) -> Mapping[str, desired.InterfaceState]:
        """The cabled interfaces and the VLANs on them, live."""
        return desired.managed_interfaces(self.rack, self.node, self.before, self._live_interfaces)

    @cached_property
    def dead(self) -> list[str]:
        """Problems of the links, from ethtool: no run fixes them."""
        try:
            reports = parse_ethtool_of_all(self.reading.text(SIGNALS))
        except ValueError as error:
            raise ValueError(f"{SIGNALS}: {error}") from None
        return desired.link_problems(self.rack, self.node, reports)

    @cached_property
    def unread(self) -> list[str]:
        """What ethtool does not say of the links that it reports as up."""
        return desired.unread_links(self.rack, self.node, parse_ethtool_of_all(self.reading.text(SIGNALS)))

    def still_dead(self, earlier: list[str]) -> list[str]:
        """Those of the earlier problems of the links that this reading does not disprove, and new ones. Only a link
        that ethtool reports as up, with its speed, disproves a problem."""
        reports = parse_ethtool_of_all(self.reading.text(SIGNALS))
        up = {name for name, report in reports.items() if report.carrier and report.mbps is not None}
        answered = up | {line.partition(":")[0] for line in self.dead}
        return [*self.dead, *(line for line in earlier if line.partition(":")[0] not in answered)]

    @cached_property
    def before(self) -> bytes | None:
        """Our actual netplan file."""
        return self.reading.content(desired.KEPT)

    @cached_property
    def wanted(self) -> bytes | None:
        """Our desired netplan file."""
        return desired.netplan(self.rack, self.node)

    @cached_property
    def faults(self) -> list[Event]:
        """Live differences."""
        return desired.problems(self.rack, self.node, self.now)

    @cached_property
    def _names_in_files_of_others(self) -> Mapping[str, list[str]]:
        """The interfaces of ours that each file of others names or matches."""
        devices, names = self._interface_owners.devices, desired.wanted(self.rack, self.node)
        return interface_owners.files_of_others(self.reading.text(OTHERS), self._contents_of_others, devices, names)

    @cached_property
    def _interface_owners(self) -> interface_owners.Owners:
        found = interface_owners.owners(self.reading.text(OWNERS))
        there = [name for name, state in self.now.items() if name in INTERFACES and state.known]
        if missing := [name for name in there if name not in found.devices]:
            raise ValueError(f"{OWNERS}: no answer about {', '.join(missing)}")
        return found

    @cached_property
    def adopted(self) -> Mapping[str, bytes]:
        """The files of others that are taken over, with what they hold."""
        if not self.rack.fabric.adopt:
            return {}
        content, renderers = self._contents_of_others, foreign_netplan.renderers(self.reading.text(RENDERERS))
        return {
            path: content[path]
            for path in self._names_in_files_of_others
            if foreign_netplan.adoption_blocker(path, content.get(path), renderers) is None and path in content
        }

    @cached_property
    def _contents_of_others(self) -> dict[str, bytes]:
        return foreign_netplan.contents(self.reading.text(CONTENT))

    @cached_property
    def _files_that_must_go(self) -> list[str]:
        """Files of others that stay and must not."""
        lines, content = [], self._contents_of_others
        renderers = foreign_netplan.renderers(self.reading.text(RENDERERS))
        for path, names in self._names_in_files_of_others.items():
            hindrance = foreign_netplan.adoption_blocker(path, content.get(path), renderers)
            if path in self.adopted:
                continue
            how = "; or set fabric.adopt: true in rack.yaml, which takes the file over" if hindrance is None else ""
            if self.rack.fabric.adopt and hindrance:
                how = f"; it cannot be taken over, {hindrance}"
            edit = f"remove it there (sudoedit {path}){how}"
            lines += [f"{path} defines {name}, which this rack manages; {edit}" for name in names]
        names = list(desired.wanted(self.rack, self.node))
        ours = self.before is not None
        return [
            *lines,
            *interface_owners.in_the_way(self._interface_owners, names, self._names_in_files_of_others, ours),
        ]

    @cached_property
    def _said_by_others(self) -> bool:
        """Whether other files, which may be taken over, already have the effect of ours: ours is not needed then."""
        if self.before is not None or not self.adopted or self.adopted.keys() != self._names_in_files_of_others.keys():
            return False
        return foreign_netplan.is_equivalent(self.adopted.values(), desired.wanted(self.rack, self.node))

    @property
    def private(self) -> bool:
        """Whether our file, if desired, is accessible only to root."""
        return (
            self.wanted is None
            or managed_file.permissions(self.reading.text(MODE)).get(desired.KEPT) == "600 root:root"
        )

    @property
    def right(self) -> bool:
        """Whether there is nothing to do."""
        said_by_us = self.before == self.wanted and self.private and not self.adopted
        on_trial = self.reading.content(desired.TRIED) is not None
        return (said_by_us or self._said_by_others) and not self.faults and not on_trial

    @cached_property
    def unit_blockers(self) -> list[str]:
        """Why the network must not be changed now: while netplan is applied, no rank reaches another."""
        units = running_units.parse_running_units(self.reading.text(running_units.FACT))
        return running_units.link_unit_blockers(self.rack, units, "links of the fabric would be changed")

    @property
    def obstacles(self) -> list[str]:
        """Why the role may not change this node."""
        missing = desired.missing(self.rack, self.node, self.now)
        occupied = desired.occupied(self.rack, self.node, self.now)
        return [
            *([TRIAL.busy] if self.reading.content(TRIAL.script) is not None else []),
            *(f"{name}: is not there; is its cable in, and its driver loaded?" for name in missing),
            *(f"{name}: is there and is no VLAN of the fabric; rename or remove it" for name in occupied),
            *self._files_that_must_go,
        ]
