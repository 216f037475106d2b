"""Desired time synchronization of a node. Pure: from rack.yaml and the facts of a node to files and blockers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.model import Rack
from core.probes.systemd_units import SystemdUnit
from core.util.managed_file import ManagedFile, header
from roles.time.options import MOST_SERVERS, TimeOptions, is_time_server

TIMESYNCD = "systemd-timesyncd.service"
CHRONY = "chrony.service"
MANAGED = (TIMESYNCD, CHRONY)
OTHERS = ("ntp.service", "ntpsec.service", "openntpd.service")
"""Daemons of Ubuntu that also set the clock, which this role does not configure."""

DROPIN = "/etc/systemd/timesyncd.conf.d/zz-sparkrack.conf"
"""Drop-ins apply in the order of their names, regardless of their folder: the last one wins."""
SOURCES = "/etc/chrony/sources.d/sparkrack.sources"
PATHS = (DROPIN, SOURCES)


def is_used(daemon: SystemdUnit) -> bool:
    """Return whether a daemon sets the clock now, or will after a boot."""
    return daemon.running or daemon.enabled


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
        return ManagedFile(DROPIN, _render_configuration(rack, "[Time]", "NTP=", *settings))
    # `prefer`: servers in chrony.conf itself stay, and are used only while none of these can be.
    return ManagedFile(
        SOURCES, _render_configuration(rack, *(f"server {server} iburst prefer" for server in servers(rack)))
    )


def _render_configuration(rack: Rack, *lines: str) -> bytes:
    return ("\n".join((header(rack.rack), *lines)) + "\n").encode()


def daemon_to_set(daemons: Mapping[str, SystemdUnit]) -> str | None:
    """Return the daemon that is configured: the one that is used, else one that can be started; None without any."""
    present = [unit for unit in MANAGED if daemons[unit].installed]
    present.sort(key=lambda unit: (not is_used(daemons[unit]), daemons[unit].masked))
    return present[0] if present else None


def daemon_blockers(daemons: Mapping[str, SystemdUnit]) -> list[str]:
    """Return why no daemon of this node can be configured."""
    lines = []
    for unit, daemon in daemons.items():
        if unit not in MANAGED and is_used(daemon):
            name = unit.removesuffix(".service")
            lines.append(
                f"{unit} {'runs' if daemon.running else 'is enabled'}, and sparkrack sets systemd-timesyncd or "
                f"chrony only; `apt remove {name}`, or add time to `leave` in rack.yaml"
            )
    used = [unit for unit in MANAGED if is_used(daemons[unit])]
    if len(used) > 1:
        lines.append(
            f"{' and '.join(used)} are both running or enabled, and two daemons cannot set one clock; "
            "`systemctl disable --now` the one that is not wanted"
        )
    chosen = daemon_to_set(daemons)
    if chosen is None and not lines:
        lines.append("no daemon synchronizes the clock; `apt install systemd-timesyncd`")
    elif chosen and daemons[chosen].masked:
        runtime = "--runtime " if daemons[chosen].file == "masked-runtime" else ""
        lines.append(f"{chosen} is masked; `systemctl unmask {runtime}{chosen}`")
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


def servers_in_use(answer: str) -> tuple[str, ...]:
    """Return the servers that a node has, as `time.ntp` takes them; none where no daemon runs.

    Of systemd-timesyncd: its own, else those of its network's DHCP, else its fallback. Of chrony: its servers and
    pools, no clocks and no peers.

    Args:
        answer: what files/live-servers.sh prints.

    Raises:
        ValueError: a daemon runs and does not report its servers.
    """
    lists: list[list[str]] = []
    if re.search(rf"^{re.escape(TIMESYNCD)} \d+$", answer, re.MULTILINE):
        named = timesyncd_lists(live_answer(answer, TIMESYNCD))
        lists = [named.get(f"{kind}NTPServers", []) for kind in ("System", "Link", "Fallback")]
    elif re.search(rf"^{re.escape(CHRONY)} \d+$", answer, re.MULTILINE):
        lines = live_answer(answer, CHRONY)
        chrony_sources(lines)
        lists = [[line.split(",")[2] for line in lines if line.startswith("^")]]
    fit = (tuple(dict.fromkeys(filter(is_time_server, servers)))[:MOST_SERVERS] for servers in lists)
    return next(filter(None, fit), ())


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
    """Return the time zone that /etc/localtime links to; None where it is not a link to a zone.

    `localtime`: the target of the link, `file` for a file and `absent` for neither, which means UTC. Raises ValueError
    for any other answer.
    """
    target = localtime.strip()
    if target == "absent":
        return "UTC"
    if target != "file" and not target.startswith(("/", "..")):
        raise ValueError(f"/etc/localtime: unexpected probe output {target[:80]!r}")
    return target.partition("/zoneinfo/")[2] or None
