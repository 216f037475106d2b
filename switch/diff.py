"""Wanted rows against actual rows: the ordered changes between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .menus import Menu, Row
from .values import canonical


class UnreadableError(ValueError):
    """The rows that were read cannot be what a switch has; nothing may be concluded from them."""


@dataclass(frozen=True)
class Wanted:
    """One row that shall exist with these fields; other fields of the row, and other rows, are left alone."""

    key: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class FieldChange:
    """One field: `old` as it was read (None: it was absent), `new` as it will be written."""

    name: str
    old: str | None
    new: str


@dataclass(frozen=True)
class Change:
    """One row to set, or to add when `id` is None in a menu of many rows. `row` is the user's name of it."""

    menu: Menu
    row: str
    id: str | None
    fields: tuple[FieldChange, ...]

    @property
    def adds(self) -> bool:
        return self.id is None and self.menu.key is not None

    @property
    def values(self) -> tuple[tuple[str, str], ...]:
        """Names and new values, in the order of the menu's table."""
        return tuple((change.name, change.new) for change in self.fields)


def diff(menu: Menu, wanted: Iterable[Wanted], actual: Sequence[Row]) -> tuple[Change, ...]:
    """The changes that make `actual` contain `wanted`, in the order of `wanted`.

    Equal means equal in meaning (see `values`), and a field that is not printed has its default. Raises
    UnreadableError when a row of a fixed menu is missing, two rows have the same key, a row has no .id, or a
    value is none of its kind.
    """
    rows = index(menu, actual)
    changes = []
    for want in wanted:
        row = rows.get(want.key)
        if row is None and menu.fixed:
            raise UnreadableError(f"{menu.path} has no {want.key}")
        fields = tuple(_field_changes(menu, want, row))
        if fields:
            changes.append(Change(menu, want.key, None if row is None else row.get(".id"), fields))
    return tuple(changes)


def index(menu: Menu, actual: Sequence[Row]) -> dict[str, Row]:
    """The rows by their key ("" for the only row of a menu without one). Raises UnreadableError as `diff`
    does."""
    if menu.key is None:
        if len(actual) != 1:
            raise UnreadableError(f"{menu.path} should have one row and has {len(actual)}")
        return {"": actual[0]}
    rows: dict[str, Row] = {}
    for row in actual:
        key = row.get(menu.key)
        if not key or not row.get(".id"):
            raise UnreadableError(f"{menu.path} has a row without {menu.key if not key else '.id'}")
        if key in rows:
            raise UnreadableError(f"{menu.path} has two rows with {menu.key}={key}")
        rows[key] = row
    return rows


def _field_changes(menu: Menu, want: Wanted, row: Row | None) -> Iterable[FieldChange]:
    if row is None and menu.key is not None:
        # A row that is added carries its key, and what is a default needs no writing.
        yield FieldChange(menu.key, None, want.key)
    for name, field in menu.fields.items():
        if name not in want.fields or name == menu.key:
            continue
        new = want.fields[name]
        old = None if row is None else row.get(name)
        known = field.default if old is None else old
        try:
            same = known is not None and canonical(field.kind, known) == canonical(field.kind, new)
        except ValueError as fault:
            raise UnreadableError(f"{menu.path} {want.key} {name}: {fault}") from None
        if not same:
            yield FieldChange(name, old, new)
