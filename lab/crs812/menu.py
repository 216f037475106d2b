"""A RouterOS menu as data: its fields, its verbs and the few rules that only it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .kinds import Kind, Reference

if TYPE_CHECKING:
    from .call import Handler
    from .device import Device

#: A row's settable values in printed form; an absent key is an unset field.
Values = dict[str, str]
View = Mapping[str, str]

READ = frozenset({"print", "getall", "get"})
EDIT = READ | {"set"}
SWITCHABLE = EDIT | {"enable", "disable"}
FULL = SWITCHABLE | {"add", "remove"}


@dataclass(frozen=True)
class Field:
    """One settable field.

    ``default`` is what a new row gets when the field is not given (None: absent). ``clears`` says that an
    empty value makes the field absent; ``secret`` that only a digest is kept and nothing is printed.
    """

    name: str
    kind: Kind
    default: str | None = None
    required: bool = False
    clears: bool = False
    secret: bool = False


@dataclass(frozen=True)
class Row:
    """A stored row together with its id, as the rules of a menu see it."""

    id: int
    values: Values


def spell_id(number: int) -> str:
    """Print an internal id: ``*1F``, hexadecimal in upper case."""
    return f"*{number:X}"


def _nothing(_device: Device, _row: Row) -> Values:
    return {}


def _accept(_device: Device, _row: Row, _old: Row | None) -> None:
    return None


def _let_go(_device: Device, _row: Row) -> None:
    return None


@dataclass(frozen=True)
class Menu:
    """One menu.

    ``named_by``   the field that ``numbers`` may use instead of an id; also the one others refer to.
    ``unique``     groups of fields that no two rows may share, with what the trap says the menu already has.
    ``pool``       menus with the same pool share one sequence of ids (all interfaces do).
    ``first_id``   where that sequence starts.
    ``singleton``  one row, printed without an id.
    ``factory``    the rows after a reset, without ids; called once on a new device.
    ``show``       read-only fields computed when a row is printed.
    ``check``      cross-field rules; raises TrapError. The old row is None for an add.
    ``sort``       print order, when it is not the order of the ids.
    ``rows``       for a menu without stored rows: compute them.
    ``dynamic``    rows that the unit itself shows after the stored ones; they cannot be written.
    ``actions``    further commands by verb; users of the group ``read`` may not use the ``protected`` ones.
    ``keep``       refuses, with a TrapError, that a row is removed.
    """

    path: str
    fields: tuple[Field, ...] = ()
    verbs: frozenset[str] = READ
    named_by: str | None = None
    unique: tuple[tuple[tuple[str, ...], str], ...] = ()
    pool: str | None = None
    first_id: int = 1
    singleton: bool = False
    factory: Callable[[Device], Iterable[Values]] | None = None
    show: Callable[[Device, Row], Values] = _nothing
    check: Callable[[Device, Row, Row | None], None] = _accept
    sort: Callable[[Row], object] | None = None
    rows: Callable[[Device], Iterable[Values]] | None = None
    dynamic: Callable[[Device], Iterable[Values]] | None = None
    actions: Mapping[str, Handler] = field(default_factory=dict)
    protected: frozenset[str] = frozenset()
    keep: Callable[[Device, Row], None] = _let_go

    def field(self, name: str) -> Field | None:
        """Give the settable field of that name."""
        return self._by_name().get(name)

    def _by_name(self) -> dict[str, Field]:
        return {item.name: item for item in self.fields}

    @property
    def references(self) -> tuple[Field, ...]:
        """The fields that hold the name of a row elsewhere."""
        return tuple(item for item in self.fields if isinstance(item.kind, Reference))
