"""Wanted rows against actual rows: the ordered changes between them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from core.model.secrets import SecretRef
from core.routeros.errors import UnreadableError
from core.routeros.menus import COMMUNITY, Key, Menu, Row
from core.routeros.values import canonical, visible

Value = str | SecretRef
"""The desired value of a field: text, or a reference to a secret."""


HIDDEN = "(hidden)"
"""Placeholder for a value that may give access."""


@dataclass(frozen=True)
class DesiredRow:
    """One row that must exist with these fields; other fields of the row, and other rows, are not changed."""

    key: Key
    fields: Mapping[str, Value]


@dataclass(frozen=True)
class FieldChange:
    """One field: `old` as it was read (None: it was absent), `new` as it will be written. private: neither is
    shown."""

    name: str
    old: str | None
    new: Value
    private: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        old = "(none)" if self.old_shown is None else self.old_shown or "(empty)"
        return f"{self.name} {old} -> {self.shown}"

    @property
    def old_shown(self) -> str | None:
        """The actual value as it may be shown."""
        return HIDDEN if self.private and self.old else None if self.old is None else visible(self.old)

    @property
    def new_shown(self) -> str:
        """The desired value as it may be shown; a secret by where it is kept."""
        if isinstance(self.new, SecretRef):
            return f"({self.new})"
        return HIDDEN if self.private and self.new else visible(self.new)

    @property
    def shown(self) -> str:
        """The new value for display."""
        return self.new_shown or "(empty)"


@dataclass(frozen=True)
class RowChange:
    """One row to set, to add (`id` is None in a menu of many rows) or to remove. `before` is the row as it
    was read."""

    menu: Menu
    key: Key
    id: str | None
    fields: tuple[FieldChange, ...]
    removes: bool = False
    before: Row = field(default_factory=dict, compare=False)

    @property
    def row(self) -> str:
        """Name of the row for the user."""
        return " ".join(self.key)

    @property
    def named(self) -> str:
        """Name of the row for display. The name of an SNMP community without security is its password."""
        if self.menu is COMMUNITY and self.row not in ("", "public"):
            security = {**self.before, **{name: str(value) for name, value in self.values}}.get("security", "none")
            return HIDDEN if security == "none" else visible(self.row)
        return visible(self.row)

    @property
    def shown_fields(self) -> tuple[FieldChange, ...]:
        """The fields without those that name the row."""
        return tuple(field for field in self.fields if field.name not in self.menu.key)

    @property
    def adds(self) -> bool:
        return self.id is None and not self.menu.single

    @property
    def values(self) -> tuple[tuple[str, Value], ...]:
        """Names and new values, in the order of the menu's table."""
        return tuple((change.name, change.new) for change in self.fields)

    def __str__(self) -> str:
        sign = "-" if self.removes else "+" if self.adds else "~"
        head = f"{sign} {self.menu.path} {self.named}".rstrip()
        fields = [f"{field.name} {field.shown}" if self.adds else str(field) for field in self.shown_fields]
        return f"{head}: {', '.join(fields)}" if fields else head


def diff(menu: Menu, wanted: Iterable[DesiredRow], actual: Sequence[Row]) -> tuple[RowChange, ...]:
    """Return the changes that make `actual` contain `wanted`, in the order of `wanted`.

    Equal means equal in meaning (see `values`), and a field that is not printed has its default. Raises UnreadableError
    when a row of a fixed menu is missing, two rows have the same desired key, a row has no .id, or a value is not of
    its kind.
    """
    wanted = tuple(wanted)
    rows = index(menu, actual, [want.key for want in wanted])
    changes = []
    for want in wanted:
        row = rows.get(same_key(menu, want.key))
        if row is None and menu.fixed:
            raise UnreadableError(f"{menu.path} has no {' '.join(want.key)}")
        fields = tuple(_field_changes(menu, want, row))
        if fields:
            changes.append(RowChange(menu, want.key, None if row is None else row.get(".id"), fields, before=row or {}))
    return tuple(changes)


def surplus(menu: Menu, wanted: Iterable[Key], actual: Sequence[Row]) -> tuple[RowChange, ...]:
    """Return the rows that are not desired, as removals."""
    known = {same_key(menu, key) for key in wanted}
    return tuple(
        RowChange(menu, menu.key_of(row), row.get(".id"), (), removes=True, before=row)
        for row in actual
        if same_key(menu, menu.key_of(row)) not in known
    )


def index(menu: Menu, actual: Sequence[Row], wanted: Collection[Key] | None = None) -> dict[Key, Row]:
    """The rows by their key (() for the only row of a menu of one).

    Raises UnreadableError for a row without .id or key, and for two rows with the same key - among those
    that are `wanted`, when that is given: what is not ours may be there twice.
    """
    if menu.single:
        if len(actual) != 1:
            raise UnreadableError(f"{menu.path} should have one row and has {len(actual)}")
        return {(): actual[0]}
    for row in actual:
        missing = next((name for name in (".id", menu.key[0]) if not row.get(name)), None)
        if missing:
            raise UnreadableError(f"{menu.path} has a row without {missing}")
    keys = [same_key(menu, menu.key_of(row)) for row in actual]
    counted = Counter(keys)
    of_interest = set(keys) if wanted is None else {same_key(menu, key) for key in wanted}
    for key in counted:
        if counted[key] > 1 and key in of_interest:
            named = ", ".join(f"{name}={value}" for name, value in zip(menu.key, key, strict=True))
            raise UnreadableError(f"{menu.path} has two rows with {named}")
    return dict(zip(keys, actual, strict=True))


def same_key(menu: Menu, key: Key) -> Key:
    """One spelling of a key; UnreadableError for one that no row can have."""
    try:
        return tuple(canonical(menu.fields[name].kind, text) for name, text in zip(menu.key, key, strict=True))
    except KeyError:  # named by .id, which has one spelling
        return key
    except ValueError as fault:
        raise UnreadableError(f"{menu.path} {' '.join(key)}: {fault}") from None


def _field_changes(menu: Menu, want: DesiredRow, row: Row | None) -> Iterator[FieldChange]:
    if row is None and not menu.single:
        # An added row has its key, and a default need not be written.
        yield from (FieldChange(name, None, text) for name, text in zip(menu.key, want.key, strict=True))
    for name, spec in menu.fields.items():
        if name not in want.fields or name in menu.key:
            continue
        new = want.fields[name]
        if isinstance(new, SecretRef):
            # The switch never prints it, so it is set with the row and cannot be compared afterwards.
            if row is None:
                yield FieldChange(name, None, new)
            continue
        old = None if row is None else row.get(name)
        known = spec.default if old is None else old
        try:
            same = known is not None and canonical(spec.kind, known) == canonical(spec.kind, new)
        except ValueError as fault:
            raise UnreadableError(f"{menu.path} {' '.join(want.key)} {name}: {fault}") from None
        if not same:
            yield FieldChange(name, old, new, spec.private)
