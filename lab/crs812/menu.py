"""A RouterOS menu as data: its fields, its verbs and the few rules that only it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .kinds import Kind, Reference

if TYPE_CHECKING:
    from .call import Call, Handler
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
    ``since`` is the version before which the field neither exists nor is printed, ``until`` the one from
    which on it does no more, ``renamed`` the one from which on it has another name. ``fixed`` fields come
    with the row and cannot be written.
    """

    name: str
    kind: Kind
    default: str | None = None
    required: bool = False
    clears: bool = False
    secret: bool = False
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = (99,)
    renamed: tuple[tuple[int, ...], str] | None = None
    fixed: bool = False

    def spelling(self, version: tuple[int, ...]) -> str | None:
        """What the field is called in a version; None when that has no such field."""
        if not self.since <= version < self.until:
            return None
        return self.renamed[1] if self.renamed is not None and version >= self.renamed[0] else self.name


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


def _unstamped(_call: Call) -> Values:
    return {}


def _accept(_device: Device, _row: Row, _old: Row | None) -> None:
    return None


def _let_go(_device: Device, _row: Row) -> None:
    return None


def _alone(_device: Device, _row: Row) -> list[tuple[str, Row]]:
    return []


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
    ``stamp``      values that the unit itself puts into a row that is added (its owner, its time).
    ``actions``    further commands by verb; the ``protected`` ones change something, so they need ``write``.
    ``needs``      the policies that a command needs, where they are not just ``read`` or ``write``.
    ``keep``       refuses, with a TrapError, that a row is removed.
    ``along``      rows of other menus, with their paths, that come and go with a row.
    ``since``      the version before which there is no such menu.
    ``outside``    neither history nor safe mode covers the menu: what is done there stays done.
    ``unsets``     the words that ``unset`` takes; None where none are published: every field.
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
    stamp: Callable[[Call], Values] = _unstamped
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    keep: Callable[[Device, Row], None] = _let_go
    along: Callable[[Device, Row], list[tuple[str, Row]]] = _alone
    since: tuple[int, ...] = ()
    outside: bool = False
    unsets: frozenset[str] | None = None

    def field(self, name: str, version: tuple[int, ...] = (98,)) -> Field | None:
        """Give the settable field that has that name in a version."""
        return next((item for item in self.fields if item.spelling(version) == name and not item.fixed), None)

    def printed(self, values: Values, version: tuple[int, ...]) -> Values:
        """Values under the names that a version prints them with, without those that it never prints."""
        names = {item.name: None if item.secret else item.spelling(version) for item in self.fields}
        shown = ((names.get(name, name), value) for name, value in values.items())
        return {name: value for name, value in shown if name is not None}

    @property
    def references(self) -> tuple[Field, ...]:
        """The fields that hold the name of a row elsewhere."""
        return tuple(item for item in self.fields if isinstance(item.kind, Reference))
