"""What the libraries that span nodes are told on a node. Pure: from rack.yaml and what a node says to files.

Variables: NCCL user guide, "Environment Variables"; the choice of devices follows the speed of the cable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address

from roles.rdma.files import File, header
from sparkrack.fleet import Address, Half, Node, Rack, addresses_of, lossless

ENV = "/etc/sparkrack/fabric.env"
PROFILE = "/etc/profile.d/sparkrack-fabric.sh"
GID_INDEX = "/usr/local/lib/sparkrack/gid-index"
HALF_GBPS = 100
"""A link of this speed (Gb/s) is filled by one half of a port, which carries about 109: both would only share it
(49 and 49 measured, one site). A faster one needs both."""
TRAFFIC_CLASS = lossless.ROCE_DSCP << 2 | 2
"""The DSCP of lossless RoCE with ECN-capable transport in the two bits below it."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def live_devices(listing: str) -> dict[str, str]:
    """The RDMA device behind each interface, from lines /sys/class/net/INTERFACE/device/infiniband/DEVICE.

    Raises ValueError for a line that is anything else.
    """
    found = {}
    for line in listing.splitlines():
        parts = line.split("/")
        if len(parts) != 8 or not _NAME.fullmatch(parts[-1]):
            raise ValueError(f"RDMA devices: cannot be told from {line!r}")
        found[parts[4]] = parts[-1]
    return found


def device(half: Half, live: Mapping[str, str]) -> str:
    """The RDMA device of a half: as the node calls it, else as DGX OS does (enp1s0f1np1 -> rocep1s0f1)."""
    return live.get(half.interface) or "roce" + half.interface.removeprefix("en").rsplit("np", 1)[0]


def holder(addresses: str, wanted: IPv4Address) -> str:
    """The interface that holds an address, from what `ip -o -4 address` prints. Raises ValueError unless one does."""
    names = set()
    for line in addresses.splitlines():
        fields = line.split()
        if len(fields) < 4 or fields[2] != "inet":
            raise ValueError(f"addresses of the node: cannot be told from {line!r}")
        if fields[3].partition("/")[0] == str(wanted):
            names.add(fields[1].partition("@")[0])
    if len(names) != 1:
        held = f"{len(names)} interfaces hold" if names else "no interface holds"
        raise ValueError(f"management interface: {held} {wanted}, the address of this node in rack.yaml")
    (name,) = names
    if not _NAME.fullmatch(name):
        raise ValueError(f"management interface: {name!r} is no name that can be written to {ENV}")
    return name


def used(rack: Rack, node: str) -> list[Address]:
    """The fabric addresses of the halves that NCCL shall use: both of a port, or the first if that fills the link."""
    found = []
    for port in rack.cabling.ports_of(node):
        cable = rack.cabling.cable_of(port)
        both = cable is not None and cable.gbps > HALF_GBPS
        found += [a for a in addresses_of(rack, node) if a.half in port.halves and (both or a.half.index == 0)]
    return found


