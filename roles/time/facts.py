"""Facts of a node about its time daemon, its servers and its time zone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from core.model import Rack
from core.ops import host_facts, systemd_probes
from core.ops.announce import managed_file_changes
from core.ops.managed_service import ManagedService, ServiceState
from core.probes import dropin_overriders, systemd_units
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file, resources
from core.util.event import Event, EventKind
from roles.time import desired, services
from roles.time.options import TimeOptions

DAEMONS = "time-daemons"
MODES = "time-modes"
SETTINGS = "time-settings"
SOURCE_FOLDERS = "time-source-folders"
LIVE = "time-live-servers"
ZONE = "time-zone"

_FOLDERS = tuple(f"{folder}/systemd/timesyncd.conf.d" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))

host_facts.register(
    "time",
    host_facts.Probe(
        files=desired.PATHS,
        commands={
            DAEMONS: systemd_units.show_units((*desired.MANAGED, *desired.OTHERS)),
            MODES: managed_file.probe_permissions(desired.PATHS),
            SETTINGS: systemd_probes.dropin_settings(_FOLDERS, "^[[:space:]]*(NTP|FallbackNTP)[[:space:]]*="),
            SOURCE_FOLDERS: "[ ! -d /etc/chrony ] || grep -rhsE '^[[:space:]]*sourcedir[[:space:]]' /etc/chrony || "
            "[ $? -eq 1 ]",
            LIVE: resources.shell_text("roles.time", "files/live-servers.sh"),
            ZONE: "if [ -L /etc/localtime ]; then readlink /etc/localtime; "
            "elif [ -e /etc/localtime ]; then echo file; else echo absent; fi",
        },
    ),
)


@dataclass(frozen=True)
class TimeFacts:
    """Time facts of a node that declares them. Properties raise UnknownError or ValueError for unknown facts."""

    reading: host_facts.HostReading
    rack: Rack

    @cached_property
    def daemons(self) -> dict[str, SystemdUnit]:
        """All daemons that could set the clock."""
        return systemd_units.parse_units("time daemons", self.reading.text(DAEMONS), desired.MANAGED)

    @cached_property
    def unit(self) -> str:
        """The unit of the daemon to configure. Raises ValueError without one, which is a blocker before that."""
        if (found := desired.daemon_to_set(self.daemons)) is None:
            raise ValueError(f"{DAEMONS}: there is none")
        return found

    @property
    def service(self) -> ManagedService:
        """The daemon to configure."""
        return services.CHRONY if self.unit == desired.CHRONY else services.TIMESYNCD

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.daemons[self.unit].settled

    @cached_property
    def state(self) -> ServiceState:
        """It as the node has it; its file may differ in content, owner or mode."""
        file = desired.file_for(self.rack, self.unit)
        before = {file.path: self.reading.content(file.path)}
        files = managed_file.differing([file], managed_file.states(self.reading.text(MODES), before))
        return ServiceState(self.daemons, managed_file_changes(files, before))

    @cached_property
    def _server_lists(self) -> dict[str, list[str]]:
        """The servers of a running systemd-timesyncd, by their list."""
        return desired.timesyncd_lists(desired.live_answer(self.reading.text(LIVE), desired.TIMESYNCD))

    @cached_property
    def live_difference(self) -> str:
        """Why the running daemon does not use the declared servers; empty when it does, and when it does not run."""
        wanted = desired.servers(self.rack)
        if not self.running:
            return ""
        if self.unit == desired.CHRONY:
            sources = desired.chrony_sources(desired.live_answer(self.reading.text(LIVE), desired.CHRONY))
            missing = [server for server in wanted if server not in sources]
            return f"it does not have {', '.join(missing)}" if missing else ""
        own, fallback = (self._server_lists.get(key, []) for key in ("SystemNTPServers", "FallbackNTPServers"))
        if own == list(wanted) and not fallback:
            return ""
        return f"it has {', '.join((*own, *fallback)) or 'no servers'}"

    @cached_property
    def warnings(self) -> tuple[Event, ...]:
        """Servers that DHCP gave to systemd-timesyncd, which uses them before its own."""
        if self.unit != desired.TIMESYNCD or not self.running:
            return ()
        given = [
            name for name in self._server_lists.get("LinkNTPServers", ()) if name not in desired.servers(self.rack)
        ]
        if not given:
            return ()
        why = (
            f"uses {', '.join(given)} from DHCP before the declared servers; add to time.ntp in rack.yaml, or set "
            "`use-ntp: false` in the dhcp4-overrides of that interface's netplan file"
        )
        return (Event(EventKind.BROKEN, subject=self.unit, detail=why),)

    @cached_property
    def zone(self) -> str | None:
        """The actual time zone; None when /etc/localtime names none."""
        return desired.zone_of(self.reading.text(ZONE))

    @cached_property
    def zone_differs(self) -> bool:
        """Whether a time zone is declared, and the node has another one."""
        wanted = self.rack.options(TimeOptions).time_zone
        return wanted is not None and self.zone != wanted

    @cached_property
    def obstacles(self) -> list[str]:
        """Why the role may not change this node. Reads everything, so that an unknown fact is reported
        before a change.
        """
        overriders = dropin_overriders.overriders(
            self.reading.text(SETTINGS), desired.timesyncd_settings(self.rack), desired.DROPIN
        )
        reads_sources = desired.reads_sources(self.reading.text(SOURCE_FOLDERS))
        _ = (self.reading.text(MODES), self.reading.text(LIVE), self.zone)
        if found := desired.daemon_blockers(self.daemons):
            return found
        _ = (self.state, self.live_difference, self.warnings)
        if self.unit == desired.TIMESYNCD:
            return overriders
        if not reads_sources:
            folder = desired.SOURCES.rpartition("/")[0]
            return [
                f"chrony does not read {folder}; add `sourcedir {folder}` to /etc/chrony/chrony.conf and restart chrony"
            ]
        return []
