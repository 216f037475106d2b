"""The 34 interfaces of a CRS812: names, cages, ids and MAC addresses.

Names: MikroTik manual, 'Wired interface compatibility'. The order of ids and that MACs are consecutive in it
fit what was seen on two real units; it is inferred for the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from .modes import LANES


@dataclass(frozen=True)
class Port:
    """One sub-interface: its default name, and the lane of the cage it stands for (lane 1 outside QSFP)."""

    name: str
    cage: str
    kind: str
    lane: int

    @property
    def max_l2mtu(self) -> int:
        """Largest l2mtu in bytes (MikroTik manual, 'MTU in RouterOS')."""
        return 9586 if self.kind == "ether" else 9570


def _ports() -> Iterator[Port]:
    for number in (1, 2):
        yield Port(f"ether{number}", f"ether{number}", "ether", 1)
    for kind in ("qsfp56-dd", "qsfp56"):
        for number in (1, 2):
            for lane in range(1, LANES[kind] + 1):
                yield Port(f"{kind}-{number}-{lane}", f"{kind}-{number}", kind, lane)
    for number in range(1, 9):
        yield Port(f"sfp56-{number}", f"sfp56-{number}", "sfp56", 1)


#: All ports in the order of their ids.
PORTS = tuple(_ports())
PORT = {port.name: port for port in PORTS}
#: Ports of each cage, lane 1 first.
CAGE = {cage: tuple(p for p in PORTS if p.cage == cage) for cage in dict.fromkeys(p.cage for p in PORTS)}

FIRST_ID = 0x2


def mac(serial: str, port: Port) -> str:
    """The MAC address a unit of that serial number has on a port; units differ."""
    base = int.from_bytes(hashlib.sha256(serial.encode()).digest()[:2], "big") << 8
    text = f"D401C3{base + FIRST_ID + PORTS.index(port):06X}"
    return ":".join(text[at : at + 2] for at in range(0, 12, 2))
