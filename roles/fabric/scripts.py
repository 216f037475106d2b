"""Shell texts to change the fabric of a node, to revert the change, and to check it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from shlex import join, quote

from core.model import VLAN_DEVICES, Address, Node, Rack, reachable
from roles.fabric.desired import HEADERS, TRIED, InterfaceState, Vlan, stale_vlans, uncabled_halves, wanted

TREE = "/run/sparkrack/netplan"
"""Folder in which netplan renders a candidate before it has any effect."""
NETWORKD = "/run/systemd/network"


def generate(candidate: bool, adopted: Iterable[str] = ()) -> str:
    """Shell text that lets netplan render its files into a tree of their own, where nothing acts on them.

    The tree holds a copy of what netplan reads; with `candidate`, standard input (base64) is our file in it.
    `adopted`: files of others that are not there in it.
    """
    without = f"rm -f {join(TREE + path for path in adopted)}; " if adopted else ""
    ours = f"base64 -d > {TREE}{TRIED}; chmod 600 {TREE}{TRIED}; " if candidate else ""
    return (
        # Readable inside, as networkd's user must read copies of rendered files; the tree itself is root's alone.
        f"umask 022; rm -rf {TREE}; mkdir -p -m 700 {TREE}; mkdir -p {TREE}/etc/netplan {TREE}/run/netplan; "
        f"cp -a /etc/netplan/. {TREE}/etc/netplan/; [ ! -d /run/netplan ] || cp -a /run/netplan/. {TREE}/run/netplan/; "
        f"{without}{ours}netplan generate --root-dir {TREE}"
    )


def activate(
    target: Mapping[str, InterfaceState], now: Mapping[str, InterfaceState], entries: Iterable[str] = ()
) -> str:
    """Return shell text that makes the running system follow the tree for these interfaces.

    With systemd-networkd only their files are replaced: `netplan generate` would renew all of them, and networkd then
    reconfigures the management interface as well (measured). For NetworkManager no such method was verified, so netplan
    itself applies there, which reconnects every interface for about a second (reported).

    VLAN interfaces are removed and created here. networkd does not remove one that is in no file any more, does not
    change an existing one, and systemd 255 creates a removed one again with its old number (systemd issue 34907). It
    adopts one that was created by another program only when its units were loaded before; otherwise it fails at the
    interface below (measured). After a boot it creates them itself.

    `entries`: those of files that are taken over whose names are not that of their interface. Their rendered files may
    come before ours, and the first file that matches an interface is in force.
    """
    stale = [name for name, was in now.items() if was.tag and (name not in target or target[name].tag != was.tag)]
    lines = [f"ip link delete {name}; " for name in stale]
    # claim: fabric.networkmanager, fabric.vlans.networkmanager
    lines.append(f"if systemctl is-active --quiet NetworkManager; then netplan apply; else mkdir -p {NETWORKD}; ")
    # claim: fabric.vlans.networkd
    vlans = {name: want.tag for name, want in target.items() if want.tag}
    made = {name: tag for name, tag in vlans.items() if now[name].tag != tag}
    if made:
        lines.append(f"{_copy_networkd_files(made)}; networkctl reload; ")
    # A VLAN interface cannot have a larger MTU than the one it is on, which networkd may set later.
    lines += [f"ip link set {tag.link} mtu {target[tag.link].mtu}; " for tag in vlans.values() if tag.link in target]
    lines += [f"{_make_vlan_interface(name, tag)}; " for name, tag in made.items()]
    moved = uncabled_halves(target, now)
    copied = _copy_networkd_files([*target, *stale_vlans(target, now), *moved, *entries])
    lines.append(f"{copied}; networkctl reload; networkctl reconfigure {' '.join(target)}; fi; ")
    # networkd lets go of an interface that no file has any more, and leaves its addresses where they are.
    lines += [f"ip address flush dev {name} scope global; " for name in moved]
    return "".join([*lines, f"rm -rf {TREE}"])


def _copy_networkd_files(names: Iterable[str]) -> str:
    return "; ".join(
        f"rm -f {NETWORKD}/10-netplan-{quote(name)}.*; "
        f'for f in {TREE}{NETWORKD}/10-netplan-{quote(name)}.*; do [ ! -e "$f" ] || cp -a "$f" {NETWORKD}/; done'
        for name in names
    )


def _make_vlan_interface(name: str, tag: Vlan) -> str:
    """Make a VLAN interface, unless networkd was faster; whether it is the right one is looked at afterwards."""
    there = f"[ -e /sys/class/net/{name} ]"
    made = f"ip link add link {tag.link} name {name} type vlan protocol {tag.protocol} id {tag.number}"
    return f"{there} || {made} || {there}"


def deconfigure(now: Mapping[str, InterfaceState]) -> list[str]:
    """Shell texts that take from a node's interfaces what was ours: VLANs go, halves lose their addresses."""
    return [
        f"ip link delete {name}" if name in VLAN_DEVICES else f"ip address flush dev {name} scope global"
        for name, was in now.items()
        if was.known
    ]


