"""Desired time synchronization of a node. Pure: from rack.yaml and the facts of a node to files and blockers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from core.model import Rack
from core.util.managed_file import ManagedFile, header
from roles.time.options import TimeOptions

TIMESYNCD = "systemd-timesyncd.service"
CHRONY = "chrony.service"
MANAGED = (TIMESYNCD, CHRONY)
OTHERS = ("ntp.service", "ntpsec.service", "openntpd.service")
"""Daemons of Ubuntu that also set the clock, which this role does not configure."""

DROPIN = "/etc/systemd/timesyncd.conf.d/zz-sparkrack.conf"
"""Drop-ins apply in the order of their names, regardless of their folder: the last one wins."""
SOURCES = "/etc/chrony/sources.d/sparkrack.sources"
PATHS = (DROPIN, SOURCES)

_RUNNING = ("active", "activating", "reloading", "refreshing")
_STATES = (*_RUNNING, "inactive", "failed", "deactivating", "maintenance")


@dataclass(frozen=True)
class TimeDaemon:
    """One daemon as systemd has it: its unit, LoadState, ActiveState and UnitFileState."""

    unit: str
    load: str
    active: str
    file: str

    @property
    def installed(self) -> bool:
        """Whether the node has its unit, masked ones included."""
        return self.load != "not-found"

    @property
    def masked(self) -> bool:
        """Whether it cannot be started."""
        return self.load == "masked" or self.file.startswith("masked")

    @property
    def runs(self) -> bool:
        """Whether it runs now."""
        return self.active in _RUNNING

    @property
    def enabled(self) -> bool:
        """Whether it starts at every boot."""
        return self.file == "enabled"

    @property
    def used(self) -> bool:
        """Whether it sets the clock now, or will after a boot."""
        return self.runs or self.enabled


def servers(rack: Rack) -> tuple[str, ...]:
    """Return the declared servers as a daemon takes them."""
    return tuple(map(str, rack.options(TimeOptions).ntp))


def timesyncd_settings(rack: Rack) -> dict[str, str]:
    """Return the settings of systemd-timesyncd by key. No fallback: its own list has servers of the distribution."""
    return {"NTP": " ".join(servers(rack)), "FallbackNTP": ""}


def file_for(rack: Rack, unit: str) -> ManagedFile:
    """Return the file of ours that a daemon reads."""
    if unit == TIMESYNCD:
        settings = [f"{key}={value}" for key, value in timesyncd_settings(rack).items()]
        # An empty NTP= drops the servers of timesyncd.conf and of earlier drop-ins; a second line would add to them.
        return ManagedFile(DROPIN, _text(rack, "[Time]", "NTP=", *settings))
    # `prefer`: servers in chrony.conf itself stay, and are used only while none of these can be.
    return ManagedFile(SOURCES, _text(rack, *(f"server {server} iburst prefer" for server in servers(rack))))


def _text(rack: Rack, *lines: str) -> bytes:
    return ("\n".join((header(rack.rack), *lines)) + "\n").encode()


def parse_daemons(answer: str) -> dict[str, TimeDaemon]:
    """Parse what `systemctl show` prints of all daemons: each by its unit.

    Raises ValueError when one has no answer or an unexpected one.
    """
    found = {}
    for block in filter(None, answer.split("\n\n")):
        values = dict(line.partition("=")[::2] for line in block.strip().splitlines())
        unit, load, active = (values.get(key, "") for key in ("Id", "LoadState", "ActiveState"))
        if not unit.endswith(".service") or not load or active not in _STATES:
            raise ValueError(f"time daemons: unexpected probe output {block[:80]!r}")
        found[unit] = TimeDaemon(unit, load, active, values.get("UnitFileState", ""))
    # A name of another daemon may be an alias: ntpsec answers for ntp.
    if missing := [unit for unit in MANAGED if unit not in found]:
        raise ValueError(f"time daemons: {', '.join(missing)}: no answer")
    return found


def daemon_to_set(daemons: dict[str, TimeDaemon]) -> TimeDaemon | None:
    """Return the daemon that is configured: the one that is used, else one that can be started; None without any."""
    present = [daemons[unit] for unit in MANAGED if daemons[unit].installed]
    present.sort(key=lambda daemon: (not daemon.used, daemon.masked))
    return present[0] if present else None


def daemon_blockers(daemons: dict[str, TimeDaemon]) -> list[str]:
    """Return why no daemon of this node can be configured."""
    lines = []
    for daemon in daemons.values():
        if daemon.unit not in MANAGED and daemon.used:
            name = daemon.unit.removesuffix(".service")
            lines.append(
                f"{daemon.unit} {'runs' if daemon.runs else 'is enabled'}, and sparkrack sets systemd-timesyncd or "
                f"chrony only; `apt remove {name}`, or add time to `leave` in rack.yaml"
            )
    used = [daemons[unit].unit for unit in MANAGED if daemons[unit].used]
    if len(used) > 1:
        lines.append(
            f"{' and '.join(used)} are both running or enabled, and two daemons cannot set one clock; "
            "`systemctl disable --now` the one that is not wanted"
        )
    chosen = daemon_to_set(daemons)
    if chosen is None and not lines:
        lines.append("no daemon synchronizes the clock; `apt install systemd-timesyncd`")
    elif chosen and chosen.masked:
        lines.append(f"{chosen.unit} is masked; `systemctl unmask {chosen.unit}`")
    return lines


def live_answer(answer: str, unit: str) -> list[str]:
    """Return the lines that a running daemon answered when it was asked for its servers.

    Raises ValueError when it did not answer.
    """
    match = re.search(rf"^{re.escape(unit)} (\d+)\n((?:(?!\S+\.service \d+$).*\n)*)", answer, re.MULTILINE)
    if not match:
        raise ValueError(f"{unit}: its servers are unknown: no answer")
    if match[1] != "0":
        raise ValueError(f"{unit}: its servers are unknown: {match[2].strip() or f'exit {match[1]}'}")
    return [line for line in match[2].splitlines() if line]


def timesyncd_lists(lines: list[str]) -> dict[str, list[str]]:
    """Parse what `timedatectl show-timesync` prints: servers by the name of their list.

    An empty list may be absent. Raises ValueError for any other line.
    """
    if odd := [line for line in lines if not re.match(r"\w+NTPServers=", line)]:
        raise ValueError(f"{TIMESYNCD}: its servers are unknown: unexpected output {odd[0][:80]!r}")
    return {key: value.split() for key, _, value in (line.partition("=") for line in lines)}


def chrony_sources(lines: list[str]) -> set[str]:
    """Parse what `chronyc -c -N sources` prints: the servers by the names that they are configured with.

    Raises ValueError for any other line.
    """
    if odd := [line for line in lines if line.count(",") < 9 or line[0] not in "^=#"]:
        raise ValueError(f"{CHRONY}: its servers are unknown: unexpected output {odd[0][:80]!r}")
    return {line.split(",")[2] for line in lines}


def reads_sources(listing: str) -> bool:
    """Return whether chrony reads our folder, from the `sourcedir` lines of its configuration.

    Raises ValueError for any other line.
    """
    folder = SOURCES.rpartition("/")[0]
    lines = listing.splitlines()
    if odd := [line for line in lines if line.split()[:1] != ["sourcedir"]]:
        raise ValueError(f"sourcedir of chrony: unexpected probe output {odd[0][:80]!r}")
    return any(folder in (word.rstrip("/") for word in line.split()[1:]) for line in lines)


def zone_of(localtime: str) -> str | None:
    """Return the time zone that /etc/localtime links to; None where it is no link to a zone.

    `localtime`: the target of the link, `file` for a file and `absent` for neither, which means UTC. Raises ValueError
    for any other answer.
    """
    target = localtime.strip()
    if target == "absent":
        return "UTC"
    if target != "file" and not target.startswith(("/", "..")):
        raise ValueError(f"/etc/localtime: unexpected probe output {target[:80]!r}")
    return target.partition("/zoneinfo/")[2] or None
