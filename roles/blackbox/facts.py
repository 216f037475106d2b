"""Facts of a node about the evidence that it would leave, and their comparison with the rack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.model import Node, Rack
from core.ops import host_facts, systemd_probes
from core.ops.announce import managed_file_changes
from core.ops.managed_service import ManagedService, ServiceState
from core.probes import dropin_overriders, systemd_units
from core.probes.own_files import OwnFiles
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file, resources
from core.util.event import Event
from core.util.managed_file import FileState, ManagedFile
from roles.blackbox import boot_evidence, clock_cap, desired, kdump, recorder, stream_facts, watchdog
from roles.blackbox.options import BlackboxOptions
from roles.blackbox.stream_facts import StreamFacts

UNITS = "blackbox-units"
MANAGER = "blackbox-manager"
LIVE = "blackbox-live"
KERNEL = "blackbox-kernel"
MODES = "blackbox-modes"
EVIDENCE_FILES = "blackbox-evidence-files"
KDUMP_FILES = "blackbox-kdump-files"
MANAGER_SETTINGS = "blackbox-manager-settings"
SYSCTL_SETTINGS = "blackbox-sysctl-settings"
PSTORE_SETTINGS = "blackbox-pstore-settings"
JOURNAL_SETTINGS = "blackbox-journal-settings"
RECORDER_PROGRAM = "blackbox-recorder-program"
RECORDER_UNITS = "blackbox-recorder-units"
RECORDER_STATE = "blackbox-recorder-state"

PATHS = (
    watchdog.DROPIN,
    watchdog.MODPROBE,
    watchdog.FRAGMENT,
    kdump.FRAGMENT,
    desired.PANIC,
    desired.MODULES,
    desired.MODPROBE,
    desired.PSTORE,
    desired.TMPFILES,
    desired.JOURNAL,
    clock_cap.UNIT,
    *recorder.UNITS.values(),
)
"""Paths of all files that are wholly ours, but for those of which the hash is asked."""
ASKED_UNITS = (desired.PSTORE_UNIT, desired.JOURNAL_UNIT, desired.FLUSH_UNIT, clock_cap.NAME, *boot_evidence.NAMES)


def _setting_pattern(*keys: str) -> str:
    return f"^[[:space:]]*({'|'.join(keys)})[[:space:]]*="


host_facts.register(
    "blackbox",
    host_facts.Probe(
        files=(*PATHS, kdump.SETTINGS, *stream_facts.PATHS),
        commands={
            UNITS: systemd_units.show_units(ASKED_UNITS),
            MANAGER: "systemctl show --property=RuntimeWatchdogUSec,RebootWatchdogUSec",
            LIVE: resources.shell_text("roles.blackbox", "files/live-state.sh"),
            KERNEL: resources.shell_text("roles.blackbox", "files/kernel-state.sh"),
            MODES: managed_file.probe_permissions(PATHS),
            EVIDENCE_FILES: managed_file.probe_hashes(boot_evidence.PATHS),
            KDUMP_FILES: managed_file.probe_hashes(kdump.PATHS),
            MANAGER_SETTINGS: systemd_probes.dropin_settings(
                systemd_probes.MANAGER, _setting_pattern("RuntimeWatchdogSec", "RebootWatchdogSec", "WatchdogDevice")
            ),
            SYSCTL_SETTINGS: systemd_probes.dropin_settings(systemd_probes.SYSCTL, "(kernel|vm)[./][a-z_]*panic"),
            PSTORE_SETTINGS: systemd_probes.dropin_settings(
                stream_facts.dropin_folders("pstore"), _setting_pattern(*desired.PSTORE_SETTINGS)
            ),
            JOURNAL_SETTINGS: systemd_probes.dropin_settings(
                stream_facts.dropin_folders("journald"),
                _setting_pattern("Storage", "SyncIntervalSec", "SystemMaxUse", "SystemKeepFree"),
            ),
            RECORDER_PROGRAM: managed_file.probe_hashes((recorder.PROGRAM,)),
            RECORDER_UNITS: systemd_units.show_units(recorder.NAMES),
            RECORDER_STATE: resources.shell_text("roles.blackbox", "files/recorder-state.sh"),
            **stream_facts.COMMANDS,
        },
    ),
)


@dataclass(frozen=True)
class BlackboxFacts(OwnFiles):
    """Facts of a node that declares `blackbox`. Properties raise UnknownError or ValueError for unknown facts."""

    MODES_FACT = MODES
    reading: host_facts.HostReading
    rack: Rack
    node: Node

    @cached_property
    def options(self) -> BlackboxOptions:
        """The declared section."""
        return self.rack.options(BlackboxOptions)

    @cached_property
    def live(self) -> Mapping[tuple[str, str], str]:
        """The state of the node by subject and name."""
        return desired.parse_live(self.reading.text(LIVE))

    @cached_property
    def units(self) -> Mapping[str, SystemdUnit]:
        """The units by name."""
        return systemd_units.parse_units("blackbox units", self.reading.text(UNITS), ASKED_UNITS)

    @cached_property
    def manager(self) -> watchdog.ManagerWatchdog:
        """The watchdog settings of the running systemd."""
        return watchdog.manager(self.reading.text(MANAGER))

    @cached_property
    def devices(self) -> list[watchdog.WatchdogDevice]:
        """The watchdogs of the node."""
        return watchdog.devices(self.live)

    @cached_property
    def device(self) -> watchdog.WatchdogDevice:
        """The watchdog to feed. Raises ValueError without one, which is a blocker before that."""
        if (found := watchdog.chosen(self.devices)) is None:
            raise ValueError("watchdog: there is none")
        return found

    @cached_property
    def kernel(self) -> Mapping[tuple[str, str], str]:
        """What the kernel can do, was started with, and will be started with, by subject and name."""
        return desired.parse_live(self.reading.text(KERNEL))

    @cached_property
    def first_stage(self) -> watchdog.FirstStage:
        """How a panic becomes the first stage of the watchdog."""
        return watchdog.first_stage(self.device, self.live, self.kernel)

    @cached_property
    def first_stage_files(self) -> list[ManagedFile]:
        """The file that makes a panic the first stage; none where nothing can, or it is not declared."""
        file = watchdog.first_stage_file(self.rack, self.first_stage)
        return [file] if file else []

    @cached_property
    def crash_kernel(self) -> kdump.CrashKernel:
        """What the node has for a crash kernel, and says of it."""
        return kdump.state(self.kernel)

    @cached_property
    def sysctls(self) -> dict[str, int | None]:
        """The kernel's settings as they are; None for one that it lacks."""
        return desired.live_sysctls(self.live, self.rack)

    @cached_property
    def backend(self) -> desired.PstoreBackend:
        """What stores the kernel's last messages."""
        return desired.pstore_backend(self.live)

    @cached_property
    def persistent(self) -> bool:
        """Whether the journal of this machine is on the disk."""
        return desired.yes_or_no(self.live, "journal", "persistent")

    def pending(self, name: str) -> bool:
        """Return whether an earlier run wrote files that no program has read yet."""
        return desired.yes_or_no(self.live, name, "pending")

    @cached_property
    def evidence_files(self) -> dict[str, FileState]:
        """State of the files that collect the evidence of a boot; their content is not read."""
        return managed_file.parse_hashes(EVIDENCE_FILES, self.reading.text(EVIDENCE_FILES))

    @cached_property
    def kdump_files(self) -> dict[str, FileState]:
        """State of the files that keep the log alone; their content is not read."""
        return managed_file.parse_hashes(KDUMP_FILES, self.reading.text(KDUMP_FILES))

    @cached_property
    def evidence_collected(self) -> bool:
        """Whether this boot has its evidence."""
        return desired.yes_or_no(self.live, "boot", "evidence")

    @cached_property
    def cap(self) -> int | None:
        """The declared cap of this node in MHz."""
        return clock_cap.cap(self.rack, self.node)

    @cached_property
    def clock(self) -> int | None:
        """The clock of the GPU in MHz; None where no unit of ours is."""
        return clock_cap.clock(self.live)

    @cached_property
    def recorder_files(self) -> list[ManagedFile]:
        """The desired files of the flight recorder, in the order in which they are written."""
        return recorder.files(self.rack, self.node)

    @cached_property
    def recorder_program(self) -> Mapping[str, managed_file.FileState]:
        """The state of the recorder's program by its path; empty for missing."""
        return managed_file.parse_hashes(RECORDER_PROGRAM, self.reading.text(RECORDER_PROGRAM))

    @cached_property
    def recorder_units(self) -> Mapping[str, SystemdUnit]:
        """The units of the recorder and of the receiver by name."""
        return systemd_units.parse_units("blackbox units", self.reading.text(RECORDER_UNITS), recorder.NAMES)

    @cached_property
    def recorder_state(self) -> recorder.RecorderState:
        """What the node says of its recorder."""
        return recorder.state(desired.parse_live(self.reading.text(RECORDER_STATE)))

    def state(
        self, service: ManagedService, files: Iterable[ManagedFile] = (), hashes: Mapping[str, FileState] | None = None
    ) -> ServiceState:
        """Return a service as the node has it; `files`: its desired files, `hashes`: the state of the actual ones, if
        their contents are not read.
        """
        return ServiceState(
            units=self.units,
            files=self.changes(files) if hashes is None else _list_stale_files(files, hashes),
            there=bool(hashes) or (hashes is None and any(self.before(path) is not None for path in service.paths)),
            pending=bool(service.name) and self.pending(str(service.name).removeprefix("blackbox-")),
        )

    @cached_property
    def recorder_service(self) -> ServiceState:
        """The flight recorder, and the receiver of others' samples, as the node has them."""
        units = [file for file in self.recorder_files if file.path != recorder.PROGRAM]
        program = [file for file in self.recorder_files if file.path == recorder.PROGRAM]
        there = bool(self.recorder_program) or any(self.before(path) is not None for path in recorder.UNITS.values())
        files = (*_list_stale_files(program, self.recorder_program), *self.changes(units))
        return ServiceState(self.recorder_units, files, there=there, pending=self.recorder_state.pending)

    def kdump_service(self, files: Iterable[ManagedFile]) -> ServiceState:
        """Return the crash kernel's service as the node has it; `files`: its desired files."""
        unit = SystemdUnit("loaded", "inactive", self.crash_kernel.unit)
        return ServiceState(
            {kdump.UNIT: unit}, _list_stale_files(files, self.kdump_files), there=bool(self.kdump_files)
        )

    def changes(self, files: Iterable[ManagedFile]) -> tuple[tuple[ManagedFile, Event], ...]:
        """Return those of these files that differ, each with what becomes of it."""
        return managed_file_changes(stale := self.stale(files), {file.path: self.before(file.path) for file in stale})

    @cached_property
    def blockers(self) -> tuple[str, ...]:
        """Why the role may not change this node. Reads everything, so that an unknown fact is reported before a
        change.
        """
        # Each text, also where a part is left alone: half a node that is known is not a reason to change it.
        _ = [self.before(path) for path in PATHS]
        _ = (self.reading.text(MODES), self.units, self.manager, self.sysctls, self.persistent)
        listings = {
            key: self.reading.text(key)
            for key in (MANAGER_SETTINGS, SYSCTL_SETTINGS, PSTORE_SETTINGS, JOURNAL_SETTINGS)
        }
        _ = [self.pending(name) for name in ("journal", "clock", "evidence")]
        _ = (self.evidence_files, self.evidence_collected)
        lines: list[str] = []
        if limit := watchdog.limit(self.rack):
            lines += watchdog.blockers(self.devices, self.manager, self.live, limit)
            if not lines:
                written = not self.stale(self.first_stage_files)
                lines += watchdog.first_stage_blockers(self.rack, self.first_stage, written=written)
                wanted = watchdog.settings(self.rack, self.device)
                lines += dropin_overriders.overriders(listings[MANAGER_SETTINGS], wanted, watchdog.DROPIN)
        _ = (self.before(kdump.SETTINGS), self.kdump_files)
        lines += kdump.blockers(kdump.options(self.rack), self.crash_kernel)
        kernel = {key: str(value) for key, value in desired.sysctls(self.rack).items()}
        lines += dropin_overriders.overriders(listings[SYSCTL_SETTINGS], kernel, desired.PANIC)
        if self.options.pstore:
            lines += self.backend.blockers
            if self.units[desired.PSTORE_UNIT].load == "not-found":
                lines.append(
                    f"systemd has no {desired.PSTORE_UNIT}; install it, or set blackbox.pstore: false in rack.yaml"
                )
            lines += dropin_overriders.overriders(listings[PSTORE_SETTINGS], desired.PSTORE_SETTINGS, desired.PSTORE)
        journal = desired.journal_settings(self.rack)
        lines += dropin_overriders.overriders(listings[JOURNAL_SETTINGS], journal, desired.JOURNAL)
        _ = (self.recorder_program, self.recorder_units, self.recorder_state)
        if self.recorder_files and not self.recorder_state.python:
            lines.append(
                "python3, which runs the flight recorder, is not there; `apt install python3`, or set "
                "blackbox.recorder: false in rack.yaml"
            )
        tool, _ = desired.yes_or_no(self.live, "clock", "tool"), self.clock
        if self.cap and not tool:
            lines.append(
                "nvidia-smi, which caps the clock, is not there; install the driver, or remove "
                f"{' and '.join(filter(None, (self.node.name, self.node.vendor)))} from blackbox.clock_cap in rack.yaml"
            )
        return (*lines, *StreamFacts(self.reading, self.rack, self.node).blockers)

    @cached_property
    def watchdog_differences(self) -> list[Event]:
        """What of the running systemd and of the watchdog differs."""
        return watchdog.differences(self.rack, self.device, self.manager)


def _list_stale_files(
    files: Iterable[ManagedFile], actual: Mapping[str, FileState]
) -> tuple[tuple[ManagedFile, Event], ...]:
    stale = managed_file.differing(files, actual)
    return tuple(zip(stale, managed_file.changes(stale, actual), strict=True))
