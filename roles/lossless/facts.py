"""Facts of a node about flow control on its interfaces, and their comparison with the rack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from core.hardware import gb10
from core.model import Node, Rack
from core.ops import host_facts
from core.ops.announce import managed_file_changes
from core.ops.managed_service import ServiceState
from core.probes import systemd_units
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file, resources
from core.util.event import Event
from core.util.managed_file import ManagedFile
from roles.lossless import boot_unit, desired
from roles.lossless.services import LOSSLESS
from serving import running_engines as running_units

OURS = "lossless-units"
STATES = "lossless-unit-states"
MODES = "lossless-modes"
LIVE = "lossless-settings"

_SETTINGS = resources.shell_text(
    "roles.lossless",
    "templates/live-settings.sh",
    files=f"{desired.NOTICE} {desired.REACT} {desired.CNP}",
    interfaces=gb10.SYSFS_INTERFACES,
)
"""Every answer has its exit status: a missing tool matters only where there is a policy."""

host_facts.register(
    "lossless",
    host_facts.Probe(
        files=(desired.SCRIPT, desired.UNIT),
        commands={
            OURS: f"for l in /etc/systemd/system/*.device.wants/{boot_unit.instance('*')}; do "
            '[ ! -L "$l" ] || echo "${l##*/}"; done',
            STATES: systemd_units.show_units(LOSSLESS.units),
            MODES: managed_file.probe_permissions((desired.SCRIPT, desired.UNIT)),
            LIVE: _SETTINGS,
            running_units.FACT: running_units.PROBE,
        },
    ),
)


@dataclass(frozen=True)
class LosslessFacts:
    """Flow control facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading
    rack: Rack
    node: Node

    @cached_property
    def policies(self) -> Mapping[str, desired.Policy]:
        """Interfaces with a desired policy."""
        return desired.policies(self.rack, self.node)

    @cached_property
    def ours(self) -> list[str]:
        """The interfaces that have a unit of ours."""
        return re.findall(r"@(\w+)\.service$", self.reading.text(OURS), re.MULTILINE)

    @cached_property
    def gone(self) -> list[str]:
        """Interfaces whose unit must be removed."""
        return [name for name in self.ours if name not in self.policies]

    @cached_property
    def units(self) -> Mapping[str, SystemdUnit]:
        """The units of all interfaces that such a node can have."""
        return systemd_units.parse_units("units of lossless", self.reading.text(STATES), LOSSLESS.units)

    @cached_property
    def state(self) -> ServiceState:
        """The files and the units as the node has them."""
        lost = {boot_unit.instance(name): SystemdUnit("not-found", "inactive", "") for name in self.gone}
        there = bool(self.gone) or any(content is not None for content in self.before.values())
        return ServiceState({**lost, **self.units}, managed_file_changes(self.stale, self.before), there=there)

    @cached_property
    def now(self) -> Mapping[str, desired.Live | None]:
        """The relevant interfaces, live."""
        listing = self.reading.text(LIVE)
        return {name: desired.live(listing, name) for name in (*self.policies, *self.gone)}

    @cached_property
    def before(self) -> Mapping[str, bytes | None]:
        """Actual content of each file of ours; None for missing."""
        return {path: self.reading.content(path) for path in (desired.SCRIPT, desired.UNIT)}

    @cached_property
    def stale(self) -> list[ManagedFile]:
        """The files that differ in content, owner or mode."""
        wanted = boot_unit.files(self.rack.rack, self.policies) if self.policies else []
        return managed_file.differing(wanted, managed_file.states(self.reading.text(MODES), self.before))

    @cached_property
    def wrong(self) -> Mapping[str, list[Event]]:
        """Live differences, for each interface with any."""
        found = {}
        for name, now in self.now.items():
            if now and (changes := desired.problems(name, self.policies.get(name), now)):
                found[name] = changes
        return found

    @cached_property
    def unit_blockers(self) -> list[str]:
        """Why what is live must not be changed now: the driver takes a link down for some of these settings."""
        units = running_units.parse_running_units(self.reading.text(running_units.FACT))
        if not self.wrong:
            return []
        return running_units.link_unit_blockers(self.rack, units, "flow control of the fabric would be changed")

    @property
    def obstacles(self) -> list[str]:
        """Why the role may not change this node. Reads everything, so that an unknown fact is reported before any
        change.
        """
        _ = self.state
        lines = list(self.unit_blockers)
        for name, policy in self.policies.items():
            now = self.now[name]
            if now is None:
                lines.append(f"{name}: is not there; is its cable in, and its driver loaded?")
            else:
                lines += desired.blockers(name, policy, now)
        return lines
