"""What the switch chip does that no table says: its counters, and ports whose hardware offload went stale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .counters import COUNTERS, QOS_COUNTERS
from .ports import PORT
from .store import Action

if TYPE_CHECKING:
    from .device import Device

_KNOWN = frozenset(COUNTERS) | frozenset(QOS_COUNTERS)


class Chip:
    """Counters by interface (default name), as the test knobs make them grow, and stale ports.

    ``stale`` are ports that lost their place in the offload group although hw=yes, as reported from a
    CRS804 on 7.23 after links were trained anew. Writing hw=no puts that right; with hw=yes afterwards the
    port is offloaded again.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._counters: dict[str, Counter[str]] = {name: Counter() for name in PORT}
        self.stale: set[str] = set()
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
