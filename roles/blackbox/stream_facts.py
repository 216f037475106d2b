"""Facts of a node about the journals that it sends and receives."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from core.model import Node, Rack
from core.ops import systemd_probes
from core.ops.announce import managed_file_changes
from core.ops.managed_service import ManagedService, ServiceState
from core.probes import dropin_overriders, systemd_units
from core.probes.own_files import OwnFiles
from core.probes.protocol import Reading
from core.probes.systemd_units import SystemdUnit
from core.util import managed_file, resources
from core.util.managed_file import ManagedFile
from roles.blackbox import certificate_authority, desired, journal_stream, netconsole, stream_routes

STATE = "blackbox-stream-state"
UNITS = "blackbox-stream-units"
MODES = "blackbox-stream-modes"
SETTINGS = "blackbox-stream-settings"
NETCONSOLE = "blackbox-netconsole-state"
PATHS = (
    *journal_stream.SENDER_PATHS,
    *journal_stream.RECEIVER_PATHS,
    *journal_stream.PUBLIC_PATHS,
    *netconsole.SENDER_PATHS,
    *netconsole.RECEIVER_PATHS,
)
"""Paths of all files that are wholly ours and that are read. The key of the node is not among them."""
ASKED_UNITS = (*journal_stream.UNITS, *netconsole.UNITS)
PENDING = ("upload", "receive", "netconsole", "netconsole_receive")
"""What may have to read files that an earlier run wrote."""
KEY_PERMISSIONS = "600:root:root"


def dropin_folders(name: str) -> tuple[str, ...]:
    """Return the folders of the drop-ins of a configuration file of systemd."""
    return tuple(f"{folder}/systemd/{name}.conf.d" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))


COMMANDS: Mapping[str, str] = {
    STATE: resources.shell_text("roles.blackbox", "files/stream-state.sh"),
    UNITS: systemd_units.show_units(ASKED_UNITS),
    NETCONSOLE: resources.shell_text("roles.blackbox", "files/netconsole-state.sh"),
    MODES: managed_file.probe_permissions(PATHS),
    SETTINGS: systemd_probes.dropin_settings(
        dropin_folders("journal-upload"),
        "^[[:space:]]*(URL|ServerKeyFile|ServerCertificateFile|TrustedCertificateFile)[[:space:]]*=",
    ),
}


@dataclass(frozen=True)
class StreamFacts(OwnFiles):
    """Properties raise UnknownError or ValueError for unknown facts."""

    MODES_FACT = MODES
    reading: Reading
    rack: Rack
    node: Node

    @cached_property
    def live(self) -> Mapping[tuple[str, str], str]:
        """The state of the node by subject and name."""
        return desired.parse_live(self.reading.text(STATE))

    @cached_property
    def units(self) -> Mapping[str, SystemdUnit]:
        """The units by name."""
        return systemd_units.parse_units("blackbox units", self.reading.text(UNITS), ASKED_UNITS)

    @cached_property
    def netconsole(self) -> Mapping[tuple[str, str], str]:
        """The state of netconsole by subject and name."""
        return desired.parse_live(self.reading.text(NETCONSOLE))

    @property
    def installed(self) -> bool:
        """Whether the package with sender and receiver is installed."""
        return desired.yes_or_no(self.live, "upload", "program")

    @property
    def openssl(self) -> bool:
        """Whether the node can make a key."""
        return desired.yes_or_no(self.live, "openssl", "program")

    def pending(self, name: str) -> bool:
        """Return whether an earlier run wrote files that no program has read yet."""
        return desired.yes_or_no(self.live, name, "pending")

    @property
    def key_permissions(self) -> str:
        """Mode, owner and group of the key; empty without one."""
        return self.live.get(("key", "permissions"), "")

    @cached_property
    def public(self) -> bytes:
        """The public key of the node, DER; empty without one that can be used. Raises ValueError for a garbled one."""
        try:
            return base64.b64decode(self.live.get(("key", "public"), ""), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"{STATE}: the public key is garbled") from None

    def state(
        self, service: ManagedService, files: Iterable[ManagedFile] = (), *, renewed: bool = False
    ) -> ServiceState:
        """Return a service as the node has it; `renewed`: it gets another certificate in this run."""
        stale = self.stale(files)
        return ServiceState(
            units=self.units,
            files=managed_file_changes(stale, {file.path: self.before(file.path) for file in stale}),
            there=any(self.before(path) is not None for path in service.paths),
            # While a plan is made nothing is marked yet.
            pending=renewed or self.pending(str(service.name).removeprefix("blackbox-")),
        )

    def certificate_fault(self, authority: bytes | None) -> str:
        """Return why the certificate of the node is replaced; empty for one that stays."""
        return certificate_authority.node_fault(
            self.before(journal_stream.CERTIFICATE),
            authority,
            self.public,
            self.node.name,
            stream_routes.address(self.node),
        )

    @cached_property
    def blockers(self) -> tuple[str, ...]:
        """Why no journal may leave or reach this node. Reads everything: half a node that is known is not a reason to
        change it.
        """
        _ = [self.before(path) for path in PATHS]
        _ = (self.reading.text(MODES), self.units, self.installed, self.public)
        _ = [self.pending(name) for name in PENDING]
        to = journal_stream.receiver(self.rack, self.node)
        wanted = journal_stream.upload_settings(self.rack, to) if to else {}
        listing, openssl = self.reading.text(SETTINGS), self.openssl
        lines = dropin_overriders.overriders(listing, wanted, journal_stream.UPLOAD_SETTINGS)
        receives = bool(journal_stream.senders(self.rack, self.node))
        if receives and self.units[journal_stream.PACKAGE_SOCKET].active == "active":
            socket = journal_stream.PACKAGE_SOCKET
            lines.append(f"{socket} listens at all addresses; run `systemctl disable --now {socket}` on the node")
        if (to or receives) and journal_stream.encrypted(self.rack) and not openssl:
            lines.append(
                "openssl, which makes the key of the node, is not there; `apt install openssl`, or set "
                "blackbox.remote: false in rack.yaml"
            )
        there = netconsole.present(self.netconsole)
        if sends_to := netconsole.receiver(self.rack, self.node):
            lines += netconsole.blockers(self.netconsole, self.node)
            _ = there and netconsole.armed(self.netconsole, self.node, sends_to)
        return tuple(lines)
