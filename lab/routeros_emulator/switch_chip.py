"""State of the switch chip outside of the tables: its counters, and ports whose hardware offload is stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lab.routeros_emulator.counters import COUNTERS, QOS_COUNTERS
from lab.routeros_emulator.store import StoreAction

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice

_KNOWN = frozenset(COUNTERS) | frozenset(QOS_COUNTERS)


class SwitchChip:
    """Counters by interface (default name), as the test knobs increase them, and stale ports.

    ``stale`` are ports in a stale offload group, as reported from a CRS804 and a CRS812 on 7.23 and 7.24rc4 after links
    were retrained: the flags still show offloaded, and frames reach the CPU only. Writing hw=no fixes that; with hw=yes
    afterwards the chip forwards again. ``retrains``: every link that comes up after a restart of its cage becomes
    stale. ``quiet``: no frames except those that a test counts.
    """

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device
        self._counters: dict[str, Counter[str]] = {name: Counter() for name in device.hardware.by_name}
        self.stale: set[str] = set()
        self.retrains = self.quiet = False
        device.store.observers.append(self._follow_action)

    def bump(self, interface: str, counters: Mapping[str, int]) -> None:
        """Let counters of an interface (default name) grow. KeyError: no such interface or counter."""
        for name in counters:
            if name not in _KNOWN:
                raise KeyError(f"there is no counter {name}")
        self._counters[interface].update({name: int(more) for name, more in counters.items()})

    def counter(self, interface: str, name: str) -> int:
        """Return the increase of a counter since the start or the last reset."""
        return self._counters[interface][name]

    def reset(self, interface: str) -> None:
        """Reset all counters of an interface."""
        self._counters[interface].clear()

    def trained(self, cage: str) -> None:
        """Handle retrained links of a cage."""
        if self.retrains:
            self.stale.update(port.name for port in self._device.hardware.by_cage[cage])

    def lose_offload(self, interface: str) -> None:
        """Let a port's offload go stale. KeyError: no such interface."""
        self.stale.add(self._device.hardware.by_name[interface].name)

    def _follow_action(self, action: StoreAction) -> None:
        for change in action.changes:
            if change.path != "/interface/bridge/port" or change.before is None:
                continue
            if change.after is None or change.after["hw"] == "false":
                port = self._device.store.find("/interface/ethernet", change.before["interface"])
                self.stale.discard(port.values["default-name"] if port else "")
