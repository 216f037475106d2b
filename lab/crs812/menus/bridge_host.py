"""/interface/bridge/host: which address is behind which port."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import Device
from ..links import interface
from ..menu import Menu, Values
from ..plant import DEAF
from ..ports import PORTS
from ..wires import WireError


def _heard(device: Device) -> Iterator[tuple[str, str]]:
    """The addresses that the configuration says nodes have, behind the ports they have a link to now."""
    for socket in device.links.plant.sockets:
        port = interface(socket)
        if device.links.status(port).running and socket.state != DEAF:
            yield from ((mac, port) for mac in socket.macs)


def _hosts(device: Device) -> Iterator[Values]:
    """Addresses learned behind the ports, from the fabric and of the unit's own clients, and the ports' own."""
    number = 0
    tap_port = {tap: interface(socket) for socket in device.links.plant.sockets for tap in socket.taps}
    try:
        learned = device.wires.hosts()
    except (WireError, OSError) as error:
        device.tell("system,error", f"wires: {error}")
        learned = ()
    entries = [(mac, port, False) for mac, port in _heard(device)]
    entries += [(mac, tap_port[tap], False) for mac, tap in learned if tap in tap_port]
    entries += [(mac, port, False) for mac, port in device.neighbours.hosts()]
    entries += [(device.ethernet(p.name).values["mac-address"], p.name, True) for p in PORTS]
    for mac, default_name, local in entries:
        name = device.ethernet(default_name).values["name"]
        if member := device.membership(name):
            where = {"interface": name, "on-interface": name, "bridge": member.values["bridge"]}
            flags = {"dynamic": "true", "local": "true" if local else "false", "external": "false"}
            yield {".id": f"*{number:X}", "mac-address": mac, **where, **flags}
            number += 1


BRIDGE_HOST = Menu("/interface/bridge/host", rows=_hosts)
