"""Facts of a node about RDMA, and their comparison with the rack."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from core.model import VLAN_DEVICES, Half, Node, Rack
from core.ops import host_facts
from core.ops import systemd_probes as lines
from core.probes import dropin_overriders
from core.probes.own_files import OwnFiles
from core.util import managed_file
from core.util.managed_file import ManagedFile
from roles.rdma import desired, environment
from roles.rdma.options import RdmaOptions

OURS = (
    environment.ENV,
    environment.PROFILE,
    environment.GID_INDEX,
    desired.LIMITS,
    desired.MANAGER,
    desired.ARP_DROPIN,
)
MODES = "rdma-modes"
ADDRESSES = "rdma-addresses"
DEVICES = "rdma-devices"
LIMITS = "memlock-limits"
MANAGER = "memlock-settings"
DEFAULT = "memlock-default"
ARP = "arp-settings"
SETTINGS = "rdma-settings"
ARP_LIVE = "arp-live"
_HALVES = " ".join(Half("", port, index).interface for port in (0, 1) for index in (0, 1))

host_facts.register(
    "rdma",
    host_facts.Probe(
        files=(desired.NCCL_CONF, *OURS),
        commands={
            MODES: managed_file.probe_permissions(OURS),
            SETTINGS: environment.settings_probe(),
            ADDRESSES: "ip -o -4 address",
            DEVICES: f'for i in {_HALVES}; do for d in /sys/class/net/"$i"/device/infiniband/*; do '
            '[ ! -e "$d" ] || echo "$d"; done; done',
            LIMITS: "set -- /etc/security/limits.d/*.conf; "
            '[ ! -e "$1" ] || grep -HE "memlock" "$@" || [ $? -eq 1 ] || exit 9',
            MANAGER: lines.dropin_settings(lines.MANAGER, desired.MEMLOCK),
            # No file shows which configuration the running systemd has read.
            DEFAULT: f"systemctl show --property={desired.MEMLOCK} --value",
            ARP: lines.dropin_settings(lines.SYSCTL, "net[./]ipv4[./]conf[./].*arp_(ignore|announce)"),
            # `read` of a shell would take the first digit only: /proc/sys gives the rest to no second read.
            ARP_LIVE: f"set --; for d in all default {_HALVES} {' '.join(VLAN_DEVICES)}; do "
            f"for k in {' '.join(desired.ARP)}; do f={desired.CONF}/$d/$k; "
            '[ ! -e "$f" ] || set -- "$@" "$f"; done; done; [ $# -gt 0 ] || exit 9; grep -H "" "$@"',
        },
    ),
)


@dataclass(frozen=True)
class RdmaFacts(OwnFiles):
    """RDMA facts of a node. Properties raise UnknownError or ValueError for unknown facts."""

    MODES_FACT = MODES
    reading: host_facts.HostReading
    rack: Rack
    node: Node

    @cached_property
    def environment(self) -> list[ManagedFile]:
        """Desired files of the environment."""
        return environment.files(self.rack, self.node, self._management_interface, self._live_devices)

    @cached_property
    def _live_devices(self) -> dict[str, str]:
        return environment.live_devices(self.reading.text(DEVICES))

    @cached_property
    def _management_interface(self) -> str:
        addresses = self.reading.text(ADDRESSES)
        if self.rack.options(RdmaOptions).sockets == "management":
            return environment.holder(addresses, self.node.address)
        return ""

    @cached_property
    def environment_overriders(self) -> list[str]:
        """Files by which a login or a service gets another value of a variable than ours."""
        wanted = environment.variables(self.rack, self.node, self._management_interface, self._live_devices)
        return environment.overriding_variables(self.reading.text(SETTINGS), wanted, desired.users(self.rack))

    @cached_property
    def nccl_conf(self) -> tuple[bytes, bytes]:
        """Actual and desired content of /etc/nccl.conf; a missing file counts as empty."""
        before = self.reading.content(desired.NCCL_CONF) or b""
        return before, desired.with_rdma(before)

    @cached_property
    def memlock(self) -> str:
        """Default memlock limit of systemd for new units."""
        return desired.default_limit(self.reading.text(DEFAULT))

    @cached_property
    def memlock_overriders(self) -> list[str]:
        """Files whose limits override ours."""
        wanted = {desired.MEMLOCK: "infinity"}
        return [
            *desired.outlimited(self.reading.text(LIMITS), self.rack),
            *dropin_overriders.overriders(self.reading.text(MANAGER), wanted, desired.MANAGER),
        ]

    @cached_property
    def arp_live(self) -> dict[str, int]:
        """The kernel's settings as they are."""
        return desired.live_sysctls(self.reading.text(ARP_LIVE))

    @cached_property
    def arp_overriders(self) -> list[str]:
        """Files whose kernel settings override ours at boot."""
        return dropin_overriders.overriders(
            self.reading.text(ARP), desired.sysctls(self.rack, self.node), desired.ARP_DROPIN
        )
