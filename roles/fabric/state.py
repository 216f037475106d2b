"""What shall be true of a node's fabric. Pure: from rack.yaml and what a node says to files and faults."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkrack.fleet import VLAN_DEVICES, Address, Half, Node, Rack, addresses_of

FILE = "60-sparkrack-fabric.yaml"
KEPT = f"/etc/netplan/{FILE}"
"""Where the proven network stands."""
TRIED = f"/run/netplan/{FILE}"
"""Where it stands while on trial: netplan reads this one instead of the one in /etc, and a reboot removes it."""
HOTPLUG = "/etc/nvidia/cx7-hotplug-enabled"
"""Where this file is, DGX OS removes a ConnectX-7 function whose cable or peer is down (reported: NNNtrance)."""
HEADERS = 28
"""IPv4 and ICMP headers (bytes): an echo of this much less than the MTU fills a frame."""


@dataclass(frozen=True)
class Tag:
    """What makes an interface a VLAN: its number, and the interface it is on."""

    link: str
    number: int
    protocol: str = "802.1Q"

    def __str__(self) -> str:
        return f"VLAN {self.number} on {self.link}" + (f" ({self.protocol})" if self.protocol != "802.1Q" else "")


def on_the_fabric(tag: Tag | None) -> bool:
    """Whether this is a VLAN on a ConnectX-7 interface: only such a one may be ours to change or remove."""
    return tag is not None and tag.link in {Half("", port, index).interface for port in (0, 1) for index in (0, 1)}


@dataclass(frozen=True)
class Live:
    """What an interface has, or shall have. `addresses` are IPv4 with prefix length; `known`: it exists."""

    known: bool
    up: bool
    mtu: int
    addresses: frozenset[str]
    tag: Tag | None = None


def netplan(rack: Rack, node: Node) -> bytes | None:
    """Our netplan file for a node, or None when it has no cable.

    Interfaces are `optional`, so that a node whose cable is out still boots without waiting for it. Router
    advertisements are ignored: the fabric is no way out.
    """
    addresses = addresses_of(rack, node.name)
    if not addresses:
        return None
    lines = [
        f"# Written by sparkrack for the rack {rack.rack}; a change here is overwritten.",
        "network:",
        "  version: 2",
        "  ethernets:",
    ]
    for address in addresses:
        lines += _entry(rack, address.half.interface, None if address.vlan else address)
    if rack.fabric.vlans:
        lines.append("  vlans:")
    for address in addresses:
        if address.vlan:
            lines += _entry(rack, address.device, address)
            lines += [f"      id: {address.vlan}", f"      link: {address.half.interface}"]
    return ("\n".join(lines) + "\n").encode()


def _entry(rack: Rack, name: str, address: Address | None) -> list[str]:
    return [
        f"    {name}:",
        *([f"      addresses: [{address.interface}]"] if address else []),
        f"      mtu: {rack.fabric.mtu}",
        "      dhcp4: false",
        "      dhcp6: false",
        "      accept-ra: false",
        "      optional: true",
    ]


def interfaces(rack: Rack, node: Node) -> list[str]:
    """The fabric interfaces of a node that hold a cable."""
    return [address.half.interface for address in addresses_of(rack, node.name)]


def wanted(rack: Rack, node: Node) -> dict[str, Live]:
    """What each interface shall have; with VLANs a cabled one only carries the VLAN interface, which comes later."""
    halves, vlans = {}, {}
    for address in addresses_of(rack, node.name):
        mtu, own = rack.fabric.mtu, frozenset({str(address.interface)})
        name = address.half.interface
        halves[name] = Live(known=True, up=True, mtu=mtu, addresses=frozenset() if address.vlan else own)
        if address.vlan:
            vlans[address.device] = Live(True, True, mtu, own, Tag(name, address.vlan))
    return halves | vlans


def live(ip_json: str, names: list[str]) -> dict[str, Live]:
    """What `ip -d -j address` says of these interfaces. Raises ValueError when it is not what `ip` prints."""
    found: dict[str, Any] = {}
    for link in json.loads(ip_json):
        if link:
            found[link["ifname"]] = link
    return {name: _live(found.get(name)) for name in names}


def _live(link: Mapping[str, Any] | None) -> Live:
    if link is None:
        return Live(known=False, up=False, mtu=0, addresses=frozenset())
    addresses = {f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["family"] == "inet"}
    info, tag = link.get("linkinfo", {}), None
    if info.get("info_kind") == "vlan":
        # `link` is left out for an interface of another network namespace.
        tag = Tag(str(link.get("link", "?")), int(info["info_data"]["id"]), str(info["info_data"]["protocol"]))
    return Live(True, "UP" in link["flags"], int(link["mtu"]), frozenset(addresses), tag)


def concerned(rack: Rack, node: Node, before: bytes | None, now: Mapping[str, Live]) -> dict[str, Live]:
    """The interfaces that are ours to change: those that are wanted, and those that were.

    A VLAN interface was wanted when it has one of our names on a ConnectX-7 interface, or when it is gone and our
    file still has it, so that networkd has its units. A half was wanted when our file has it: its cable was moved.
    """
    shall, own = wanted(rack, node), {name: now[name] for name in interfaces(rack, node)}
    for name, was in now.items():
        in_file = f"\n    {name}:\n".encode() in (before or b"")
        if name not in VLAN_DEVICES:
            was_ours = in_file and was.known
        else:
            was_ours = on_the_fabric(was.tag) or (in_file and not was.known)
        if name in shall or was_ours:
            own[name] = was
    return own


def faults(rack: Rack, node: Node, now: Mapping[str, Live]) -> list[str]:
    """What differs between the live interfaces and the rack, each in one line; empty when all is right."""
    lines = []
    shall = wanted(rack, node)
    for name, want in shall.items():
        state = now[name]
        if not state.known:
            lines.append(f"{name}: is not there")
            continue
        if state.tag != want.tag:
            lines.append(f"{name}: {state.tag or 'no VLAN'} -> {want.tag}")
        if not state.up:
            lines.append(f"{name}: is down")
        if state.mtu != want.mtu:
            lines.append(f"{name}: mtu {state.mtu} -> {want.mtu}")
        if state.addresses != want.addresses:
            lines.append(f"{name}: {_listed(state)} -> {_listed(want)}")
    lines += [f"{name}: {_listed(now[name])} -> no address" for name in left(shall, now) if now[name].addresses]
    return [*lines, *(f"{name}: {now[name].tag} -> removed" for name in gone(shall, now) if now[name].known)]


@dataclass(frozen=True)
class Signal:
    """What ethtool says of an interface; None where it does not tell. Speed in Mbit/s."""

    link: bool | None
    speed: int | None


def signals(text: str) -> dict[str, Signal]:
    """What was said of each interface, in lines `NAME SPEED LINK`. Raises ValueError for anything else."""
    found = {}
    for line in text.splitlines():
        match line.split():
            case [name, speed, link]:
                rate = re.fullmatch(r"(\d{1,7})Mb/s", speed)
                found[name] = Signal({"yes": True, "no": False}.get(link), int(rate[1]) if rate else None)
            case _:
                raise ValueError(f"fabric-signals: cannot be told from {line[:60]!r}")
    return found


def dead(rack: Rack, node: Node, said: Mapping[str, Signal]) -> list[str]:
    """Cabled halves that carry nothing, or less than their leg: no setting of a node mends a cable or its other end."""
    lines = []
    for port in rack.cabling.ports_of(node.name):
        cable = rack.cabling.cable_of(port)
        for half in port.halves:
            signal = said.get(half.interface)
            if cable is None or signal is None:
                continue  # switched off, which is told elsewhere, or without an answer
            if signal.link is False:
                lines.append(f"{half.interface}: no link: the cable, its other end or the port there is down")
            elif signal.speed is not None and signal.speed != cable.gbps * 1000:
                lines.append(f"{half.interface}: linked at {signal.speed / 1000:g}G, wanted {cable.gbps}G")
    return lines


def _listed(state: Live) -> str:
    return ", ".join(sorted(state.addresses)) or "no address"


def gone(shall: Mapping[str, Live], now: Mapping[str, Live]) -> list[str]:
    """VLAN interfaces that are wanted no longer."""
    return [name for name in now if name in VLAN_DEVICES and name not in shall]


def left(shall: Mapping[str, Live], now: Mapping[str, Live]) -> list[str]:
    """Halves that hold a cable no longer: they keep nothing of what they had for it."""
    return [name for name in now if name not in VLAN_DEVICES and name not in shall]


def missing(rack: Rack, node: Node, now: Mapping[str, Live]) -> list[str]:
    """Cabled interfaces that the node does not have at all, which no netplan file can mend."""
    return [name for name in interfaces(rack, node) if not now[name].known]


def occupied(rack: Rack, node: Node, now: Mapping[str, Live]) -> list[str]:
    """Names of VLAN interfaces that the node uses for something else, which may be its way out."""
    return [
        name
        for name, want in wanted(rack, node).items()
        if want.tag and now[name].known and not on_the_fabric(now[name].tag)
    ]


def foreign(listing: str, names: list[str]) -> dict[str, list[str]]:
    """Netplan files of others that have to do with these interfaces, from `path:line` matches: which, of each file.

    By name, by a pattern that matches it, or as a member of something. Two files for one port add up to something
    nobody wrote, so there must be none but ours. Raises ValueError for any other line.
    """
    found: dict[str, set[str]] = {}
    for line in listing.splitlines():
        path, _, text = line.partition(":")
        if not path.startswith("/"):
            raise ValueError(f"netplan-interfaces: cannot be told from {line[:80]!r}")
        if path in (KEPT, TRIED):
            continue
        for word in re.findall(r"en[\w*?\[\]-]*|(?<![\w-])fabric[\w-]*", text.partition("#")[0]):
            touched = {name for name in names if fnmatch.fnmatchcase(name, word)}
            if touched:
                found.setdefault(path, set()).update(touched)
    return {path: sorted(touched) for path, touched in sorted(found.items())}
