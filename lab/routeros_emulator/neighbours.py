"""External peers of the unit: the addresses and MACs of its clients, and the port of each.

The emulator runs on the clients' own machine, where there is no Ethernet between them. A client's MAC is therefore
constructed: locally administered, and always the same for the same address.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from lab.routeros_emulator.ports import EmulatedModel

#: Port of the management network (links.py), and of clients by default.
DEFAULT = "ether1"
#: More addresses than this are forgotten, oldest first.
_LIMIT = 256


def made_up_mac(address: str) -> str:
    """The MAC that stands for a client's address."""
    digest = hashlib.sha256(address.encode()).digest()
    return ":".join(f"{byte:02X}" for byte in (0x02, *digest[:5]))


class Neighbours:
    """The clients seen since the start, by address, oldest first."""

    def __init__(self, hardware: EmulatedModel) -> None:
        self._hardware = hardware
        self._ports: OrderedDict[str, str] = OrderedDict()
        self._moved: dict[str, str] = {}

    def seen(self, address: str) -> None:
        """A client of that address connected."""
        self._ports[address] = self._moved.get(address, DEFAULT)
        while len(self._ports) > _LIMIT:
            self._ports.popitem(last=False)

    def move(self, address: str, port: str) -> None:
        """A client is behind another port from now on (default name). Raises KeyError for no port."""
        self._moved[address] = self._hardware.by_name[port].name
        if address in self._ports:
            self._ports[address] = port

    def forget(self) -> None:
        """Forget all clients and their ports."""
        self._ports.clear()
        self._moved.clear()

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """(address, MAC) of every client seen."""
        return tuple((address, made_up_mac(address)) for address in self._ports)

    def hosts(self) -> tuple[tuple[str, str], ...]:
        """(MAC, default name of the port it is learned on) of every client seen."""
        return tuple((made_up_mac(address), port) for address, port in self._ports.items())
