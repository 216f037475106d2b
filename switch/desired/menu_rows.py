"""Interface between rack.yaml's declaration of the switch and the comparison: menu by menu, in the order they are
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.model import lossless_classes
from core.routeros.diff import DesiredRow, RowChange
from core.routeros.menus import BONDING, BRIDGE, PFC, PROFILE, SERVICE, Key, Menu, Row
from core.routeros.reading import SwitchReading
from core.routeros.values import canonical


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
class QosNames:
    """The names of the rows that a policy needs: those of rows that have its fields already, else our own."""

    roce: str = "roce"
    cnp: str = "cnp"
    pfc: str = f"pfc-tc{lossless_classes.ROCE_CLASS}"

    @classmethod
    def of(cls, reading: SwitchReading) -> QosNames:
        roce, cnp = str(lossless_classes.ROCE_CLASS), str(lossless_classes.CNP_CLASS)
        wanted: tuple[tuple[str, Menu, dict[str, str]], ...] = (
            ("roce", PROFILE, {"dscp": str(lossless_classes.ROCE_DSCP), "traffic-class": roce}),
            ("cnp", PROFILE, {"dscp": str(lossless_classes.CNP_DSCP), "traffic-class": cnp}),
            ("pfc", PFC, {"traffic-class": roce, "rx": "yes", "tx": "yes"}),
        )
        found = {}
        for key, menu, fields in wanted:
            rows = reading.rows(menu) if menu.path in reading.tables else ()
            names = [
                row.get("name", "") for row in rows if all(_means_same(menu, row, *field) for field in fields.items())
            ]
            own = str(cls.__dataclass_fields__[key].default)
            found[key] = next((name for name in names if name), own) if own not in names else own
        return cls(**found)


def _means_same(menu: Menu, row: Row, name: str, value: str) -> bool:
    spec = menu.fields[name]
    try:
        return canonical(spec.kind, row.get(name, spec.default or "")) == canonical(spec.kind, value)
    except ValueError:
        return False


# claim: switch.bond.refusals
def bonds_of(reading: SwitchReading) -> dict[str, str]:
    """The name of the enabled bond that each interface is a slave of, by the interface's present name."""
    rows = reading.rows(BONDING) if BONDING.path in reading.tables else ()
    enabled = (row for row in rows if not _means_same(BONDING, row, "disabled", "yes"))
    return {slave: row.get("name", "") for row in enabled for slave in row.get("slaves", "").split(",") if slave}


@dataclass(frozen=True)
class DeviceContext:
    """Facts of a switch that its own declaration depends on: the current names of the interfaces (by factory name,
    which is used where nothing is known), the certificate of api-ssl, its bridges (None: unknown), what its rows of a
    policy are called, and the bond of each interface that is a slave (both by their present names).
    """

    names: Mapping[str, str] = field(default_factory=dict)
    certificate: str = "none"
    bridges: frozenset[str] | None = None
    qos: QosNames = QosNames()
    bonds: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, reading: SwitchReading) -> DeviceContext:
        names = {name: row["name"] for name, row in reading.ethernet.items()}
        bridges, qos = frozenset(name for (name,) in reading.by_key(BRIDGE)), QosNames.of(reading)
        bonds = bonds_of(reading)
        if SERVICE.path not in reading.tables:
            return cls(names, bridges=bridges, qos=qos, bonds=bonds)
        services = reading.by_key(SERVICE)
        return cls(names, services.get(("api-ssl",), {}).get("certificate", "none"), bridges, qos, bonds)

    def member(self, interface: str) -> str:
        """The current name by which an interface is a port of a bridge: that of its bond, or its own."""
        return self.bonds.get(self.name(interface), self.name(interface))

    def lacks(self, bridge: str) -> bool:
        """Return whether the bridge must still be created."""
        return self.bridges is not None and bridge not in self.bridges

    def name(self, interface: str) -> str:
        """Return the current name of an interface."""
        return self.names.get(interface, interface)
