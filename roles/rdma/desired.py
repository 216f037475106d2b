"""Desired state of a node for RDMA, besides its environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.model import Node, Rack, addresses_of
from core.util.managed_file import ManagedFile, header

NCCL_CONF = "/etc/nccl.conf"
OFF = b"#sparkrack: RDMA stays on# "
"""Put before a line of /etc/nccl.conf that turns RDMA off; the rest of the file keeps every byte."""
LIMITS = "/etc/security/limits.d/90-sparkrack-memlock.conf"
MANAGER = "/etc/systemd/system.conf.d/50-sparkrack-memlock.conf"
# claim: rdma.memlock
MEMLOCK = "DefaultLimitMEMLOCK"
ARP_DROPIN = "/etc/sysctl.d/zz-sparkrack-rdma.conf"
ARP = {"arp_ignore": 1, "arp_announce": 2}
"""Answer for an address only on the interface that holds it, and ask with the address of the interface that asks. DGX
OS presets the same for `all` (reported); both halves of a port are in one network of the switch, and a peer that learns
the other half's MAC sends RDMA to a device that has no such GID.
"""
CONF = "/proc/sys/net/ipv4/conf"

# NCCL (src/misc/param.cc) takes a line as NAME=VALUE without trimming the name, skips it only when its first byte is
# "#", and reads the value by strtoll with base 0: 1, " 1", 0x1, 01 and 1abc disable; "yes" and 08 are 0.
_DISABLING = re.compile(rb"^(?=NCCL_IB_DISABLE=[ \t\v\f\r]*[+-]?(?:[1-9]|0+[1-7]|0[xX]0*[1-9a-fA-F]))", re.MULTILINE)


def with_rdma(conf: bytes) -> bytes:
    """The same /etc/nccl.conf with the lines that turn RDMA off commented out."""
    return _DISABLING.sub(OFF, conf)


def limits(rack: Rack) -> ManagedFile:
    """Return the file that allows a new login to pin memory. A line for a user overrides those for groups and for all
    users.
    """
    lines = [f"{user} - memlock unlimited\n" for user in users(rack)]
    return ManagedFile(LIMITS, f"{header(rack.rack)}\n{''.join(lines)}".encode())


def users(rack: Rack) -> list[str]:
    """Return the users whose memlock limit is lifted."""
    return sorted({rack.access.user, "root"})


def outlimited(listing: str, rack: Rack) -> list[str]:
    """Limits of others that win over ours, from `path:line` matches in limits.d: later files, for the same user.

    Raises ValueError for any other line.
    """
    faults = []
    for line in listing.splitlines():
        path, _, text = line.partition(":")
        if not path.startswith("/"):
            raise ValueError(f"memlock limits: unexpected probe output {line[:80]!r}")
        fields = text.partition("#")[0].split()
        if path.rsplit("/", 1)[-1] <= LIMITS.rsplit("/", 1)[-1] or len(fields) != 4:
            continue
        user, _, item, value = fields
        if user in users(rack) and item == "memlock" and value not in ("unlimited", "infinity", "-1"):
            faults.append(
                f"{path} limits memlock of {user} to {value} and is read after {LIMITS}; "
                "remove that line or rename the file"
            )
    return faults


def manager(rack: Rack) -> ManagedFile:
    """The file by which what systemd starts may pin memory."""
    return ManagedFile(MANAGER, f"{header(rack.rack)}\n[Manager]\n{MEMLOCK}=infinity\n".encode())


def default_limit(reported: str) -> str:
    """Parse the default limit of new units from systemd's own output. Raises ValueError for an invalid limit."""
    value = reported.strip()
    if value != "infinity" and not (value.isascii() and value.isdigit()):
        raise ValueError(f"{MEMLOCK}: unexpected probe output {reported[:40]!r}")
    return value


def carriers(rack: Rack, node: Node) -> list[str]:
    """The network devices of a node that carry its fabric: the halves, and the VLANs on them."""
    names = [name for a in addresses_of(rack, node.name) for name in (a.half.interface, a.device)]
    return list(dict.fromkeys(names))


def sysctls(rack: Rack, node: Node) -> dict[str, str]:
    """The kernel settings by key. The kernel takes the larger one of `all` and the interface's own."""
    places = ["all", "default", *carriers(rack, node)]
    return {f"net.ipv4.conf.{place}.{name}": str(value) for place in places for name, value in ARP.items()}


def arp_dropin(rack: Rack, node: Node) -> ManagedFile:
    """The file that sets them at boot, and whenever an interface appears (udev runs systemd-sysctl for it)."""
    # "-": an interface that is not there yet is not a failure.
    lines = [
        f"{'' if key.split('.')[3] in ('all', 'default') else '-'}{key} = {value}\n"
        for key, value in sorted(sysctls(rack, node).items())
    ]
    return ManagedFile(ARP_DROPIN, f"{header(rack.rack)}\n{''.join(lines)}".encode())


def live_sysctls(listing: str) -> dict[str, int]:
    """The live values by key, from lines `path:value`. Raises ValueError when a line is anything else."""
    found = {}
    for line in listing.splitlines():
        path, _, value = line.partition(":")
        parts = path.removeprefix(f"{CONF}/").split("/")
        if not path.startswith(f"{CONF}/") or len(parts) != 2 or not value.isdigit():
            raise ValueError(f"ARP settings: unexpected probe output {line!r}")
        found[f"net.ipv4.conf.{parts[0]}.{parts[1]}"] = int(value)
    return found


def wrong_sysctls(rack: Rack, node: Node, live: Mapping[str, int]) -> dict[str, str]:
    """Return the settings to make live, with their values. A missing interface is reported by another role."""
    wrong = {}
    for key, value in sysctls(rack, node).items():
        place = key.split(".")[3]
        if place in ("all", "default"):
            if key not in live:
                raise ValueError(f"{key}: is not there")
            if live[key] != int(value):
                wrong[key] = value
        elif live.get(key, 0) > int(value):
            wrong[key] = value
    return wrong