def deactivate(now: Mapping[str, InterfaceState]) -> str:
    """Return shell text that makes the running system follow a tree in which nothing of ours is: as `activate`, for
    interfaces that lose what they had.
    """
    halves = [name for name in sorted(now) if name not in VLAN_DEVICES]
    lines = [f"ip link delete {name} 2> /dev/null || true; " for name in now if name in VLAN_DEVICES]
    lines.append(f"if systemctl is-active --quiet NetworkManager; then netplan apply; else mkdir -p {NETWORKD}; ")
    lines.append(f"{_copy_networkd_files(now)}; networkctl reload; fi; ")
    # networkd lets go of an interface that no file has any more, and leaves its addresses and MTU as they are.
    lines += [f"ip address flush dev {name} scope global; ip link set {name} mtu 1500; " for name in halves]
    return "".join([*lines, f"rm -rf {TREE}"])


def shadow(adopted: Iterable[str], content: str) -> str:
    """Shell text that hides files of /etc/netplan until the next boot; `content` (base64) is read in their place."""
    return "".join(
        f"echo {content} | base64 -d > {quote(hidden(path))}; chmod 600 {quote(hidden(path))}; " for path in adopted
    )


def hidden(path: str) -> str:
    """Return the path of the file that netplan reads instead of this one of /etc."""
    return "/run/netplan/" + path.rpartition("/")[2]


def revert(now: Mapping[str, InterfaceState], adopted: Iterable[str] = (), entries: Iterable[str] = ()) -> str:
    """The script that brings back what the interfaces had, with or without a file of ours in /etc. `entries`: as in
    `activate`."""
    halves, vlans = [[name for name in sorted(now) if (name in VLAN_DEVICES) == of] for of in (False, True)]
    had = {name: now[name] for name in [*halves, *vlans] if now[name].known}
    lines = [f"rm -f {join([TRIED, *map(hidden, adopted)])}", generate(candidate=False)]
    # Delete all VLANs regardless of their state: the earlier ones are created again.
    lines += [f"ip link delete {name}" for name in vlans]
    for name in halves:
        lines += [f"ip address flush dev {name} scope global", f"ip link set {name} mtu {now[name].mtu}"]
    # networkd answers before it has acted
    lines += [activate(had, {name: replace(was, tag=None) for name, was in now.items()}, entries), "sleep 1"]
    for name, was in had.items():
        lines += [_make_vlan_interface(name, was.tag)] if was.tag else []
        lines.append(f"ip link set {name} mtu {was.mtu} {'up' if was.up else 'down'}")
        lines += [f"ip address replace {address} dev {name}" for address in sorted(was.addresses)]
    return "\n".join(lines)


def echoes(rack: Rack, node: Node, peers: set[str]) -> list[tuple[Address, IPv4Address, str]]:
    """From each address of the node to each that it must reach on these peers: (from, to, the peer's half)."""
    return [
        (here, there.interface.ip, str(there.half))
        for here, there in reachable(rack, node.name)
        if there.half.node in peers
    ]


def proof(rack: Rack, node: Node, now: Mapping[str, InterfaceState], peers: set[str], seconds: int) -> str:
    """A script that succeeds when the fabric of a node works, and else prints what does not.

    Every address, MTU and VLAN is live, and each peer answers full frames that must not be cut, on every half. Each of
    the two may take `seconds`: networkd acts after it has answered, a bridge or a neighbour entry needs a moment.
    `now`: what was there before; a VLAN interface of it that is wanted no longer must be gone.
    """
    target = wanted(rack, node)
    checks = [check for name, want in target.items() for check in _interface_checks(name, want)]
    checks += [f"[ ! -e /sys/class/net/{name} ] || echo '{name} is still there'" for name in stale_vlans(target, now)]
    checks += [_refuse_addresses(name) for name in uncabled_halves(target, now)]
    lines = [
        "faults() {",
        *checks,
        "}",
        f'n=0; while [ -n "$(faults)" ] && [ $n -lt {seconds} ]; do n=$((n+1)); sleep 1; done',
        "fail=$(mktemp); trap 'rm -f $fail' EXIT; faults > $fail",
    ]
    for here, there, half in echoes(rack, node, peers):
        ping = f"ping -q -n -c 1 -W 1 -M do -s {rack.fabric.mtu - HEADERS} -I {here.device} {there}"
        lines.append(
            f"( n=0; until {ping} >/dev/null 2>&1; do n=$((n+1)); [ $n -lt {seconds} ] || "
            f"{{ echo '{here.half} does not reach {half} ({there}) with full frames' >> $fail; break; }}; "
            "sleep 0.2; done ) &"
        )
    return "\n".join([*lines, "wait; cat $fail; [ ! -s $fail ]"])


def _refuse_addresses(name: str) -> str:
    return f"[ -z \"$(ip -o -4 address show dev {name})\" ] || echo '{name} still has an address'"


def _interface_checks(name: str, want: InterfaceState) -> list[str]:
    lines = [
        f"ip -o address show dev {name} | grep -qF 'inet {address} ' || echo '{name} has not {address}'"
        for address in want.addresses
    ]
    if not want.addresses:
        lines.append(_refuse_addresses(name))
    lines.append(f"[ \"$(cat /sys/class/net/{name}/mtu)\" = {want.mtu} ] || echo '{name} has not mtu {want.mtu}'")
    if want.tag:
        shown = f" {name}@{want.tag.link}: .* protocol {want.tag.protocol} id {want.tag.number} "
        lines.append(f"ip -d -o link show dev {name} | grep -q '{shown}' || echo '{name} is not {want.tag}'")
    return lines
