"""What shall be true of a node's fabric. Pure: from rack.yaml and what a node holds to files and scripts."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from sparkrack.fleet import Address, Node, Rack, addresses_of, reachable

FILE = "60-sparkrack-fabric.yaml"
KEPT = f"/etc/netplan/{FILE}"
"""Where the proven network stands."""
TRIED = f"/run/netplan/{FILE}"
"""Where it stands while on trial: netplan reads this one instead of the one in /etc, and a reboot removes it."""
TREE = "/run/sparkrack/netplan"
"""Where netplan renders a candidate before anything acts on it."""
NETWORKD = "/run/systemd/network"
HEADERS = 28
"""IPv4 and ICMP headers (bytes): an echo of this much less than the MTU fills a frame."""


@dataclass(frozen=True)
class Live:
    """What an interface has right now. `addresses` are IPv4 with prefix length; `known`: it exists."""

    known: bool
    up: bool
    mtu: int
    addresses: frozenset[str]


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
        lines += [
            f"    {address.half.interface}:",
            f"      addresses: [{address.interface}]",
            f"      mtu: {rack.fabric.mtu}",
            "      dhcp4: false",
            "      dhcp6: false",
            "      accept-ra: false",
            "      optional: true",
        ]
    return ("\n".join(lines) + "\n").encode()


def interfaces(rack: Rack, node: Node) -> list[str]:
    """The fabric interfaces of a node that hold a cable."""
    return [address.half.interface for address in addresses_of(rack, node.name)]


def live(ip_json: str, names: list[str]) -> dict[str, Live]:
    """What `ip -j address` says of these interfaces. Raises ValueError when it is not what `ip` prints."""
    found: dict[str, Any] = {}
    for link in json.loads(ip_json):
        if link:
            found[link["ifname"]] = link
    return {name: _live(found.get(name)) for name in names}


def _live(link: Mapping[str, Any] | None) -> Live:
    if link is None:
        return Live(known=False, up=False, mtu=0, addresses=frozenset())
    addresses = {f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"] if a["family"] == "inet"}
    return Live(known=True, up="UP" in link["flags"], mtu=int(link["mtu"]), addresses=frozenset(addresses))


def faults(rack: Rack, node: Node, now: Mapping[str, Live]) -> list[str]:
    """What differs between the live interfaces and the rack, each in one line; empty when all is right."""
    lines = []
    for address in addresses_of(rack, node.name):
        name, state = address.half.interface, now[address.half.interface]
        if not state.known:
            lines.append(f"{name}: is not there")
            continue
        if not state.up:
            lines.append(f"{name}: is down")
        if state.mtu != rack.fabric.mtu:
            lines.append(f"{name}: mtu {state.mtu} -> {rack.fabric.mtu}")
        if state.addresses != {str(address.interface)}:
            was = ", ".join(sorted(state.addresses)) or "no address"
            lines.append(f"{name}: {was} -> {address.interface}")
    return lines


def missing(rack: Rack, node: Node, now: Mapping[str, Live]) -> list[str]:
    """Cabled interfaces that the node does not have at all, which no netplan file can mend."""
    return [name for name in interfaces(rack, node) if not now[name].known]


def foreign(listing: str, names: list[str]) -> list[str]:
    """Netplan files of others that have to do with one of these interfaces, from `path:line` matches.

    By name, by a pattern that matches it, or as a member of something. Two files for one port add up to something
    nobody wrote, so there must be none but ours.
    """
    found = set()
    for line in listing.splitlines():
        path, _, text = line.partition(":")
        if path in (KEPT, TRIED):
            continue
        for word in re.findall(r"en[\w*?\[\]-]*", text.partition("#")[0]):
            found |= {
                f"{path} defines {name}, which this rack manages; remove it there"
                for name in names
                if fnmatch.fnmatchcase(name, word)
            }
    return sorted(found)


def generate(candidate: bool) -> str:
    """Shell text that lets netplan render its files into a tree of their own, where nothing acts on them.

    The tree holds a copy of what netplan reads; with `candidate`, standard input (base64) is our file in it.
    """
    ours = f"base64 -d > {TREE}{TRIED}; chmod 600 {TREE}{TRIED}; " if candidate else ""
    return (
        # Readable inside, as networkd's user must read copies of what is rendered; the tree itself is root's alone.
        f"umask 022; rm -rf {TREE}; mkdir -p -m 700 {TREE}; mkdir -p {TREE}/etc/netplan {TREE}/run/netplan; "
        f"cp -a /etc/netplan/. {TREE}/etc/netplan/; [ ! -d /run/netplan ] || cp -a /run/netplan/. {TREE}/run/netplan/; "
        f"{ours}netplan generate --root-dir {TREE}"
    )


def activate(names: list[str]) -> str:
    """Shell text that makes the running system follow the tree for these interfaces.

    With systemd-networkd only their files are replaced: `netplan generate` would renew all of them, and networkd
    then reconfigures the management interface as well (measured). NetworkManager has no such way that is proven
    here, so there netplan does it, which reconnects every interface for about a second (reported).
    """
    copies = "; ".join(
        f"rm -f {NETWORKD}/10-netplan-{name}.*; "
        f'for f in {TREE}{NETWORKD}/10-netplan-{name}.*; do [ ! -e "$f" ] || cp -a "$f" {NETWORKD}/; done'
        for name in names
    )
    return (
        "if systemctl is-active --quiet NetworkManager; then netplan apply; else "
        f"mkdir -p {NETWORKD}; {copies}; networkctl reload; networkctl reconfigure {' '.join(names)}; fi; rm -rf {TREE}"
    )


def revert(now: Mapping[str, Live]) -> str:
    """The script that brings back what the interfaces had, with or without a file of ours in /etc."""
    names = sorted(now)
    lines = [f"rm -f {TRIED}", generate(candidate=False)]
    for name in names:
        lines += [f"ip address flush dev {name} scope global", f"ip link set {name} mtu {now[name].mtu}"]
    lines += [activate(names), "sleep 1"]  # networkd answers before it has acted
    for name in names:
        lines.append(f"ip link set {name} mtu {now[name].mtu} {'up' if now[name].up else 'down'}")
        lines += [f"ip address replace {address} dev {name}" for address in sorted(now[name].addresses)]
    return "\n".join(lines)


def echoes(rack: Rack, node: Node, peers: set[str]) -> list[tuple[Address, IPv4Address, str]]:
    """From each address of the node to each that it must reach on these peers: (from, to, the peer's half)."""
    return [
        (here, there.interface.ip, str(there.half))
        for here, there in reachable(rack)
        if here.half.node == node.name and there.half.node in peers
    ]


def proof(rack: Rack, node: Node, peers: set[str], seconds: int) -> str:
    """A script that succeeds when the fabric of a node works, and else prints what does not.

    Every address and MTU is live, and each peer answers full frames that must not be cut, on every half. Each of
    the two may take `seconds`: networkd acts after it has answered, a bridge or a neighbour entry needs a moment.
    """
    checks = []
    for address in addresses_of(rack, node.name):
        name, mtu = address.half.interface, rack.fabric.mtu
        has_address = f"ip -o address show dev {name} | grep -qF 'inet {address.interface} '"
        has_mtu = f'[ "$(cat /sys/class/net/{name}/mtu)" = {mtu} ]'
        checks.append(f"{has_address} || echo '{name} has not {address.interface}'")
        checks.append(f"{has_mtu} || echo '{name} has not mtu {mtu}'")
    lines = [
        "faults() {",
        *checks,
        "}",
        f'n=0; while [ -n "$(faults)" ] && [ $n -lt {seconds} ]; do n=$((n+1)); sleep 1; done',
        "fail=$(mktemp); trap 'rm -f $fail' EXIT; faults > $fail",
    ]
    for here, there, half in echoes(rack, node, peers):
        ping = f"ping -q -n -c 1 -W 1 -M do -s {rack.fabric.mtu - HEADERS} -I {here.half.interface} {there}"
        lines.append(
            f"( n=0; until {ping} >/dev/null 2>&1; do n=$((n+1)); [ $n -lt {seconds} ] || "
            f"{{ echo '{here.half} does not reach {half} ({there}) with full frames' >> $fail; break; }}; "
            "sleep 0.2; done ) &"
        )
    return "\n".join([*lines, "wait; cat $fail; [ ! -s $fail ]"])
