"""What is configured as declared and does not work: no write of a plan would mend it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .cages import masters_of
from .menus import BRIDGE, BRIDGE_PORT, ROUTERBOARD, Row
from .reading import Reading
from .values import Kind, canonical

if TYPE_CHECKING:
    from sparkrack.fleet import Switch


def faults(switch: Switch, reading: Reading) -> tuple[str, ...]:
    """Each fault in one line, with what would mend it; () = none."""
    return (*_second_bridge(switch, reading), *_by_cpu(switch, reading), *_firmware(reading))


def _second_bridge(switch: Switch, reading: Reading) -> Iterator[str]:
    """The chip forwards for one bridge; the ports of any other go through the CPU, at a small part of their
    speed (MikroTik manual, 'Bridging and switching')."""
    others = [row["name"] for row in reading.rows(BRIDGE) if row.get("name") != switch.bridge and not _off(row)]
    for name in others if switch.cages else ():
        ports = [row["interface"] for row in reading.rows(BRIDGE_PORT) if row.get("bridge") == name]
        held = f"its ports: {', '.join(ports)}" if ports else "it has no ports"
        yield f"bridge {name} is a second bridge, and the chip forwards for one only ({held}); remove it"


def _by_cpu(switch: Switch, reading: Reading) -> Iterator[str]:
    """`hw=yes` is a wish; whether the chip does it is another field. Retraining can lose it (reported,
    RouterOS 7.23)."""
    names = {reading.ethernet[name]["name"] for cage in switch.cages for name in masters_of(switch, cage)}
    for row in reading.rows(BRIDGE_PORT):
        wished = _flag(row, "hw", "yes") and not _off(row) and row.get("bridge") == switch.bridge
        if row.get("interface") in names and wished and not _flag(row, "hw-offload", "no"):
            yield (
                f"port {row['interface']} has lost its hardware offload: its packets go through the CPU; set hw=no "
                "and hw=yes on it again"
            )


def _firmware(reading: Reading) -> Iterator[str]:
    board = reading.only(ROUTERBOARD)
    current, upgrade = board.get("current-firmware"), board.get("upgrade-firmware")
    if current and upgrade and current != upgrade:
        yield f"firmware of the board is {current}, RouterOS brings {upgrade}; /system/routerboard/upgrade, then reboot"


def _off(row: Row) -> bool:
    return _flag(row, "disabled", "no")


def _flag(row: Row, name: str, default: str) -> bool:
    try:
        return canonical(Kind.FLAG, row.get(name, default)) == "yes"
    except ValueError:
        return False
