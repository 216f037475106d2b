"""A RouterOS menu as data: its fields, its verbs and the few rules that only it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lab.routeros_emulator.argument_types import ArgumentType, Reference

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice
    from lab.routeros_emulator.request import Call, Handler

#: A row's settable values in printed form; an absent key is an unset field.
Values = dict[str, str]
View = Mapping[str, str]

READ = frozenset({"print", "getall", "get"})
EDIT = READ | {"set"}
SWITCHABLE = EDIT | {"enable", "disable"}
FULL = SWITCHABLE | {"add", "remove"}


@dataclass(frozen=True)
class EmulatedField:
    """One settable field.

    ``default`` is what a new row gets when the field is not given (None: absent). ``clears`` says that an
    empty value makes the field absent; ``secret`` that only a digest is kept and nothing is printed;
    ``sensitive`` that it is kept as it is and printed to clients with the policy ``sensitive`` only.
    ``since`` is the version before which the field neither exists nor is printed, ``until`` the one from
    which on it does no more, ``renamed`` the one from which on it has another name. ``fixed`` fields come
    with the row and cannot be written.
    """

    name: str
    kind: ArgumentType
    default: str | None = None
    required: bool = False
    clears: bool = False
    secret: bool = False
    sensitive: bool = False
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = (99,)
    renamed: tuple[tuple[int, ...], str] | None = None
    fixed: bool = False

    def spelling(self, version: tuple[int, ...]) -> str | None:
        """Return the name of the field in a version; None when that has no such field."""
        if not self.since <= version < self.until:
            return None
        return self.renamed[1] if self.renamed is not None and version >= self.renamed[0] else self.name


@dataclass(frozen=True)
class EmulatedRow:
    """A stored row together with its id, as the rules of a menu see it."""

    id: int
    values: Values


def spell_id(number: int) -> str:
    """Print an internal id: ``*1F``, hexadecimal in upper case."""
    return f"*{number:X}"


def _show_nothing(_device: EmulatedDevice, _row: EmulatedRow) -> Values:
    return {}


def _stamp_nothing(_call: Call) -> Values:
    return {}


def _accept_row(_device: EmulatedDevice, _row: EmulatedRow, _old: EmulatedRow | None) -> None:
    return None


def _let_go(_device: EmulatedDevice, _row: EmulatedRow) -> None:
    return None


def _no_followers(_device: EmulatedDevice, _row: EmulatedRow) -> list[tuple[str, EmulatedRow]]:
    return []


@dataclass(frozen=True)
class EmulatedMenu:
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
    fields: tuple[EmulatedField, ...] = ()
    verbs: frozenset[str] = READ
    named_by: str | None = None
    unique: tuple[tuple[tuple[str, ...], str], ...] = ()
    pool: str | None = None
    first_id: int = 1
    singleton: bool = False
    factory: Callable[[EmulatedDevice], Iterable[Values]] | None = None
    show: Callable[[EmulatedDevice, EmulatedRow], Values] = _show_nothing
    check: Callable[[EmulatedDevice, EmulatedRow, EmulatedRow | None], None] = _accept_row
    sort: Callable[[EmulatedRow], object] | None = None
    rows: Callable[[EmulatedDevice], Iterable[Values]] | None = None
    dynamic: Callable[[EmulatedDevice], Iterable[Values]] | None = None
    actions: Mapping[str, Handler] = field(default_factory=dict)
    protected: frozenset[str] = frozenset()
    stamp: Callable[[Call], Values] = _stamp_nothing
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    keep: Callable[[EmulatedDevice, EmulatedRow], None] = _let_go
    along: Callable[[EmulatedDevice, EmulatedRow], list[tuple[str, EmulatedRow]]] = _no_followers
    since: tuple[int, ...] = ()
    outside: bool = False
    unsets: frozenset[str] | None = None

    def field(self, name: str, version: tuple[int, ...] = (98,)) -> EmulatedField | None:
        """Give the settable field that has that name in a version."""
        return next((item for item in self.fields if item.spelling(version) == name and not item.fixed), None)

    def printed(self, values: Values, version: tuple[int, ...], *, sensitive: bool = False) -> Values:
        """Values under the names that a version prints them with, without those that it never prints.
        ``sensitive``: also those that need the policy of that name.
        """
        names = {
            item.name: None if item.secret or (item.sensitive and not sensitive) else item.spelling(version)
            for item in self.fields
        }
        shown = ((names.get(name, name), value) for name, value in values.items())
        return {name: value for name, value in shown if name is not None}

    @property
    def references(self) -> tuple[EmulatedField, ...]:
        """The fields that hold the name of a row elsewhere."""
        return tuple(item for item in self.fields if isinstance(item.kind, Reference))
