"""Interfaces that were given another name since a backup: other rows refer to them by name, so those are compared
under the names that the interfaces will have again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.routeros.menus import BRIDGE_HOST, BRIDGE_PORT, BRIDGE_VLAN, ETHERNET, QOS_PORT, Menu, Row
from core.routeros.reading import SwitchReading

REFERENCES: Mapping[Menu, tuple[str, ...]] = {
    ETHERNET: ("name",),
    BRIDGE_PORT: ("interface",),
    BRIDGE_VLAN: ("tagged", "untagged"),
    BRIDGE_HOST: ("on-interface",),
    QOS_PORT: ("name",),
}
"""The fields that hold names of interfaces, or lists of them. RouterOS follows a new name in all of them by
itself."""


@dataclass(frozen=True)
class Renaming:
    """Current and former names of interfaces. `faults`: names that cannot be restored by renaming one interface after
    the other.
    """

    names: Mapping[str, str]
    faults: tuple[str, ...] = ()

    @classmethod
    def between(cls, now: SwitchReading, then: SwitchReading) -> Renaming:
        """The renames that lead from one reading back to another."""
        names = {
            row["name"]: then.ethernet[default]["name"]
            for default, row in now.ethernet.items()
            if default in then.ethernet and then.ethernet[default]["name"] != row["name"]
        }
        taken = {row["name"] for row in now.rows(ETHERNET)}
        faults = tuple(
            f"interface {name} was called {old}, which is another interface's name now: name that one by hand first"
            for name, old in names.items()
            if old in taken
        )
        return cls(names, faults)

    def of(self, reading: SwitchReading) -> SwitchReading:
        """Return a reading with the former names."""
        if not self.names:
            return reading
        tables = dict(reading.tables)
        for menu, fields in REFERENCES.items():
            if menu.path in tables:
                tables[menu.path] = tuple(self._with_old_values(row, fields) for row in tables[menu.path])
        return replace(reading, tables=tables)

    def _with_old_values(self, row: Row, fields: tuple[str, ...]) -> Row:
        old = {
            name: ",".join(self.names.get(part, part) for part in row[name].split(","))
            for name in fields
            if name in row
        }
        return {**row, **old}
