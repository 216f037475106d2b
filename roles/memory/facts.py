"""Probe of the memory role, and the facts of the groups and files that it manages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from core.model import Rack
from core.ops import host_facts, systemd_probes
from core.ops.managed_service import ManagedService, ServiceState
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file
from core.util.managed_file import FileState, ManagedFile
from roles.memory import cgroups, container_slice, daemon_protection, desired, memory_gate, memory_guard

UNITS = "swap-units"
OTHERS = "sysctl-settings"
ZRAM = "zram-devices"
LIVE = "memory-live"
FILES = "memory-files"
PATHS = (
    container_slice.PATH,
    memory_guard.SCRIPT,
    memory_guard.UNIT,
    memory_gate.SCRIPT,
    *daemon_protection.PATHS,
)
"""Paths of all files that are wholly ours."""

host_facts.register(
    "memory",
    host_facts.Probe(
        files=(
            "/proc/swaps",
            "/proc/meminfo",
            desired.CRASH_SIZE,
            desired.FSTAB,
            desired.DROPIN,
            desired.live_path("vm.min_free_kbytes"),
            desired.live_path("vm.overcommit_memory"),
        ),
        commands={
            UNITS: systemd_probes.list_unit_files(
                ("*.swap", desired.SWAP_TARGET, "*zram*.service"),
                ("/etc/systemd/system", "/run/systemd/generator", "/run/systemd/system", "/usr/lib/systemd/system"),
            ),
            OTHERS: systemd_probes.dropin_settings(systemd_probes.SYSCTL, "vm[./](min_free_kbytes|overcommit_memory)"),
            ZRAM: 'for d in /sys/block/zram*; do [ ! -e "$d" ] || '
            '{ size=$(cat "$d/disksize") && echo "${d##*/} $size"; } || exit 9; done',
            LIVE: cgroups.question(),
            FILES: managed_file.probe_hashes(PATHS),
        },
    ),
)


@dataclass(frozen=True)
class MemoryFacts:
    """Facts of our groups and files. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading
    rack: Rack

    @cached_property
    def live(self) -> cgroups.MemoryCgroups:
        """The groups. Raises ValueError on a node without the unified hierarchy, where none of this holds."""
        found = cgroups.live(self.reading.text(LIVE))
        if not found.unified:
            raise ValueError(f"{cgroups.CGROUPS}: this node has no unified control groups (cgroup v2)")
        return found

    @cached_property
    def reported(self) -> dict[str, FileState]:
        """State of our existing files."""
        return managed_file.parse_hashes(FILES, self.reading.text(FILES))

    @cached_property
    def total_kb(self) -> int:
        """Memory that programs can have, also after the next boot (KiB): MemTotal, less what a declared crash kernel
        takes then.
        """
        text = self.reading.content(desired.CRASH_SIZE)
        more = desired.reserved_kb(self.rack) - desired.crash_kb(text)
        return desired.total_kb(self.reading.text("/proc/meminfo")) - max(0, more)

    @cached_property
    def available_kb(self) -> int:
        """MemAvailable (KiB)."""
        return desired.available_kb(self.reading.text("/proc/meminfo"))

    def stale(self, files: list[ManagedFile]) -> list[ManagedFile]:
        """Return those of our files that differ from the desired state."""
        return managed_file.differing(files, self.reported)

    def _systemd_unit(self, name: str) -> SystemdUnit:
        group = self.live.group(name)
        if name != cgroups.GUARD:
            return group.unit(runs=group.there, reload=False)
        # systemd is not asked: what runs shows that it has read the unit.
        return group.unit(runs=bool(group.runs), reload=group.runs != memory_guard.command_line(self.rack))

    def state(self, service: ManagedService, files: list[ManagedFile]) -> ServiceState:
        """Return a service as the node has it; `files`: its desired files."""
        stale = self.stale(files)
        return ServiceState(
            units={unit: self._systemd_unit(unit) for unit in service.units},
            files=tuple(zip(stale, managed_file.changes(stale, self.reported), strict=True)),
            there=any(path in self.reported for path in service.paths),
            pending=service.name in self.live.pending,
            overrides=tuple(path for unit in service.units for path in self.live.group(unit).dropins),
        )
