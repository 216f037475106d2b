"""The interfaces of each model: names, cages, ids and MAC addresses.

Names: MikroTik manual, 'Wired interface compatibility', and for the CRS804 published configurations. The order of ids
and that MACs are consecutive in it fit what was seen on two real CRS812; it is inferred for the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from lab.routeros_emulator.link_modes import LANES

FIRST_ID = 0x2


@dataclass(frozen=True)
class EmulatedPort:
    """One sub-interface: its default name, and the lane of the cage it stands for (lane 1 outside QSFP)."""

    name: str
    cage: str
    kind: str
    lane: int

    @property
    def max_l2mtu(self) -> int:
        """Largest l2mtu in bytes (MikroTik manual, 'MTU in RouterOS')."""
        return 9586 if self.kind == "ether" else 9570


@dataclass(frozen=True)
class EmulatedModel:
    """A model by what its board says, the kinds of its ports with how many there are, in the order of their ids, and
    how many fans it has."""

    board: str
    kinds: tuple[tuple[str, int], ...]
    fans: int

    @property
    def title(self) -> str:
        """Its short name, "CRS812"."""
        return self.board.partition("-")[0]

    @cached_property
    def ports(self) -> tuple[EmulatedPort, ...]:
        """All ports in the order of their ids."""
        return tuple(port for kind, count in self.kinds for port in _make_ports(kind, count))

    @cached_property
    def by_name(self) -> dict[str, EmulatedPort]:
        """The ports by default name."""
        return {port.name: port for port in self.ports}

    @cached_property
    def by_cage(self) -> dict[str, tuple[EmulatedPort, ...]]:
        """The ports of each cage, lane 1 first; an RJ45 port is a cage of its own."""
        cages = dict.fromkeys(port.cage for port in self.ports)
        return {cage: tuple(port for port in self.ports if port.cage == cage) for cage in cages}

    @cached_property
    def cages(self) -> dict[str, str]:
        """The kind of each cage by its name, without the RJ45 ports."""
        return {cage: ports[0].kind for cage, ports in self.by_cage.items() if ports[0].kind != "ether"}

    def mac(self, serial: str, port: EmulatedPort) -> str:
        """The MAC address a unit of that serial number has on a port; units differ."""
        base = int.from_bytes(hashlib.sha256(serial.encode()).digest()[:2], "big") << 8
        text = f"D401C3{base + FIRST_ID + self.ports.index(port):06X}"
        return ":".join(text[at : at + 2] for at in range(0, 12, 2))


def _make_ports(kind: str, count: int) -> Iterator[EmulatedPort]:
    for number in range(1, count + 1):
        if LANES[kind] == 1:
            name = f"{kind}{number}" if kind == "ether" else f"{kind}-{number}"
            yield EmulatedPort(name, name, kind, 1)
        for lane in range(1, LANES[kind] + 1) if LANES[kind] > 1 else ():
            yield EmulatedPort(f"{kind}-{number}-{lane}", f"{kind}-{number}", kind, lane)


CRS812 = EmulatedModel("CRS812-8DS-2DQ-2DDQ", (("ether", 2), ("qsfp56-dd", 2), ("qsfp56", 2), ("sfp56", 8)), fans=4)
CRS804 = EmulatedModel("CRS804-4DDQ", (("ether", 2), ("qsfp56-dd", 4)), fans=2)
MODELS = {model.board: model for model in (CRS812, CRS804)}
