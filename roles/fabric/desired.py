"""Desired state of a node's fabric. Pure: from rack.yaml and the facts of a node to files and problems."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.hardware.gb10 import INTERFACES
from core.model import VLAN_DEVICES, Address, Node, Rack, addresses_of
from core.probes.links import EthtoolReport, IpLink, parse_ip_links
from core.util.event import Event, EventKind, field_change, value_change
from core.util.managed_file import header

FILE = "60-sparkrack-fabric.yaml"
KEPT = f"/etc/netplan/{FILE}"
"""Path of the confirmed netplan file."""
TRIED = f"/run/netplan/{FILE}"
"""Path of the pending netplan file: netplan reads it instead of the one in /etc, and a reboot removes it."""
HOTPLUG = "/etc/nvidia/cx7-hotplug-enabled"
"""If this file exists, DGX OS removes a ConnectX-7 function whose cable or peer is down (reported: NNNtrance)."""
HEADERS = 28
"""IPv4 and ICMP headers (bytes): an echo of this much less than the MTU fills a frame."""


@dataclass(frozen=True)
class Vlan:
    """The VLAN of an interface: its number, and its parent interface."""

    link: str
    number: int
    protocol: str = "802.1Q"

    def __str__(self) -> str:
        return f"VLAN {self.number} on {self.link}" + (f" ({self.protocol})" if self.protocol != "802.1Q" else "")


def on_the_fabric(tag: Vlan | None) -> bool:
    """Return whether this is a VLAN on a ConnectX-7 interface: only such a VLAN may be changed or removed."""
    return tag is not None and tag.link in INTERFACES


@dataclass(frozen=True)
class InterfaceState:
    """Actual or desired state of an interface. `addresses` are IPv4 with prefix length; `known`: it exists."""

    known: bool
    up: bool
    mtu: int
    addresses: frozenset[str]
    tag: Vlan | None = None


# claim: fabric.pulled-cable
def netplan(rack: Rack, node: Node) -> bytes | None:
    """Our netplan file for a node, or None when it has no cable.

    Interfaces are `optional`, so that a node whose cable is out still boots without waiting for it. Router
    advertisements are ignored: the fabric is not a way out.
    """
    addresses = addresses_of(rack, node.name)
    if not addresses:
        return None
    lines = [
        header(rack.rack),
        "network:",
        "  version: 2",
        "  ethernets:",
    ]
    for address in addresses:
        lines += _interface_lines(rack, address.half.interface, None if address.vlan else address)
    if rack.fabric.vlans:
        lines.append("  vlans:")
    for address in addresses:
        if address.vlan:
            lines += _interface_lines(rack, address.device, address)
            lines += [f"      id: {address.vlan}", f"      link: {address.half.interface}"]
    return ("\n".join(lines) + "\n").encode()


def _interface_lines(rack: Rack, name: str, address: Address | None) -> list[str]:
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


def wanted(rack: Rack, node: Node) -> dict[str, InterfaceState]:
    """Return the desired state of each interface; with VLANs a cabled one only carries the VLAN interface, which comes
    later.
    """
    halves, vlans = {}, {}
    for address in addresses_of(rack, node.name):
        mtu, own = rack.fabric.mtu, frozenset({str(address.interface)})
        name = address.half.interface
        halves[name] = InterfaceState(known=True, up=True, mtu=mtu, addresses=frozenset() if address.vlan else own)
        if address.vlan:
            vlans[address.device] = InterfaceState(True, True, mtu, own, Vlan(name, address.vlan))
    return halves | vlans


def live(ip_json: str, names: list[str]) -> dict[str, InterfaceState]:
    """Parse the state of these interfaces from `ip -d -j address`. Raises ValueError for any other text."""
    links = parse_ip_links(ip_json)
    return {name: _live_state(name, links.get(name)) for name in names}


def _live_state(name: str, link: IpLink | None) -> InterfaceState:
    if link is None:
        return InterfaceState(known=False, up=False, mtu=0, addresses=frozenset())
    if link.flags is None or link.mtu is None or link.addresses is None:
        raise ValueError(f"not what `ip` prints: {name} has no flags, MTU or addresses")
    # The parent is left out for an interface of another network namespace.
    tag = Vlan(link.vlan.parent or "?", link.vlan.number, link.vlan.protocol) if link.vlan else None
    return InterfaceState(True, "UP" in link.flags, link.mtu, frozenset(link.addresses), tag)


def managed_interfaces(
    rack: Rack, node: Node, before: bytes | None, now: Mapping[str, InterfaceState]
) -> dict[str, InterfaceState]:
    """The interfaces that are ours to change: those that are wanted, and those that were.

    A VLAN interface was wanted when it has one of our names on a ConnectX-7 interface, or when it is gone and our
    file still has it, so that networkd has its units. A half was wanted when our file has it: its cable was moved.
    """
    target, own = wanted(rack, node), {name: now[name] for name in interfaces(rack, node)}
    for name, was in now.items():
        in_file = f"\n    {name}:\n".encode() in (before or b"")
        if name not in VLAN_DEVICES:
            was_ours = in_file and was.known
        else:
            was_ours = on_the_fabric(was.tag) or (in_file and not was.known)
        if name in target or was_ours:
            own[name] = was
    return own


def problems(rack: Rack, node: Node, now: Mapping[str, InterfaceState]) -> list[Event]:
    """What differs between the live interfaces and the rack; empty when all is right."""
    found = []
    target = wanted(rack, node)
    for name, want in target.items():
        state = now[name]
        if not state.known:
            found.append(Event(EventKind.CHANGE, subject=name, detail="is not there"))
            continue
        if state.tag != want.tag:
            found.append(value_change(name, state.tag or "no VLAN", want.tag))
        if not state.up:
            found.append(Event(EventKind.CHANGE, subject=name, detail="is down"))
        if state.mtu != want.mtu:
            found.append(field_change(name, "mtu", state.mtu, want.mtu))
        if state.addresses != want.addresses:
            found.append(value_change(name, _address_list(state), _address_list(want)))
    found += [
        value_change(name, _address_list(now[name]), "no address")
        for name in uncabled_halves(target, now)
        if now[name].addresses
    ]
    return [
        *found,
        *(value_change(name, now[name].tag, "removed") for name in stale_vlans(target, now) if now[name].known),
    ]


def link_problems(rack: Rack, node: Node, reports: Mapping[str, EthtoolReport]) -> list[str]:
    """Return cabled halves without a link, or slower than their leg: no setting of a node fixes a cable or its other
    end.
    """
    lines = []
    for port in rack.cabling.ports_of(node.name):
        cable = rack.cabling.cable_of(port)
        for half in port.halves:
            report = reports.get(half.interface)
            if cable is None or report is None:
                continue  # switched off, which is reported elsewhere, or without an answer
            if report.carrier is False:
                lines.append(f"{half.interface}: no link: the cable, its other end or the port there is down")
            elif report.mbps is not None and report.mbps != cable.gbps * 1000:
                lines.append(f"{half.interface}: linked at {report.mbps / 1000:g}G, wanted {cable.gbps}G")
    return lines


def unread_links(rack: Rack, node: Node, reports: Mapping[str, EthtoolReport]) -> list[str]:
    """Return cabled halves that have a link whose speed ethtool does not report: whether it is right is unknown."""
    names = [half.interface for port in rack.cabling.ports_of(node.name) for half in port.halves]
    up = [name for name in names if name in reports and reports[name].carrier]
    return [f"{name}: ethtool does not report the speed of the link" for name in up if reports[name].mbps is None]


def _address_list(state: InterfaceState) -> str:
    return ", ".join(sorted(state.addresses)) or "no address"


def stale_vlans(target: Mapping[str, InterfaceState], now: Mapping[str, InterfaceState]) -> list[str]:
    """VLAN interfaces that are wanted no longer."""
    return [name for name in now if name in VLAN_DEVICES and name not in target]


def uncabled_halves(target: Mapping[str, InterfaceState], now: Mapping[str, InterfaceState]) -> list[str]:
    """Halves that hold a cable no longer: they keep nothing of what they had for it."""
    return [name for name in now if name not in VLAN_DEVICES and name not in target]


def missing(rack: Rack, node: Node, now: Mapping[str, InterfaceState]) -> list[str]:
    """Return cabled interfaces that do not exist on the node, which no netplan file can fix."""
    return [name for name in interfaces(rack, node) if not now[name].known]


def occupied(rack: Rack, node: Node, now: Mapping[str, InterfaceState]) -> list[str]:
    """Names of VLAN interfaces that the node uses for something else, which may be its way out."""
    return [
        name
        for name, want in wanted(rack, node).items()
        if want.tag and now[name].known and not on_the_fabric(now[name].tag)
    ]


def foreign(listing: str, names: list[str]) -> dict[str, list[str]]:
    """Return other netplan files that involve these interfaces, from `path:line` matches: the interfaces of each file.

    By name, by a matching pattern, or as a member of another interface. Two files for one port combine to an unintended
    configuration, so there must be none but ours. Raises ValueError for any other line.
    """
    found: dict[str, set[str]] = {}
    for line in listing.splitlines():
        path, _, text = line.partition(":")
        if not path.startswith("/"):
            raise ValueError(f"netplan-interfaces: unexpected probe output {line[:80]!r}")
        if path in (KEPT, TRIED):
            continue
        for word in re.findall(r"en[\w*?\[\]-]*|(?<![\w-])fabric[\w-]*", text.partition("#")[0]):
            touched = {name for name in names if fnmatch.fnmatchcase(name, word)}
            if touched:
                found.setdefault(path, set()).update(touched)
    return {path: sorted(touched) for path, touched in sorted(found.items())}
