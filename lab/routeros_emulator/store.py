"""The switch's tables: rows by menu, changed only in whole actions that can be undone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lab.routeros_emulator.argument_types import Reference
from lab.routeros_emulator.errors import no_such_item
from lab.routeros_emulator.menu import EmulatedField, EmulatedMenu, EmulatedRow, Values, spell_id


@dataclass(frozen=True)
class StoreChange:
    """One row's values before and after; None before means added, None after means removed."""

    path: str
    id: int
    before: Values | None
    after: Values | None

    def reversed(self) -> StoreChange:
        """The change that takes this one back."""
        return StoreChange(self.path, self.id, self.after, self.before)

    def fields(self) -> frozenset[str]:
        """The fields whose values differ; all of them for an added or removed row."""
        before, after = self.before or {}, self.after or {}
        return frozenset(name for name in before | after if before.get(name) != after.get(name))


@dataclass(frozen=True)
class StoreAction:
    """What one command changed, and who sent it: the unit of history and of undo.

    ``written`` names the fields that the command wrote, changed or not, by the row's path and id: a
    lane that is written restarts its cage although its values stay the same.
    """

    text: str
    by: str
    time: str
    changes: tuple[StoreChange, ...]
    written: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)


class Store:
    """Rows of every stored menu. Observers hear of each action after it took effect."""

    def __init__(self, menus: Iterable[EmulatedMenu]) -> None:
        self.menus: dict[str, EmulatedMenu] = {menu.path: menu for menu in menus}
        self._rows: dict[str, dict[int, Values]] = {menu.path: {} for menu in self.menus.values() if menu.rows is None}
        self._next: dict[str, int] = {}
        self.observers: list[Callable[[StoreAction], None]] = []

    def rows(self, path: str) -> Iterator[EmulatedRow]:
        """Give a menu's rows in the order of their ids."""
        table = self._rows[path]
        return (EmulatedRow(number, table[number]) for number in sorted(table))

    def get(self, path: str, number: int) -> EmulatedRow:
        """Give one row; TrapError when there is none of that id."""
        try:
            return EmulatedRow(number, self._rows[path][number])
        except KeyError:
            raise no_such_item() from None

    def find(self, path: str, name: str) -> EmulatedRow | None:
        """Give the row with that name or ``*HEX`` id, or None."""
        key = self.menus[path].named_by
        if not name.startswith("*"):
            return None if key is None else self.first(path, key, name)
        for row in self.rows(path):
            if name == spell_id(row.id) or (key is not None and row.values.get(key) == name):
                return row
        return None

    def first(self, path: str, field: str, value: str) -> EmulatedRow | None:
        """Give the row of the lowest id that has a value, or None."""
        table = self._rows[path]
        number = min((number for number, values in table.items() if values.get(field) == value), default=None)
        return None if number is None else EmulatedRow(number, table[number])

    def find_any(self, paths: Iterable[str], name: str) -> EmulatedRow | None:
        """Give the row of that name in the first of some menus that has it."""
        return next((row for path in paths if (row := self.find(path, name))), None)

    def new_id(self, menu: EmulatedMenu) -> int:
        """Take the next id of the menu's sequence. Ids are never used twice."""
        pool = menu.pool or menu.path
        number = self._next.get(pool, menu.first_id)
        self._next[pool] = number + 1
        return number

    def apply(self, action: StoreAction) -> None:
        """Put an action's changes into the tables and tell the observers."""
        for change in action.changes:
            table = self._rows[change.path]
            if change.after is None:
                table.pop(change.id, None)
            else:
                table[change.id] = dict(change.after)
        for observer in self.observers:
            observer(action)

    def undoable(self, action: StoreAction) -> StoreAction | None:
        """The part of an action that history and safe mode cover; None when they cover nothing of it."""
        inside = tuple(change for change in action.changes if not self.menus[change.path].outside)
        if len(inside) == len(action.changes):
            return action  # the same object: repeated calls must be comparable by identity
        return replace(action, changes=inside) if inside else None

    def followers(self, menu: EmulatedMenu, old: EmulatedRow, new: Values | None) -> list[StoreChange]:
        """Give the changes that keep references right when a row is renamed or removed.

        A reference to a removed row shows that row's id, as the device does.
        """
        key = menu.named_by
        if key is None or (new is not None and new.get(key) == old.values.get(key)):
            return []
        name, gone = spell_id(old.id) if new is None else new[key], old.values.get(key)
        changes: list[StoreChange] = []
        for other in self.menus.values():
            fields = [f for f in other.references if _refers_to(f, menu.path)]
            for row in self.rows(other.path) if fields else ():
                held = {f.name: parts(f, row.values[f.name]) for f in fields if f.name in row.values}
                moved = {key: ",".join(name if n == gone else n for n in names) for key, names in held.items()}
                moved = {key: value for key, value in moved.items() if value != row.values[key]}
                if moved:
                    changes.append(StoreChange(other.path, row.id, row.values, row.values | moved))
        return changes

    def fill(self, path: str, rows: Sequence[Values]) -> None:
        """Add rows as a reset leaves them, without history."""
        menu = self.menus[path]
        for values in rows:
            self._rows[path][self.new_id(menu)] = dict(values)

    def dump(self) -> dict[str, Any]:
        """Give everything as plain data that later changes leave alone: for the NVRAM, and for ``load``."""
        tables = {
            path: {spell_id(n): dict(values) for n, values in table.items()} for path, table in self._rows.items()
        }
        return {"tables": tables, "next": dict(self._next)}

    def restore(self, dump: dict[str, Any]) -> None:
        """Restore a dump, including the next ids. Observers are not called."""
        self._next.clear()
        self.load(dump["tables"], dump["next"])

    def load(self, tables: dict[str, dict[str, Values]], following: dict[str, int]) -> None:
        """Replace the tables that a dump names; the others stay as they are."""
        for path, table in tables.items():
            if path in self._rows:
                self._rows[path] = {int(key[1:], 16): dict(values) for key, values in table.items()}
        self._next.update(following)


def parts(item: EmulatedField, text: str) -> list[str]:
    """The names that a reference field holds."""
    many = isinstance(item.kind, Reference) and item.kind.many
    return [part for part in text.split(",") if part] if many else [text]


def _refers_to(item: EmulatedField, path: str) -> bool:
    return isinstance(item.kind, Reference) and path in item.kind.menus
