"""Problems of a correctly configured switch: no write of a plan would fix them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.routeros.menus import BRIDGE, BRIDGE_PORT, ROUTERBOARD, Row
from core.routeros.reading import SwitchReading
from core.routeros.values import ValueKind, canonical
from switch.cages import masters_of

if TYPE_CHECKING:
    from core.model import Switch


def configured_but_broken(switch: Switch, reading: SwitchReading) -> tuple[str, ...]:
    """Return each problem in one line, with its fix; () = none."""
    return (*_second_bridge(switch, reading), *_by_cpu(switch, reading), *_firmware(reading))


def _second_bridge(switch: Switch, reading: SwitchReading) -> Iterator[str]:
    """The chip forwards for one bridge; the ports of any other go through the CPU, at a small part of their
    speed (MikroTik manual, 'Bridging and switching')."""
    others = [row["name"] for row in reading.rows(BRIDGE) if row.get("name") != switch.bridge and not _off(row)]
    for name in others if switch.cages else ():
        ports = [row["interface"] for row in reading.rows(BRIDGE_PORT) if row.get("bridge") == name]
        held = f"its ports: {', '.join(ports)}" if ports else "it has no ports"
        yield f"bridge {name} is a second bridge, and the chip forwards for one only ({held}); remove it"


def _by_cpu(switch: Switch, reading: SwitchReading) -> Iterator[str]:
    """`hw=yes` is only a request; whether the chip forwards is another field. Retraining can lose it (reported,
    RouterOS 7.23).
    """
    names = {reading.ethernet[name]["name"] for cage in switch.cages for name in masters_of(switch, cage)}
    for row in reading.rows(BRIDGE_PORT):
        offloaded = _flag(row, "hw", "yes") and not _off(row) and row.get("bridge") == switch.bridge
        if row.get("interface") in names and offloaded and not _flag(row, "hw-offload", "no"):
            yield (
                f"port {row['interface']} has lost its hardware offload: its packets go through the CPU; set hw=no "
                "and hw=yes on it again"
            )


def _firmware(reading: SwitchReading) -> Iterator[str]:
    board = reading.only(ROUTERBOARD)
    current, upgrade = board.get("current-firmware"), board.get("upgrade-firmware")
    if current and upgrade and current != upgrade:
        yield f"firmware of the board is {current}, RouterOS brings {upgrade}; /system/routerboard/upgrade, then reboot"


def _off(row: Row) -> bool:
    return _flag(row, "disabled", "no")


def _flag(row: Row, name: str, default: str) -> bool:
    try:
        return canonical(ValueKind.FLAG, row.get(name, default)) == "yes"
    except ValueError:
        return False