def variables(rack: Rack, node: Node, management: str, live: Mapping[str, str]) -> dict[str, str]:
    """The environment. `management`: the interface that holds the node's address; `live`: see live_devices.

    There is never an NCCL_IB_GID_INDEX: one that is wrong on one host fails all (ibv_modify_qp, EINVAL).
    """
    devices = [device(address.half, live) for address in used(rack, node.name)]
    name, address = _sockets(rack, node, management)
    head = next(iter(rack.nodes.values()))
    found = {
        "NCCL_IB_DISABLE": "0",
        # "=" asks for these names, not for all that begin like them.
        "NCCL_SOCKET_IFNAME": f"={name}",
        "GLOO_SOCKET_IFNAME": name,
        "TP_SOCKET_IFNAME": name,
        "OMPI_MCA_btl_tcp_if_include": name,
        "VLLM_HOST_IP": str(address),
        "MASTER_ADDR": str(_sockets(rack, head, management)[1]),
    }
    if devices:
        found["NCCL_IB_HCA"] = "=" + ",".join(devices)
        found["UCX_NET_DEVICES"] = ",".join(f"{one}:1" for one in devices)
    if _lossless(rack, node):
        found["NCCL_IB_TC"] = str(TRAFFIC_CLASS)
    if rack.topology == "ring":
        # Each port reaches one neighbour only: NCCL must choose by subnet (2.30 or later) and not take both as one.
        found |= {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0", "NCCL_NET_PLUGIN": "none"}
    return dict(sorted(found.items()))


def _sockets(rack: Rack, node: Node, management: str) -> tuple[str, IPv4Address]:
    """Interface and address for what is said beside RDMA."""
    if rack.rdma.sockets == "management":
        return management, node.address
    for address in addresses_of(rack, node.name):
        if address.half.index == 0:
            return address.device, address.interface.ip
    raise ValueError(f"rdma.sockets: {node.name} has no cable, so it has no fabric address")


def _lossless(rack: Rack, node: Node) -> bool:
    legs = (rack.cabling.leg_of(port) for port in rack.cabling.ports_of(node.name))
    return any(leg is not None and rack.switches[leg.switch].lossless == "roce" for leg in legs)


def files(rack: Rack, node: Node, management: str, live: Mapping[str, str]) -> list[File]:
    """What is written on the node for it."""
    lines = [f"{key}={value}" for key, value in variables(rack, node, management, live).items()]
    return [
        File(ENV, (header(rack) + "\n".join(lines) + "\n").encode(), "644"),
        File(PROFILE, (header(rack) + _PROFILE).encode(), "644", check='sh -n "$new"'),
        File(GID_INDEX, gid_index(rack, node, live), "755", check='sh -n "$new"'),
    ]


_PROFILE = f"""\
# Every login shell knows what services and containers are told. Nothing in that file is executed.
if [ -r {ENV} ]; then
    while IFS= read -r _sparkrack || [ -n "$_sparkrack" ]; do
        case ${{_sparkrack%%=*}} in
            '' | [0-9]* | *[!A-Za-z0-9_]*) continue ;;
        esac
        case $_sparkrack in
            *=*) export "$_sparkrack" ;;
        esac
    done < {ENV}
    unset _sparkrack
fi
"""


def gid(address: IPv4Address) -> str:
    """The GID of an IPv4 address, as the kernel shows it in /sys."""
    high, low = divmod(int(address), 1 << 16)
    return f"0000:0000:0000:0000:0000:ffff:{high:04x}:{low:04x}"


def gid_index(rack: Rack, node: Node, live: Mapping[str, str]) -> bytes:
    """The program that tells the live GID index."""
    cases = [
        f"        {device(address.half, live)}) place {device(address.half, live)} "
        f"{gid(address.interface.ip)} {address.interface.ip} ;;\n"
        for address in addresses_of(rack, node.name)
    ]
    devices = " ".join(device(address.half, live) for address in used(rack, node.name))
    script = _GID_INDEX.replace("@CASES@", "".join(cases)).replace("@DEVICES@", devices)
    return f"#!/bin/sh\n{header(rack)}{script}".encode()


_GID_INDEX = """\
# Prints NCCL_IB_GID_INDEX=N: where the fabric addresses of this node stand among the GIDs of its RDMA devices now.
# That differs between hosts and boots, so it is asked when something is started. With the name of a device: only
# its number.
set -eu

place() {
    folder=/sys/class/infiniband/$1/ports/1
    for found in $(grep -lxF "$2" "$folder"/gids/* 2>/dev/null); do
        number=${found##*/}
        if [ "$(cat "$folder/gid_attrs/types/$number" 2>/dev/null)" = "RoCE v2" ]; then
            echo "$number"
            return 0
        fi
    done
    echo "gid-index: $1 has no RoCE v2 GID for $3: is the device there, and the address on its interface?" >&2
    return 1
}

of() {
    case $1 in
@CASES@        *) echo "gid-index: no fabric address is behind $1" >&2; return 1 ;;
    esac
}

if [ $# -gt 0 ]; then
    of "$1"
    exit
fi
first='' said='' differ=''
for device in @DEVICES@; do
    number=$(of "$device")
    [ "${first:=$number}" = "$number" ] || differ=yes
    said="$said $device $number"
done
if [ -z "$first" ]; then
    echo "gid-index: this node has no cable" >&2
    exit 1
fi
if [ -n "$differ" ]; then
    echo "gid-index: no one index serves all devices ($said ): leave NCCL_IB_GID_INDEX unset, NCCL finds them" >&2
    exit 0
fi
echo "NCCL_IB_GID_INDEX=$first"
"""
