"""The links of a lab: management bridge, fabric bridge, a tap for each interface, a bridge for each direct cable."""

from __future__ import annotations

from lab import namespace as ns
from lab.layout import FABRIC, FRAME, MANAGEMENT, Layout
from lab.namespace import ip


def build(layout: Layout, namespace: str, owner: tuple[int, int], *, factory: bool = False) -> None:
    """Create the missing links of the lab. `factory`: the operator reaches a switch in factory state as well.

    Fabric taps of legs are left without a bridge: the emulated switch attaches them when they are configured correctly.
    Cables between nodes have no switch, so they are plugged in here.
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
    addresses = [layout.operator]
    if factory and layout.beside_the_box:
        addresses.append(layout.beside_the_box)
    for address in addresses:
        ip("address", "replace", str(address), "dev", MANAGEMENT, namespace=namespace)
    for switch in layout.rack.switches:
        # Always without ports: the kernel answers ARP requests on the management bridge for its addresses.
        bridge(layout.switch_link(switch), 1500)
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
