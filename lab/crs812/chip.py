"""What the switch chip does that no table says: its counters, and ports whose hardware offload went stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .counters import COUNTERS, QOS_COUNTERS
from .ports import CAGE, PORT
from .store import Action

if TYPE_CHECKING:
    from .device import Device

_KNOWN = frozenset(COUNTERS) | frozenset(QOS_COUNTERS)


class Chip:
    """Counters by interface (default name), as the test knobs make them grow, and stale ports.

    ``stale`` are ports in a stale offload group, as reported from a CRS804 and a CRS812 on 7.23 and 7.24rc4 after
    links were trained anew: the flags still say offloaded, and frames reach the CPU only. Writing hw=no puts that
    right; with hw=yes afterwards the chip forwards again. ``retrains``: every link that comes up after a restart of
    its cage is left like that. ``quiet``: no frames but those that a test counts.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._counters: dict[str, Counter[str]] = {name: Counter() for name in PORT}
        self.stale: set[str] = set()
        self.retrains = self.quiet = False
        device.store.observers.append(self._hear)

    def bump(self, interface: str, counters: Mapping[str, int]) -> None:
        """Let counters of an interface (default name) grow. KeyError: no such interface or counter."""
        for name in counters:
            if name not in _KNOWN:
                raise KeyError(f"there is no counter {name}")
        self._counters[interface].update({name: int(more) for name, more in counters.items()})

    def counter(self, interface: str, name: str) -> int:
        """How far a counter was made to grow since the start or the last reset."""
        return self._counters[interface][name]

    def reset(self, interface: str) -> None:
        """Begin anew with all counters of an interface."""
        self._counters[interface].clear()

    def trained(self, cage: str) -> None:
        """The links of a cage came up anew."""
        if self.retrains:
            self.stale.update(port.name for port in CAGE[cage])

    def lose_offload(self, interface: str) -> None:
        """Let a port's offload go stale. KeyError: no such interface."""
        self.stale.add(PORT[interface].name)

    def _hear(self, action: Action) -> None:
        for change in action.changes:
            if change.path != "/interface/bridge/port" or change.before is None:
                continue
            if change.after is None or change.after["hw"] == "false":
                port = self._device.store.find("/interface/ethernet", change.before["interface"])
                self.stale.discard(port.values["default-name"] if port else "")
