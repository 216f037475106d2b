"""Desired units and addresses of the watch: which node is the server, the drop-ins, and their live state. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from core.model import Node, Rack
from core.model.fields import mebibytes
from core.probes import dropin_overriders, systemd_units
from core.probes.systemd_units import SystemdUnit
from core.util import resources
from core.util.managed_file import ManagedFile, header
from roles.watch.options import WatchOptions
from roles.watch.options import server as server
from roles.watch.options import server_address as server_address

LOOPBACK = IPv4Address("127.0.0.1")
EXPORTER_PORT, PROMETHEUS_PORT, ALERTMANAGER_PORT = 9100, 9090, 9093

EXPORTER = "prometheus-node-exporter"
PROMETHEUS = "prometheus"
ALERTMANAGER = "prometheus-alertmanager"
PACKAGES = (EXPORTER, PROMETHEUS, ALERTMANAGER)
"""Packages of Debian and Ubuntu; each has a unit of the same name, and its program in /usr/bin."""

_DROPINS = {
    EXPORTER: "templates/prometheus-node-exporter.conf",
    PROMETHEUS: "templates/prometheus.conf",
    ALERTMANAGER: "templates/prometheus-alertmanager.conf",
}
GROUP = "prometheus"
"""The group of the user that all three run as."""
CONFIG = "/etc/prometheus/sparkrack.yml"
RULES = "/etc/prometheus/sparkrack-rules.yml"
NOTIFICATIONS = "/etc/prometheus/sparkrack-alertmanager.yml"
"""Beside the files of the packages, which stay as they are."""


def unit(package: str) -> str:
    """Return the unit of a package."""
    return f"{package}.service"


def dropin(package: str) -> str:
    """Return the path of the drop-in for its unit. Drop-ins apply in the order of their names: the last one wins."""
    return f"/etc/systemd/system/{package}.service.d/zz-sparkrack.conf"


@dataclass(frozen=True)
class LiveState:
    """The units of the packages by name, the services with files that no program has read, the packages that are
    installed as a whole, and whether there is a python3.
    """

    units: Mapping[str, SystemdUnit]
    pending: tuple[str, ...]
    installed: tuple[str, ...]
    python: bool


_TAIL = re.compile(r"\nmarks:(?P<marks>[^\n]*)\ninstalled:(?P<installed>[^\n]*)\npython: (?P<python>yes|no)\n\Z")


def parse_live(answer: str) -> LiveState:
    """Parse what files/live-units.sh prints. Raises ValueError when a package has no answer or an unexpected one."""
    tail = _TAIL.search(answer)
    marks, installed = (tail["marks"].split(), tail["installed"].split()) if tail else ([], [])
    wrong = [name for name in marks if not name.startswith("watch-")] + [*{*installed} - {*PACKAGES}]
    if not tail or wrong:
        raise ValueError(f"watch units: unexpected probe output {answer[-80:]!r}")
    units = systemd_units.parse_units("watch units", answer[: tail.start()], map(unit, PACKAGES))
    return LiveState(units, tuple(marks), tuple(installed), python=tail["python"] == "yes")


_KEYS = ("ExecStart", "MemoryMax", "Restart", "RestartSec", "IPAddressAllow", "IPAddressDeny")
"""Settings of the drop-ins that a drop-in of others must not change."""


def overridden(listing: str, package: str) -> list[str]:
    """Return which drop-ins of others are read after ours and change what it sets, in one line each.

    `listing`: lines `path:line` of the drop-ins of all units of the role. Raises ValueError for any other line.
    """
    ours = dict.fromkeys(_KEYS, "\0")  # that no file can set: a drop-in of others may not even repeat it
    return dropin_overriders.overriders(of_unit(listing, unit(package)), ours, dropin(package))


def of_unit(listing: str, name: str) -> str:
    """Return the lines about the drop-ins of a unit; those that are no such line at all stay, too."""
    lines = listing.splitlines()
    return "\n".join(line for line in lines if f"/{name}.d/" in line.partition(":")[0] or not line.startswith("/"))


def listen_address(rack: Rack) -> IPv4Address:
    """Return the address of Prometheus and Alertmanager: loopback of a node, which those reach who may log in there.

    Both believe everybody who reaches their port, and a silence of Alertmanager ends all notifications.
    """
    return LOOPBACK if server(rack) else server_address(rack)


# claim: serving.closed
def exporter_dropin(rack: Rack, node: Node) -> ManagedFile:
    """Return the drop-in of the exporter, which answers the nodes of the rack, the server and `allow`."""
    nodes = (one.address for one in rack.nodes.values())
    readers = dict.fromkeys((*nodes, server_address(rack), *(rack.options(WatchOptions).allow or ())))
    return _dropin_file(
        rack, EXPORTER, listen=f"{node.address}:{EXPORTER_PORT}", readers=" ".join(["localhost", *map(str, readers)])
    )


def prometheus_dropin(rack: Rack) -> ManagedFile:
    """Return the drop-in of Prometheus."""
    keep = rack.options(WatchOptions).keep
    return _dropin_file(
        rack,
        PROMETHEUS,
        config=CONFIG,
        days=keep.days,
        megabytes=mebibytes(keep.size),
        listen=f"{listen_address(rack)}:{PROMETHEUS_PORT}",
    )


def alertmanager_dropin(rack: Rack) -> ManagedFile:
    """Return the drop-in of Alertmanager."""
    listen = f"{listen_address(rack)}:{ALERTMANAGER_PORT}"
    return _dropin_file(rack, ALERTMANAGER, config=NOTIFICATIONS, listen=listen)


# claim: watch.packages
def _dropin_file(rack: Rack, package: str, **values: object) -> ManagedFile:
    text = resources.file_text("roles.watch", _DROPINS[package], header=header(rack.rack), **values)
    return ManagedFile(dropin(package), text.encode())
