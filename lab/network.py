"""The links of a lab: management bridge, fabric bridge, a tap for each interface, a bridge for each direct cable."""

from __future__ import annotations

from lab import namespace as ns
from lab.layout import FABRIC, FRAME, MANAGEMENT, Layout
from lab.namespace import ip


def build(layout: Layout, namespace: str, owner: tuple[int, int]) -> None:
    """Make whatever of the lab's links is missing.

    Fabric taps of legs are left without a bridge: the emulated switch attaches them when they are configured
    right. Cables between nodes have no switch, so they are plugged in here.
    """
    there = ns.links(namespace)

    def bridge(name: str, mtu: int) -> None:
        if name not in there:
            # No multicast snooping: nothing here asks for groups, so neighbour discovery would be dropped.
            ip("link", "add", name, "type", "bridge", "mcast_snooping", "0", namespace=namespace)
        ip("link", "set", name, "mtu", str(mtu), "up", namespace=namespace)

    def tap(name: str, mtu: int, master: str | None) -> None:
        if name in there:
            return
        uid, gid = owner
        ip("tuntap", "add", name, "mode", "tap", "user", str(uid), "group", str(gid), namespace=namespace)
        join = ["master", master] if master else []
        ip("link", "set", name, "mtu", str(mtu), *join, "up", namespace=namespace)

    bridge(MANAGEMENT, 1500)
    addresses = {str(layout.operator)}
    addresses |= {f"{s.address}/{layout.management.prefixlen}" for s in layout.rack.switches.values()}
    for address in sorted(addresses):
        ip("address", "replace", address, "dev", MANAGEMENT, namespace=namespace)
    if layout.rack.switches:
        bridge(FABRIC, FRAME)
    masters: dict[str, str] = {}
    for stem, cable in layout.direct_cables:
        for index in (0, 1):
            bridge(f"{stem}h{index}", FRAME)
            masters |= {layout.taps(port)[index]: f"{stem}h{index}" for port in cable.ports}
    for node in layout.rack.nodes:
        tap(layout.management_tap(node), 1500, MANAGEMENT)
        for wire in layout.wires(node):
            tap(wire.tap, FRAME, masters.get(wire.tap))
