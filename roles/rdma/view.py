"""What a node says of what RDMA needs, and whether that is what the rack wants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from roles.rdma import environment, state
from roles.rdma.files import File
from sparkrack.fleet import VLAN_DEVICES, Half, Node, Rack, dropins
from sparkrack.ops import dropins as lines
from sparkrack.ops import probe

OURS = (environment.ENV, environment.PROFILE, environment.GID_INDEX, state.LIMITS, state.MANAGER, state.ARP_DROPIN)
MODES = "rdma-modes"
ADDRESSES = "rdma-addresses"
DEVICES = "rdma-devices"
LIMITS = "memlock-limits"
MANAGER = "memlock-settings"
DEFAULT = "memlock-default"
ARP = "arp-settings"
ARP_LIVE = "arp-live"
_HALVES = " ".join(Half("", port, index).interface for port in (0, 1) for index in (0, 1))

probe.register(
    "rdma",
    probe.Probe(
        files=(state.NCCL_CONF, *OURS),
        commands={
            MODES: f'set --; for f in {" ".join(OURS)}; do [ ! -e "$f" ] || set -- "$@" "$f"; done; '
            '[ $# -eq 0 ] || stat -c %n:%a:%U:%G "$@"',
            ADDRESSES: "ip -o -4 address",
            DEVICES: f'for i in {_HALVES}; do for d in /sys/class/net/"$i"/device/infiniband/*; do '
            '[ ! -e "$d" ] || echo "$d"; done; done',
            LIMITS: "set -- /etc/security/limits.d/*.conf; "
            '[ ! -e "$1" ] || grep -HE "memlock" "$@" || [ $? -eq 1 ] || exit 9',
            MANAGER: lines.settings(lines.MANAGER, state.MEMLOCK),
            # No file tells what the running systemd has read.
            DEFAULT: f"systemctl show --property={state.MEMLOCK} --value",
            ARP: lines.settings(lines.SYSCTL, "net[./]ipv4[./]conf[./].*arp_(ignore|announce)"),
            # `read` of a shell would take the first digit only: /proc/sys gives the rest to no second read.
            ARP_LIVE: f"set --; for d in all default {_HALVES} {' '.join(VLAN_DEVICES)}; do "
            f"for k in {' '.join(state.ARP)}; do f={state.CONF}/$d/$k; "
            '[ ! -e "$f" ] || set -- "$@" "$f"; done; done; [ $# -gt 0 ] || exit 9; grep -H "" "$@"',
        },
    ),
)


@dataclass(frozen=True)
class View:
    """A node as it was read. Raises UnknownError or ValueError where something cannot be told."""

    rack: Rack
    node: Node
    reading: probe.Reading

    def stale(self, files: Iterable[File]) -> list[File]:
        """Those that differ: in what they hold, in who owns them or in who may do what with them."""
        modes = self.reading.text(MODES).splitlines()
        return [
            file
            for file in files
            if self.reading.content(file.path) != file.content or f"{file.path}:{file.mode}:root:root" not in modes
        ]

    @cached_property
    def environment(self) -> list[File]:
        """The files of the environment as they shall be."""
        live = environment.live_devices(self.reading.text(DEVICES))
        addresses = self.reading.text(ADDRESSES)
        management = ""
        if self.rack.rdma.sockets == "management":
            management = environment.holder(addresses, self.node.address)
        return environment.files(self.rack, self.node, management, live)

    @cached_property
    def nccl_conf(self) -> tuple[bytes, bytes]:
        """What /etc/nccl.conf holds and what it shall hold; a file that is not there is like an empty one."""
        before = self.reading.content(state.NCCL_CONF) or b""
        return before, state.with_rdma(before)

    @cached_property
    def memlock(self) -> str:
        """What systemd lets new units pin."""
        return state.default_limit(self.reading.text(DEFAULT))

    @cached_property
    def memlock_overriders(self) -> list[str]:
        """Whose limits win over ours."""
        wanted = {state.MEMLOCK: "infinity"}
        return [
            *state.outlimited(self.reading.text(LIMITS), self.rack),
            *dropins.overriders(self.reading.text(MANAGER), wanted, state.MANAGER),
        ]

    @cached_property
    def arp_live(self) -> dict[str, int]:
        """The kernel's settings as they are."""
        return state.live_sysctls(self.reading.text(ARP_LIVE))

    @cached_property
    def arp_overriders(self) -> list[str]:
        """Whose kernel settings win over ours at boot."""
        return dropins.overriders(self.reading.text(ARP), state.sysctls(self.rack, self.node), state.ARP_DROPIN)
