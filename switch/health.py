"""Problems of a correctly configured switch: no write of a plan would fix them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.routeros.menus import BRIDGE, BRIDGE_PORT, ROUTERBOARD
from core.routeros.reading import SwitchReading
from switch.desired.bridge import legs_on_device
from switch.desired.menu_rows import DeviceContext
from switch.flags import is_yes

if TYPE_CHECKING:
    from core.model import Switch


def configured_but_broken(switch: Switch, reading: SwitchReading) -> tuple[str, ...]:
    """Return each problem in one line, with its fix; () = none."""
    return (*_second_bridge(switch, reading), *_by_cpu(switch, reading), *_list_firmware_problems(reading))


def _second_bridge(switch: Switch, reading: SwitchReading) -> Iterator[str]:
    """The chip forwards for one bridge; `hw` of the ports selects which (MikroTik manual, 'Bridging and switching').

    A second bridge without a leg and without a port that asks for the chip is a usual one for management. It may have
    the address of the unit, or carry the session of this very run, so its removal is never advised.
    """
    others = [
        row["name"] for row in reading.rows(BRIDGE) if row.get("name") != switch.bridge and not is_yes(row, "disabled")
    ]
    legs = set(_leg_names(switch, reading))
    for name in others if switch.cages else ():
        ports = [row for row in reading.rows(BRIDGE_PORT) if row.get("bridge") == name and not is_yes(row, "disabled")]
        asking = [row.get("interface", "") for row in ports if is_yes(row, "hw", "yes")]
        held = [row.get("interface", "") for row in ports if row.get("interface") in legs]
        if asking or held:
            ask = f"its ports {', '.join(asking)} have hw=yes" if asking else f"its port {', '.join(held)} is a leg"
            yield (
                f"bridge {name} is a second bridge, and the chip forwards for one only ({ask}); set hw=no on its "
                f"ports, so that the CPU forwards for them, or make them ports of {switch.bridge}"
            )


def _leg_names(switch: Switch, reading: SwitchReading) -> tuple[str, ...]:
    return legs_on_device(switch, DeviceContext.of(reading))


def _by_cpu(switch: Switch, reading: SwitchReading) -> Iterator[str]:
    """`hw=yes` is only a request; whether the chip forwards is another field. Retraining can lose it (reported,
    RouterOS 7.23).
    """
    names = _leg_names(switch, reading)
    for row in reading.rows(BRIDGE_PORT):
        offloaded = is_yes(row, "hw", "yes") and not is_yes(row, "disabled") and row.get("bridge") == switch.bridge
        if row.get("interface") in names and offloaded and not is_yes(row, "hw-offload"):
            yield (
                f"port {row['interface']} has lost its hardware offload: its packets go through the CPU; set hw=no "
                "and hw=yes on it again"
            )


def _list_firmware_problems(reading: SwitchReading) -> Iterator[str]:
    board = reading.only(ROUTERBOARD)
    current, upgrade = board.get("current-firmware"), board.get("upgrade-firmware")
    if current and upgrade and current != upgrade:
        yield f"firmware of the board is {current}, RouterOS brings {upgrade}; /system/routerboard/upgrade, then reboot"
