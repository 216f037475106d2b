"""How rack.yaml's words about the switch are handed to the comparison: menu by menu, in the order they are
written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from switch.diff import Change, Wanted
from switch.menus import BRIDGE, SERVICE, Key, Menu
from switch.reading import Reading


@dataclass(frozen=True)
class Share:
    """What is wanted of one menu.

    purge: rows nobody wants are removed, those of `spared` excepted; otherwise they are left and, when
    `listed`, named in the plan. optional: a switch without the menu has nothing to bring there.
    """

    menu: Menu
    rows: tuple[Wanted, ...] = ()
    purge: bool = False
    spared: frozenset[Key] = frozenset()
    listed: bool = False
    optional: bool = False


@dataclass(frozen=True)
class Part:
    """Shares that are written together, what they are called, and whom it disturbs when `changes` of them
    are written."""

    title: str
    shares: tuple[Share, ...]
    effect: Callable[[tuple[Change, ...]], str] = lambda _changes: "disturbs nothing"


@dataclass(frozen=True)
class Seen:
    """What of a switch its own declaration depends on: today's names of the interfaces (by the name from the
    factory, which stands for itself where nothing is known), the certificate of api-ssl, and its bridges
    (None: nothing is known)."""

    names: Mapping[str, str] = field(default_factory=dict)
    certificate: str = "none"
    bridges: frozenset[str] | None = None

    @classmethod
    def of(cls, reading: Reading) -> Seen:
        names = {name: row["name"] for name, row in reading.ethernet.items()}
        bridges = frozenset(name for (name,) in reading.by_key(BRIDGE))
        if SERVICE.path not in reading.tables:
            return cls(names, bridges=bridges)
        services = reading.by_key(SERVICE)
        return cls(names, services.get(("api-ssl",), {}).get("certificate", "none"), bridges)

    def lacks(self, bridge: str) -> bool:
        """Whether the bridge is yet to be made."""
        return self.bridges is not None and bridge not in self.bridges

    def name(self, interface: str) -> str:
        """The name an interface has now."""
        return self.names.get(interface, interface)
