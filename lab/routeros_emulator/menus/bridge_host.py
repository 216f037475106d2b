"""/interface/bridge/host: which address is behind which port."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.cabling import DEAF
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.link_wiring import WiringError
from lab.routeros_emulator.menu import EmulatedMenu, Values


def _list_heard_macs(device: EmulatedDevice) -> Iterator[tuple[str, str]]:
    """Yield the addresses of the nodes in the configuration, with the ports of their current links."""
    for socket in device.links.plant.sockets:
        port = device.links.interface(socket)
        if device.links.status(port).running and socket.state != DEAF:
            yield from ((mac, port) for mac in socket.macs)


def _list_hosts(device: EmulatedDevice) -> Iterator[Values]:
    """Addresses learned behind the ports, from the fabric and of the unit's own clients, and the ports' own."""
    number = 0
    tap_port = {tap: device.links.interface(socket) for socket in device.links.plant.sockets for tap in socket.taps}
    try:
        learned = device.wires.hosts()
    except (WiringError, OSError) as error:
        device.tell("system,error", f"wires: {error}")
        learned = ()
    entries = [(mac, port, False) for mac, port in _list_heard_macs(device)]
    entries += [(mac, tap_port[tap], False) for mac, tap in learned if tap in tap_port]
    entries += [(mac, port, False) for mac, port in device.neighbours.hosts()]
    entries += [(device.ethernet(p.name).values["mac-address"], p.name, True) for p in device.hardware.ports]
    for mac, default_name, local in entries:
        name = device.ethernet(default_name).values["name"]
        if member := device.membership(name):
            port = member.values["interface"]
            where = {"interface": port, "on-interface": port, "bridge": member.values["bridge"]}
            flags = {"dynamic": "true", "local": "true" if local else "false", "external": "false"}
            yield {".id": f"*{number:X}", "mac-address": mac, **where, **flags}
            number += 1
    yield from _list_learned_hosts(device, number)


def _list_learned_hosts(device: EmulatedDevice, number: int) -> Iterator[Values]:
    """The addresses that a test lets the chip learn. They may be 128 K, so a port is looked up once."""
    for port in dict.fromkeys(port for _, port in device.learned):
        name = device.ethernet(port).values["name"]
        member = device.membership(name)
        if member is None:
            continue
        where = {"interface": name, "on-interface": name, "bridge": member.values["bridge"]}
        flags = {"dynamic": "true", "local": "false", "external": "false"}
        for at, mac in enumerate((mac for mac, behind in device.learned if behind == port), start=number):
            yield {".id": f"*{at:X}", "mac-address": mac, **where, **flags}


BRIDGE_HOST = EmulatedMenu("/interface/bridge/host", rows=_list_hosts)
