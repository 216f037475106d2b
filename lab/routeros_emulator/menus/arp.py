"""/ip/arp: the unit's clients, as it learned them. Read-only here; fields: MikroTik manual, 'ARP'."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.menu import EmulatedMenu, Values


def _list_rows(device: EmulatedDevice) -> Iterator[Values]:
    """All behind the bridge that has the unit's first address."""
    row = next(iter(device.store.rows("/ip/address")), None)
    interface = row.values["interface"] if row is not None else "bridge"
    for number, (address, mac) in enumerate(device.neighbours.addresses(), start=1):
        flags = {"dynamic": "true", "invalid": "false", "published": "false", "complete": "true"}
        known = {"address": address, "mac-address": mac, "interface": interface, "status": "reachable"}
        yield {".id": f"*{number:X}", **known, **flags, "disabled": "false", "dhcp": "false", "vrf": "main"}


ARP = EmulatedMenu("/ip/arp", rows=_list_rows)
