"""All that a run knows of a switch: the rows of the menus it reads, checked for what no switch can have.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from .deadman import PREFIX
from .diff import index
from .errors import SwitchError, UnreadableError
from .menus import ETHERNET, OLDEST, PACKAGE, RESOURCE, ROUTERBOARD, Key, Menu, Release, Row, Sentence
from .releases import release
from .values import canonical

Ask = Callable[[Sentence], Sequence[Row]]
"""Sends one sentence and gives the rows of the answer."""

UNIT = (RESOURCE, ROUTERBOARD, PACKAGE)
"""What says which unit this is; read first, since an older release lacks menus that would be asked for."""


@dataclass(frozen=True)
class Reading:
    """One reading of a switch: its release, and the rows of each menu by its path, in the switch's order.

    `absent` are menus that the switch says it does not have.
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
        """The row of a menu that has one."""
        return self.by_key(menu)[()]

    @cached_property
    def ethernet(self) -> dict[str, Row]:
        """The interfaces by the name they have from the factory."""
        return {row["default-name"]: row for row in self.rows(ETHERNET)}

    def same(self, other: Reading, menus: Iterable[Menu]) -> bool:
        """Whether every field of `menus` that does not change by itself means the same in both. The rows of dead
        men are left out: they come and go with runs."""
        return all(_steady(menu, self.rows(menu)) == _steady(menu, other.rows(menu)) for menu in menus)


def read(ask: Ask, menus: Iterable[Menu], optional: Iterable[Menu] = ()) -> Reading:
    """Read a switch: one sentence a menu, the unit's own first. Nothing but the unit is read of one that is
    too old for this project.

    optional: menus that a switch may lack; it must say so itself. Raises UnreadableError for an answer no
    switch would give, and whatever `ask` raises; so what is returned is known, without a hole in it.
    """
    tables = {menu.path: _read(ask, menu, OLDEST) for menu in UNIT}
    (resource,) = index(RESOURCE, tables[RESOURCE.path]).values()
    found = release(resource.get("version", "")) or (0, 0, 0, 0)
    absent = set()
    if found >= OLDEST:
        for menu in dict.fromkeys(menus):
            try:
                tables[menu.path] = _read(ask, menu, found)
            except SwitchError as fault:
                if menu not in optional or "no such command" not in str(fault):
                    raise
                absent.add(menu.path)
    reading = Reading(found, tables, frozenset(absent))
    if ETHERNET.path in tables:
        _check_ethernet(reading)
    return reading


def _read(ask: Ask, menu: Menu, found: Release) -> tuple[Row, ...]:
    spelled = {menu.spelled(name, found): name for name in menu.fields}
    rows = ({spelled.get(name, name): value for name, value in row.items()} for row in ask(menu.sentence(found)))
    return tuple(row for row in rows if not _hidden(menu, row))


def _hidden(menu: Menu, row: Row) -> bool:
    if menu.hidden is None:
        return False
    name, value = menu.hidden
    told = menu.fields[name]
    try:
        return canonical(told.kind, row.get(name, told.default or "")) == value
    except ValueError as fault:
        raise UnreadableError(f"{menu.path} {name}: {fault}") from None


def _check_ethernet(reading: Reading) -> None:
    rows = reading.by_key(ETHERNET)
    if not rows:
        raise UnreadableError(f"{ETHERNET.path} has no rows")
    for (name,), row in rows.items():
        if not row.get("name"):
            raise UnreadableError(f"{ETHERNET.path} {name} has no name")


def _steady(menu: Menu, rows: Sequence[Row]) -> list[list[tuple[str, str]]]:
    """What rows mean, without what changes by itself, without a run's own dead man, and without ids: a row that
    was removed and put back has another."""
    kept = [(name, told) for name, told in menu.fields.items() if not told.volatile]
    others = (row for row in rows if not row.get("name", "").startswith(PREFIX))
    return sorted([(name, _meant(menu, name, row)) for name, _ in kept] for row in others)


def _meant(menu: Menu, name: str, row: Row) -> str:
    told = menu.fields[name]
    known = row.get(name, told.default)
    try:
        return "" if not known or not menu.counts(name, row) else canonical(told.kind, known)
    except ValueError:
        return str(known)
