"""Interface between rack.yaml's declaration of the switch and the comparison: menu by menu, in the order they are
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.routeros.diff import DesiredRow, RowChange
from core.routeros.menus import BRIDGE, SERVICE, Key, Menu
from core.routeros.reading import SwitchReading


@dataclass(frozen=True)
class MenuDesired:
    """The desired rows of one menu.

    purge: rows that are not desired are removed, except those of `spared`; otherwise they are kept and, when `listed`,
    named in the plan. optional: nothing is desired on a switch without the menu.
    """

    menu: Menu
    rows: tuple[DesiredRow, ...] = ()
    purge: bool = False
    spared: frozenset[Key] = frozenset()
    listed: bool = False
    optional: bool = False


@dataclass(frozen=True)
class ChangeGroup:
    """Shares that are written together, what they are called, and whom it disturbs when `changes` of them
    are written."""

    title: str
    shares: tuple[MenuDesired, ...]
    effect: Callable[[tuple[RowChange, ...]], str] = lambda _changes: "disturbs nothing"


@dataclass(frozen=True)
class DeviceContext:
    """Facts of a switch that its own declaration depends on: the current names of the interfaces (by factory name,
    which is used where nothing is known), the certificate of api-ssl, and its bridges (None: unknown).
    """

    names: Mapping[str, str] = field(default_factory=dict)
    certificate: str = "none"
    bridges: frozenset[str] | None = None

    @classmethod
    def of(cls, reading: SwitchReading) -> DeviceContext:
        names = {name: row["name"] for name, row in reading.ethernet.items()}
        bridges = frozenset(name for (name,) in reading.by_key(BRIDGE))
        if SERVICE.path not in reading.tables:
            return cls(names, bridges=bridges)
        services = reading.by_key(SERVICE)
        return cls(names, services.get(("api-ssl",), {}).get("certificate", "none"), bridges)

    def lacks(self, bridge: str) -> bool:
        """Return whether the bridge must still be created."""
        return self.bridges is not None and bridge not in self.bridges

    def name(self, interface: str) -> str:
        """Return the current name of an interface."""
        return self.names.get(interface, interface)
