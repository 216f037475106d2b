"""All that a run knows of a switch: the rows of the menus it reads, checked for what no switch can have.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from core.routeros.diff import index
from core.routeros.errors import SwitchError, UnreadableError
from core.routeros.menus import (
    ACTIVE,
    ARP,
    BRIDGE_HOST,
    ETHERNET,
    OLDEST,
    PACKAGE,
    RESOURCE,
    ROUTERBOARD,
    Key,
    Menu,
    Release,
    Row,
    Sentence,
    place_of,
)
from core.routeros.rollback_timer import is_timer
from core.routeros.values import canonical
from core.routeros.versions import release

Ask = Callable[[Sentence], Sequence[Row]]
"""Sends one sentence and gives the rows of the answer."""

UNIT = (RESOURCE, ROUTERBOARD, PACKAGE)
"""Menus that identify the unit; read first, since an older release lacks menus that would be read."""


@dataclass(frozen=True)
class SwitchReading:
    """One reading of a switch: its release, and the rows of each menu by its path, in the switch's order.

    `absent` are menus that the switch reports as missing.
    """

    release: Release
    tables: Mapping[str, tuple[Row, ...]]
    absent: frozenset[str] = frozenset()

    def rows(self, menu: Menu) -> tuple[Row, ...]:
        """The rows of a menu; () for one the switch does not have. KeyError for one that was not read."""
        return () if menu.path in self.absent else self.tables[menu.path]

    def by_key(self, menu: Menu) -> dict[Key, Row]:
        """The rows of a menu by their key; UnreadableError when two have the same."""
        return index(menu, self.rows(menu))

    def only(self, menu: Menu) -> Row:
        """Return the row of a menu that has one."""
        return self.by_key(menu)[()]

    @cached_property
    def ethernet(self) -> dict[str, Row]:
        """The interfaces by the name they have from the factory."""
        return {row["default-name"]: row for row in self.rows(ETHERNET)}

    def same(self, other: SwitchReading, menus: Iterable[Menu]) -> bool:
        """Return whether every non-volatile field of `menus` means the same in both readings. The rows of rollback
        timers are ignored: they come and go with runs.
        """
        return all(_steady_meaning(menu, self.rows(menu)) == _steady_meaning(menu, other.rows(menu)) for menu in menus)


def read_switch(
    ask: Ask, menus: Iterable[Menu], optional: Iterable[Menu] = (), *, oldest: Release = OLDEST
) -> SwitchReading:
    """Read a switch: one sentence a menu, the unit's own first, and of BRIDGE_HOST the addresses of the machines that
    are logged in. Of a release before `oldest` only the unit is read; one before OLDEST is asked for the same fields
    and prints those that it has.

    optional: menus that a switch may lack; it must report that itself. Raises UnreadableError for an answer that no
    switch would give, and the exceptions of `ask`; so a returned reading is complete.
    """
    menus = tuple(menus)
    tables = {menu.path: _read_rows(ask, menu, OLDEST) for menu in UNIT}
    (resource,) = index(RESOURCE, tables[RESOURCE.path]).values()
    found = release(resource.get("version", "")) or (0, 0, 0, 0)
    absent = set()
    if found >= oldest:
        for menu in dict.fromkeys(menus):
            if menu is BRIDGE_HOST:
                continue
            try:
                tables[menu.path] = _read_rows(ask, menu, max(found, OLDEST))
            except SwitchError as fault:
                if menu not in optional or "no such command" not in str(fault):
                    raise
                absent.add(menu.path)
        if BRIDGE_HOST in menus:
            tables[BRIDGE_HOST.path] = tuple(row for mac in _client_addresses(tables) for row in ask(place_of(mac)))
    reading = SwitchReading(found, tables, frozenset(absent))
    if ETHERNET.path in tables:
        _check_ethernet(reading)
    return reading


def _client_addresses(tables: Mapping[str, tuple[Row, ...]]) -> Iterable[str]:
    """The Ethernet addresses of the machines that are logged in."""
    logged_in = {row.get("address") for row in tables.get(ACTIVE.path, ())}
    rows = (row for row in tables.get(ARP.path, ()) if row.get("address") in logged_in)
    return dict.fromkeys(row["mac-address"] for row in rows if row.get("mac-address"))


def _read_rows(ask: Ask, menu: Menu, found: Release) -> tuple[Row, ...]:
    spelled = {menu.spelled(name, found): name for name in menu.fields}
    rows = ({spelled.get(name, name): value for name, value in row.items()} for row in ask(menu.sentence(found)))
    return tuple(row for row in rows if not _is_hidden(menu, row))


def _is_hidden(menu: Menu, row: Row) -> bool:
    if menu.hidden is None:
        return False
    name, value = menu.hidden
    spec = menu.fields[name]
    try:
        return canonical(spec.kind, row.get(name, spec.default or "")) == value
    except ValueError as fault:
        raise UnreadableError(f"{menu.path} {name}: {fault}") from None


def _check_ethernet(reading: SwitchReading) -> None:
    rows = reading.by_key(ETHERNET)
    if not rows:
        raise UnreadableError(f"{ETHERNET.path} has no rows")
    for (name,), row in rows.items():
        if not row.get("name"):
            raise UnreadableError(f"{ETHERNET.path} {name} has no name")


def _steady_meaning(menu: Menu, rows: Sequence[Row]) -> list[list[tuple[str, str]]]:
    """Return the meaning of rows, without volatile fields, without a run's own rollback timer, and without ids: a row
    that was removed and restored has another id.
    """
    kept = [(name, spec) for name, spec in menu.fields.items() if not spec.volatile]
    others = (row for row in rows if not is_timer(row.get("name", "")))
    return sorted([(name, _meant_value(menu, name, row)) for name, _ in kept] for row in others)


def _meant_value(menu: Menu, name: str, row: Row) -> str:
    spec = menu.fields[name]
    known = row.get(name, spec.default)
    try:
        return "" if not known or not menu.counts(name, row) else canonical(spec.kind, known)
    except ValueError:
        return str(known)
