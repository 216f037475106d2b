"""Facts of a node about its exporter, Prometheus and Alertmanager, and their comparison with the rack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.model import Node, Rack
from core.ops import host_facts, systemd_probes
from core.ops.announce import managed_file_changes
from core.ops.managed_service import ManagedService, ServiceState
from core.probes import systemd_units
from core.probes.own_files import OwnFiles
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file, resources
from core.util.managed_file import FileState, ManagedFile
from roles.watch import desired, node_metrics, services, switch_reader

UNITS = "watch-units"
OWN = "watch-own-units"
MODES = "watch-modes"
NOTIFICATIONS = "watch-notifications"
PASSWORDS = "watch-switch-passwords"
METRICS_FILES = "watch-metrics-files"
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
            OWN: systemd_units.show_units(OWN_UNITS),
            MODES: managed_file.probe_permissions(PATHS),
            NOTIFICATIONS: managed_file.probe_hashes((desired.NOTIFICATIONS,)),
            PASSWORDS: managed_file.probe_hashes((switch_reader.PASSWORDS,)),
            METRICS_FILES: managed_file.probe_hashes(node_metrics.PATHS),
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
class WatchFacts(OwnFiles):
    """Facts of a node that declares `watch`. Properties raise UnknownError or ValueError for unknown facts."""

    MODES_FACT = MODES
    reading: host_facts.HostReading
    rack: Rack
    node: Node

    @cached_property
    def live(self) -> desired.LiveState:
        """The packages and their units, and the marks of all services."""
        return desired.parse_live(self.reading.text(UNITS))

    @cached_property
    def units(self) -> Mapping[str, SystemdUnit]:
        """All units of the role by name."""
        return {**self.live.units, **systemd_units.parse_units("watch units", self.reading.text(OWN), OWN_UNITS)}

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
    def passwords(self) -> FileState | None:
        """The file of the readers' passwords, of which only the hash is read; None for missing."""
        answer = self.reading.text(PASSWORDS)
        return managed_file.parse_hashes(PASSWORDS, answer).get(switch_reader.PASSWORDS)

    @cached_property
    def metrics_files(self) -> Mapping[str, FileState]:
        """The program of the node's metrics and its units by path, of which only the hashes are read."""
        return managed_file.parse_hashes(METRICS_FILES, self.reading.text(METRICS_FILES))

    def state(self, service: ManagedService, files: Iterable[ManagedFile] = ()) -> ServiceState:
        """Return a service as the node has it; `files`: its desired files, but for those with secrets."""
        files = list(files)
        if service is services.NODE_METRICS:
            stale = managed_file.differing(files, self.metrics_files)
            changes = tuple(zip(stale, managed_file.changes(stale, self.metrics_files), strict=True))
        else:
            stale = self.stale(files)
            changes = managed_file_changes(stale, {file.path: self.before(file.path) for file in stale})
        return ServiceState(
            self.units, changes, there=self._has_files(service), pending=service.name in self.live.pending
        )

    def _has_files(self, service: ManagedService) -> bool:
        hashes = {desired.NOTIFICATIONS: self.notifications, switch_reader.PASSWORDS: self.passwords}
        known = {**dict.fromkeys(node_metrics.PATHS), **hashes, **self.metrics_files}
        return any((known[path] if path in known else self.before(path)) is not None for path in service.paths)

    @cached_property
    def blockers(self) -> tuple[str, ...]:
        """Why the role may not change this node. Reads everything, so that an unknown fact is reported before a
        change.
        """
        _ = [self.before(path) for path in PATHS]
        _ = (self.reading.text(MODES), self.notifications, self.units, self.passwords, self.metrics_files)
        lines = []
        if not self.live.python:
            lines.append("python3, which exports what the node knows of itself, is not there; `apt install python3`")
        for service in (services.PROMETHEUS, services.ALERTMANAGER) if self.serves else ():
            (name,) = service.units
            if (self.units[name].running or self.units[name].enabled) and not self._has_files(service):
                lines.append(
                    f"{name} is configured by others; write another node at watch.server in rack.yaml, or give it up: "
                    f"systemctl disable --now {name}"
                )
        return (*lines, *self._list_overriders())

    def _list_overriders(self) -> Iterable[str]:
        """Yield the drop-ins of others that change what this role sets in a unit of this node."""
        listing = self.reading.text(OVERRIDES)
        for package in desired.PACKAGES if self.serves else (desired.EXPORTER,):
            yield from desired.overridden(listing, package)
        reads = self.serves and switch_reader.switches(self.rack)
        for name in OWN_UNITS if reads else (node_metrics.SERVICE, node_metrics.TIMER):
            for path in dict.fromkeys(line.partition(":")[0] for line in desired.of_unit(listing, name).splitlines()):
                yield f"{path} changes {name}, which is a unit of this role; remove that file"


@dataclass(frozen=True)
class FactsAndSecret:
    """Facts of a node, and the content of a file with secrets that it is to have; None where it has none."""

    facts: WatchFacts
    wanted: bytes | None
