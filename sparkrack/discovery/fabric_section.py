"""The fabric of a rack from the addresses that its nodes have. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

from core.model import VLAN_DEVICES, Cabling, Half
from core.model.addressing import CARVED, POOL, candidates, pool_need
from roles.fabric.desired import KEPT
from roles.fabric.foreign_netplan import adoption_blocker, contents, renderers
from roles.fabric.interface_owners import files_of_others, in_the_way, owners
from sparkrack.discovery.draft import Gap, majority
from sparkrack.discovery.node_facts import HalfFacts, NodeFacts


@dataclass
class FabricKeys:
    """The section `fabric`, the host numbers of nodes that have another one than their rank, notes by key, and what
    has no key. `found` is False when no node has any address on its fabric."""

    data: dict[str, Any] = field(default_factory=dict)
    hosts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    unrepresentable: list[Gap] = field(default_factory=list)
    found: bool = True

    def add_gap(self, key: str, why: str) -> None:
        self.unrepresentable.append(Gap(("fabric", key), why))


def keys(
    nodes: Mapping[str, NodeFacts], cabling: Cabling, switched: bool, taken: Collection[IPv4Address]
) -> FabricKeys:
    """The fabric of these nodes, in the order of their rank. `taken`: addresses of machines, which stand in no subnet
    of the fabric."""
    keys = FabricKeys()
    used = {half: facts for node in nodes.values() for half, facts in node.halves.items() if facts.addresses}
    keys.found = bool(used)
    sizes = {str(half): facts.mtu for half, facts in used.items()}
    if sizes:
        mtu, others = majority(sizes)
        keys.data["mtu"] = mtu
        for name, other in others.items():
            keys.add_gap("mtu", f"{name} has {other}, most have {mtu}")
    if switched or len(cabling.cables) < 2:
        _describe_subnets(keys, nodes, used, taken)
        _write_vlans(keys, used, switched)
    else:
        _write_pool(keys, cabling, used, taken)
    _write_netplan_files(keys, nodes)
    known = {name: node.hotplug for name, node in nodes.items() if node.hotplug is not None}
    if known:
        hotplug, others = majority(known)
        if others:
            keys.add_gap("hotplug", f"on some nodes it is on: {', '.join(name for name, on in known.items() if on)}")
        elif hotplug:
            keys.data["hotplug"] = True
    return keys


def _first_address(facts: HalfFacts | None) -> IPv4Interface | None:
    return facts.addresses[0] if facts and facts.addresses else None


def _describe_subnets(
    keys: FabricKeys,
    nodes: Mapping[str, NodeFacts],
    used: Mapping[Half, HalfFacts],
    taken: Collection[IPv4Address],
) -> None:
    """A subnet for each half, and the number of each node in both."""
    nets: list[IPv4Network | None] = [None, None]
    own: dict[str, dict[int, int]] = {}
    for index in (0, 1):
        there = {
            half.node: one for half, facts in used.items() if half.index == index if (one := _first_address(facts))
        }
        nets[index] = _found_subnet(keys, index, there, taken) if there else None
        for name, one in there.items():
            if (net := nets[index]) and one.network == net:
                own.setdefault(name, {})[index] = int(one.ip) - int(net.network_address)
    if nets[0] and nets[1] and nets[0].overlaps(nets[1]):
        keys.add_gap("subnets", f"both halves are in {nets[0]}: answers leave by the wrong one, so each gets its own")
        nets[1] = None
    addressed = {half.index for half, facts in used.items() if facts.addresses}
    highest = max((number for numbers in own.values() for number in numbers.values()), default=0)
    _choose_missing_subnets(keys, nets, addressed, highest, taken)
    keys.data["subnets"] = [str(net) for net in nets]
    if not keys.found:
        keys.notes["subnets"] = (
            "chosen by sparkrack init, since no address of the fabric can be kept"
            if addressed
            else "chosen by sparkrack init, which found no address on the fabric"
        )
    for half, facts in used.items():
        if len(facts.addresses) > 1:
            keys.add_gap("subnets", f"{half} has several addresses: {', '.join(map(str, facts.addresses))}")
    _write_host_numbers(keys, nodes, own)


def _found_subnet(
    keys: FabricKeys, index: int, there: Mapping[str, IPv4Interface], taken: Collection[IPv4Address]
) -> IPv4Network | None:
    """Return the subnet of most addresses of one half, unless it cannot be kept. `there`: the addresses by node."""
    net: IPv4Network
    net, others = majority({name: one.network for name, one in there.items()})
    if why := _why_unfit(net, taken):
        keys.add_gap("subnets", f"{net}, where half {index} of the ports is, {why}")
        return None
    for name, other in others.items():
        keys.add_gap("subnets", f"half {index} of {name} is in {other}, others are in {net}")
    return net


def _choose_missing_subnets(
    keys: FabricKeys,
    nets: list[IPv4Network | None],
    addressed: Collection[int],
    highest: int,
    taken: Collection[IPv4Address],
) -> None:
    """Give each half without a subnet one that is free. `addressed`: the halves with addresses. `highest`: the highest
    number of a node, which has to fit."""
    free = (
        net
        for net in (*candidates(), *_LARGE)
        if not _why_unfit(net, taken)
        and not any(other and other.overlaps(net) for other in nets)
        and highest < net.num_addresses - 1
    )
    for index in (0, 1):
        if nets[index] is not None:
            continue
        nets[index] = next(free)
        if index in addressed:
            keys.add_gap("subnets", f"{nets[index]} was chosen for half {index} of the ports")
        elif keys.found:
            keys.add_gap("subnets", f"half {index} of the ports has no address; {nets[index]} was chosen for it")


def _write_host_numbers(keys: FabricKeys, nodes: Mapping[str, NodeFacts], own: Mapping[str, Mapping[int, int]]) -> None:
    """Numbers are written where rank does not give them; one that another node has is not."""
    numbers: dict[str, int] = {}
    for rank, name in enumerate(nodes, 1):
        found = own.get(name, {})
        if found.get(0) != found.get(1) and len(found) == 2:
            keys.add_gap("subnets", f"{name} is host {found[0]} in one subnet and host {found[1]} in the other")
        if found:
            numbers[name] = next(iter(found.values()))
            if numbers[name] != rank:
                keys.hosts[name] = numbers[name]
    # A node without an address takes the number of its rank, which another node may have.
    for rank, name in enumerate(nodes, 1):
        if name not in numbers and rank in numbers.values():
            free = next(number for number in range(1, 255) if number not in numbers.values())
            numbers[name] = keys.hosts[name] = free
        numbers.setdefault(name, rank)


_LARGE = tuple(IPv4Network(f"10.{220 + number}.0.0/16") for number in range(20))
"""Subnets for a rack that was in one large network, whose numbers of hosts a /24 does not have."""


def _why_unfit(net: IPv4Network, taken: Collection[IPv4Address]) -> str | None:
    if not 8 <= net.prefixlen <= 30:
        return "has an unfit size"
    if any(address in net for address in taken):
        return "has machines in it by their management address"
    if net.is_loopback or net.is_link_local or net.is_multicast:
        return "cannot be used between machines"
    return None


def _write_vlans(keys: FabricKeys, used: Mapping[Half, HalfFacts], switched: bool) -> None:
    found: list[int | None] = []
    for index in (0, 1):
        numbers = {str(half): facts.vlan for half, facts in used.items() if half.index == index}
        common, others = majority(numbers) if numbers else (None, {})
        found.append(common)
        for name, other in others.items():
            keys.add_gap("vlans", f"{name} is on VLAN {other or 'none'}, others on {common or 'none'}")
    if found == [None, None]:
        return
    if None in found or found[0] == found[1] or not switched:
        keys.add_gap("vlans", f"the halves are on VLANs {found[0] or 'none'} and {found[1] or 'none'}; two are needed")
        return
    keys.data["vlans"] = found
    for half, facts in used.items():
        if facts.vlan and facts.device != VLAN_DEVICES[half.index]:
            keys.add_gap("vlans", f"{half} has its VLAN as {facts.device}; a run makes {VLAN_DEVICES[half.index]}")


def _write_pool(
    keys: FabricKeys, cabling: Cabling, used: Mapping[Half, HalfFacts], taken: Collection[IPv4Address]
) -> None:
    """A subnet for each half of each cable, carved from one pool in the order of the cables."""
    keys.data["pool"] = str(POOL)
    nets = [one.network for facts in used.values() if (one := _first_address(facts))]
    if not nets:
        keys.notes["pool"] = "chosen by sparkrack init, which found no address on the fabric"
        return
    first = min(nets)
    need = pool_need(cabling)
    length = CARVED - (need - 1).bit_length()
    pool = IPv4Network((int(first.network_address) & ~((1 << (32 - length)) - 1), length))
    why = _why_unfit(pool, taken)
    if pool.network_address != first.network_address or {net.prefixlen for net in nets} != {CARVED}:
        why = f"the subnets from {first} on are not carved from one pool"
    if why:
        keys.add_gap("pool", f"{pool}: {why}; a run gives every half another address, from {POOL}")
        return
    keys.data["pool"] = str(pool)


def _write_netplan_files(keys: FabricKeys, nodes: Mapping[str, NodeFacts]) -> None:
    """Netplan files of others that define the fabric: they are taken over, or stay in the way."""
    adopted: set[str] = set()
    halves = [Half("", port, index).interface for port in (0, 1) for index in (0, 1)]
    for name, node in nodes.items():
        try:
            held, rendered, found = contents(node.whole), renderers(node.rendering), owners(node.owners)
            theirs = files_of_others(node.naming, held, found.devices, halves)
        except ValueError as fault:
            keys.add_gap("adopt", f"{name}: {fault}")
            continue
        for path in theirs:
            why = adoption_blocker(path, held.get(path), rendered)
            if why:
                keys.add_gap("adopt", f"{name}: {path} cannot be taken over, {why}; a run refuses this node")
            else:
                keys.data["adopt"] = True
                adopted.add(path)
        for line in in_the_way(found, halves, theirs, ours=f"{KEPT}:" in node.naming):
            keys.add_gap("adopt", f"{name}: {line}; a run refuses this node")
    if adopted:
        files = ", ".join(sorted(adopted))
        keys.notes["adopt"] = f"{files}: of others, stays while nothing differs, and is taken over otherwise"
