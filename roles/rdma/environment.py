"""Environment of multi-node libraries on a node. Pure: from rack.yaml and the facts of a node to files.

Variables: NCCL user guide, "Environment Variables"; the choice of devices follows the speed of the cable.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import IPv4Address

from core.hardware import gb10
from core.model import Half, Node, Rack, addresses_of, lossless_classes
from core.model.rdma_flows import used
from core.model.reachability import first_address
from core.probes.dropin_overriders import lines_of_files
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_shell
from roles.rdma.options import RdmaOptions

ENV = "/etc/sparkrack/fabric.env"
PROFILE = "/etc/profile.d/sparkrack-fabric.sh"
GID_INDEX = "/usr/local/lib/sparkrack/gid-index"
NAMES = (
    *("NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"),
    *("OMPI_MCA_btl_tcp_if_include", "VLLM_HOST_IP", "MASTER_ADDR", "NCCL_IB_HCA", "UCX_NET_DEVICES", "NCCL_IB_TC"),
    *("NCCL_IB_SUBNET_AWARE_ROUTING", "NCCL_IB_MERGE_NICS", "NCCL_NET_PLUGIN", "NCCL_IB_GID_INDEX", "NCCL_NET"),
)
"""The variables that this role writes on some rack, and two that it never writes and that take RDMA away if wrong."""
_FILES = (
    "/etc/environment /etc/bash.bashrc /etc/profile.d/*.sh /etc/systemd/system.conf /etc/systemd/system.conf.d/*.conf"
)
_HOME_FILES = (".profile", ".bash_profile", ".bash_login", ".bashrc")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


# claim: rdma.sysfs
def live_devices(listing: str) -> dict[str, str]:
    """The RDMA device behind each interface, from lines /sys/class/net/INTERFACE/device/infiniband/DEVICE.

    Raises ValueError for a line that is anything else.
    """
    found = {}
    for line in listing.splitlines():
        parts = line.split("/")
        if len(parts) != 8 or not _NAME.fullmatch(parts[-1]):
            raise ValueError(f"RDMA devices: unexpected probe output {line!r}")
        found[parts[4]] = parts[-1]
    return found


def device(half: Half, live: Mapping[str, str]) -> str:
    """The RDMA device of a half: as the node calls it, else as DGX OS does (enp1s0f1np1 -> rocep1s0f1)."""
    return live.get(half.interface) or gb10.half_device(half.port, half.index)


def holder(addresses: str, wanted: IPv4Address) -> str:
    """The interface that holds an address, from what `ip -o -4 address` prints. Raises ValueError unless one does."""
    names = set()
    for line in addresses.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] != "inet":
            raise ValueError(f"addresses of the node: unexpected probe output {line!r}")
        if fields[3].partition("/")[0] == str(wanted):
            names.add(fields[1].partition("@")[0])
    if len(names) != 1:
        held = f"{len(names)} interfaces hold" if names else "no interface holds"
        raise ValueError(f"management interface: {held} {wanted}, the address of this node in rack.yaml")
    (name,) = names
    if not _NAME.fullmatch(name):
        raise ValueError(f"management interface: {name!r} is not a name that can be written to {ENV}")
    return name


def variables(rack: Rack, node: Node, management: str, live: Mapping[str, str]) -> dict[str, str]:
    """The environment. `management`: the interface that holds the node's address; `live`: see live_devices.

    There is never an NCCL_IB_GID_INDEX: one that is wrong on one host fails all (ibv_modify_qp, EINVAL).
    """
    devices = [device(address.half, live) for address in used(rack, node.name)]
    name, address = _socket_interface(rack, node, management)
    head = next(iter(rack.nodes.values()))
    found = {
        "NCCL_IB_DISABLE": "0",
        # "=" asks for these names, not for all that begin like them.
        "NCCL_SOCKET_IFNAME": f"={name}",
        "GLOO_SOCKET_IFNAME": name,
        "TP_SOCKET_IFNAME": name,
        "OMPI_MCA_btl_tcp_if_include": name,
        "VLLM_HOST_IP": str(address),
        "MASTER_ADDR": str(_socket_interface(rack, head, management)[1]),
    }
    if devices:
        found["NCCL_IB_HCA"] = "=" + ",".join(devices)
        # claim: rdma.ucx-devices
        found["UCX_NET_DEVICES"] = ",".join(f"{one}:1" for one in devices)
    if _has_traffic_class(rack, node):
        # claim: rdma.traffic-class
        found["NCCL_IB_TC"] = str(lossless_classes.ROCE_TRAFFIC_CLASS)
    if rack.topology == "ring":
        # Each port reaches one neighbour only: NCCL must choose by subnet (2.30 or later) and not take both as one.
        found |= {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0", "NCCL_NET_PLUGIN": "none"}
    return dict(sorted(found.items()))


def _socket_interface(rack: Rack, node: Node, management: str) -> tuple[str, IPv4Address]:
    """Return interface and address for traffic outside RDMA."""
    if rack.options(RdmaOptions).sockets == "management":
        return management, node.address
    if address := first_address(rack, node.name):
        return address.device, address.interface.ip
    raise ValueError(f"rdma.sockets: {node.name} has no cable, so it has no fabric address")


def _has_traffic_class(rack: Rack, node: Node) -> bool:
    """Whether the switch has a class for RDMA, by its mark."""
    legs = (rack.cabling.leg_of(port) for port in rack.cabling.ports_of(node.name))
    return any(leg is not None and rack.switches[leg.switch].lossless in ("ecn", "roce") for leg in legs)


def settings_probe() -> str:
    """Return shell text that prints each line of others, as `path:line`, that sets a variable of this role for logins
    or services; nothing else of these files leaves the node."""
    home = " ".join(f'"$h"/{name}' for name in _HOME_FILES)
    return (
        f'set -- {_FILES}; for h in /root /home/*; do set -- "$@" {home}; done; '
        f'for f; do [ -f "$f" ] && [ "$f" != {PROFILE} ] || continue; '
        f"grep -HE '^([^#]*[^A-Za-z0-9_#])?({'|'.join(NAMES)})=' \"$f\" || [ $? -eq 1 ] || exit 9; done"
    )


def overriding_variables(listing: str, wanted: Mapping[str, str], users: Collection[str]) -> list[str]:
    """Return the files of others by which a login or a service gets another value than ours.

    listing: the output of `settings_probe`. users: whose logins count. Raises ValueError for any other line.
    """
    found = []
    for path, text in lines_of_files(listing, "environment of others"):
        whose = _describe_affected_sessions(path, users)
        for name, value in _ASSIGNMENT.findall(text) if whose else ():
            plain = value.strip("\"'")
            if plain != wanted.get(name):
                right = f"{wanted[name]} is right" if name in wanted else "this rack leaves it unset"
                found.append(f"{path} sets {name} to {plain or 'nothing'} for {whose}; {right}: remove it there")
    return found


_ASSIGNMENT = re.compile(rf"(?<![A-Za-z0-9_])({'|'.join(NAMES)})=(\"[^\"]*\"|'[^']*'|[^\s\"';]*)")


def _describe_affected_sessions(path: str, users: Collection[str]) -> str:
    """Return for what a file sets a variable so that ours does not win; empty when it does not."""
    if path.startswith("/etc/systemd/"):
        return "services that do not read ours"
    if path == "/etc/environment":
        return "`ssh NODE COMMAND` and services of PAM"
    if path.startswith("/etc/profile.d/"):
        return "logins" if path > PROFILE else ""
    if path.startswith("/etc/"):
        return "interactive shells"
    owner = "root" if path.startswith("/root/") else path.split("/")[2]
    return f"logins of {owner}" if owner in users else ""


def files(rack: Rack, node: Node, management: str, live: Mapping[str, str]) -> list[ManagedFile]:
    """Return the files of the environment on the node."""
    lines = [f"{key}={value}" for key, value in variables(rack, node, management, live).items()]
    return [
        ManagedFile(ENV, "\n".join([header(rack.rack), *lines, ""]).encode(), "644"),
        ManagedFile(PROFILE, profile(rack), "644", validate=validate_shell()),
        ManagedFile(GID_INDEX, gid_index(rack, node, live), "755", validate=validate_shell()),
    ]


def profile(rack: Rack) -> bytes:
    """Return the file by which a login shell has the environment."""
    return resources.file_text("roles.rdma", "templates/profile.sh", header=header(rack.rack), env=ENV).encode()


def gid(address: IPv4Address) -> str:
    """The GID of an IPv4 address, as the kernel shows it in /sys."""
    high, low = divmod(int(address), 1 << 16)
    return f"0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}"


def gid_index(rack: Rack, node: Node, live: Mapping[str, str]) -> bytes:
    """Return the program that prints the live GID index."""
    cases = [
        f"        {device(address.half, live)}) place {device(address.half, live)} "
        f"{gid(address.interface.ip)} {address.interface.ip} ;;\n"
        for address in addresses_of(rack, node.name)
    ]
    devices = " ".join(device(address.half, live) for address in used(rack, node.name))
    return resources.file_text(
        "roles.rdma", "templates/gid-index.sh", header=header(rack.rack), cases="".join(cases), devices=devices
    ).encode()
