"""Facts of a node about its exporter, Prometheus and Alertmanager, and their comparison with the rack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.model import Node, Rack
from core.ops import host_facts, systemd_probes
from core.probes import systemd_units
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file, resources
from core.util.managed_file import FileState, ManagedFile
from roles.watch import desired, node_metrics, switch_reader

UNITS = "watch-units"
MODES = "watch-modes"
NOTIFICATIONS = "watch-notifications"
SWITCH_READER = "watch-switch-reader"
PASSWORDS = "watch-switch-passwords"
METRICS_FILES = "watch-metrics-files"
METRICS_STATE = "watch-metrics-state"
OVERRIDES = "watch-overrides"

PATHS = (*map(desired.dropin, desired.PACKAGES), desired.RULES, desired.CONFIG, *switch_reader.FILES)
"""Paths of the files that are wholly ours and hold no secret."""

OWN_UNITS = (node_metrics.SERVICE, node_metrics.TIMER, switch_reader.SERVICE, switch_reader.TIMER)
"""Units that are wholly ours: the role has no drop-in for them."""
UNIT_NAMES = (*map(desired.unit, desired.PACKAGES), *OWN_UNITS)

host_facts.register(
    "watch",
    host_facts.Probe(
        files=PATHS,
        commands={
            UNITS: resources.shell_text("roles.watch", "files/live-units.sh"),
            MODES: managed_file.probe_permissions(PATHS),
            NOTIFICATIONS: managed_file.probe_hashes((desired.NOTIFICATIONS,)),
            SWITCH_READER: systemd_units.show_units((switch_reader.TIMER, switch_reader.SERVICE)),
            PASSWORDS: managed_file.probe_hashes((switch_reader.PASSWORDS,)),
            METRICS_FILES: managed_file.probe_hashes(node_metrics.PATHS),
            METRICS_STATE: resources.shell_text("roles.watch", "files/node-metrics-state.sh"),
            OVERRIDES: "\n".join(
                systemd_probes.dropin_settings(
                    tuple(f"{folder}/{name}.d" for folder in systemd_probes.FOLDERS), "^[[:space:]]*[A-Za-z]+="
                )
                for name in UNIT_NAMES
            ),
        },
    ),
)


@dataclass(frozen=True)
class WatchFacts:
    """Facts of a node that declares `watch`. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading
    rack: Rack
    node: Node

    @cached_property
    def packages(self) -> Mapping[str, desired.PackageState]:
        """The packages and their units, by the name of the package."""
        return desired.parse_packages(self.reading.text(UNITS))

    @cached_property
    def serves(self) -> bool:
        """Whether this node is the server."""
        return desired.server(self.rack) == self.node

    @cached_property
    def notifications(self) -> FileState | None:
        """The configuration of Alertmanager, of which only the hash is read; None for missing."""
        answer = self.reading.text(NOTIFICATIONS)
        return managed_file.parse_hashes(NOTIFICATIONS, answer).get(desired.NOTIFICATIONS)

    @cached_property
    def reader_units(self) -> Mapping[str, SystemdUnit]:
        """The timer that reads the switches, and its service."""
        units = (switch_reader.TIMER, switch_reader.SERVICE)
        return systemd_units.parse_units("switch reader", self.reading.text(SWITCH_READER), units)

    @cached_property
    def passwords(self) -> FileState | None:
        """The file of the readers' passwords, of which only the hash is read; None for missing."""
        answer = self.reading.text(PASSWORDS)
        return managed_file.parse_hashes(PASSWORDS, answer).get(switch_reader.PASSWORDS)

    @cached_property
    def metrics_files(self) -> Mapping[str, FileState]:
        """The program of the node's metrics and its units by path, of which only the hashes are read."""
        return managed_file.parse_hashes(METRICS_FILES, self.reading.text(METRICS_FILES))

    @cached_property
    def metrics_state(self) -> node_metrics.MetricsState:
        """What the node says of the timer of its metrics."""
        return node_metrics.parse_state(self.reading.text(METRICS_STATE))

    def before(self, path: str) -> bytes | None:
        """Return the actual content of a file of ours; None for missing."""
        return self.reading.content(path)

    def stale(self, files: Iterable[ManagedFile]) -> list[ManagedFile]:
        """Return the files that differ in content, owner or mode."""
        files = list(files)
        contents = {file.path: self.before(file.path) for file in files}
        return managed_file.differing(files, managed_file.states(self.reading.text(MODES), contents))

    def there(self, package: str) -> tuple[str, ...]:
        """Return the paths of the files of ours that this node has for a program of the server."""
        files = (desired.dropin(package), *((desired.RULES, desired.CONFIG) if package == desired.PROMETHEUS else ()))
        found = tuple(path for path in files if self.before(path) is not None)
        notifications = package == desired.ALERTMANAGER and self.notifications is not None
        return (*found, *((desired.NOTIFICATIONS,) if notifications else ()))

    @cached_property
    def blockers(self) -> tuple[str, ...]:
        """Why the role may not change this node. Reads everything, so that an unknown fact is reported before a
        change.
        """
        _ = [self.before(path) for path in PATHS]
        _ = (self.reading.text(MODES), self.notifications, self.packages, self.reader_units)
        _ = (self.passwords, self.metrics_files)
        lines = []
        if not self.metrics_state.python:
            lines.append("python3, which exports what the node knows of itself, is not there; `apt install python3`")
        for package in (desired.PROMETHEUS, desired.ALERTMANAGER) if self.serves else ():
            unit = self.packages[package].unit
            if (unit.running or unit.enabled) and not self.there(package):
                name = desired.unit(package)
                lines.append(
                    f"{name} is configured by others; write another node at watch.server in rack.yaml, or give it up: "
                    f"systemctl disable --now {name}"
                )
        return (*lines, *self._overriders())

    def _overriders(self) -> Iterable[str]:
        """Yield the drop-ins of others that change what this role sets in a unit of this node."""
        listing = self.reading.text(OVERRIDES)
        for package in desired.PACKAGES if self.serves else (desired.EXPORTER,):
            yield from desired.overridden(listing, package)
        reads = self.serves and switch_reader.switches(self.rack)
        for name in OWN_UNITS if reads else (node_metrics.SERVICE, node_metrics.TIMER):
            for path in dict.fromkeys(line.partition(":")[0] for line in desired.of_unit(listing, name).splitlines()):
                yield f"{path} changes {name}, which is a unit of this role; remove that file"
