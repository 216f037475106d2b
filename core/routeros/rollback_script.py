"""The exact inverse of changes as a RouterOS script, which the switch itself runs if it is not disarmed.

Every command finds the row by its name and only if a field differs, so the script does nothing where there is nothing
to revert - in particular it restarts no cage that safe mode has already restored. Syntax: MikroTik manual, 'Scripting'.
A script cannot restore a secret, which is never read; so plans write secrets only into rows that they add, and a
removed user comes back without its password, and disabled. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from core.routeros.diff import FieldChange, RowChange
from core.routeros.menus import OLDEST, Key, Menu, Release
from core.routeros.values import ValueKind, canonical

_COMPARABLE = (ValueKind.WORD, ValueKind.FLAG, ValueKind.COUNT)
"""Kinds that a condition can compare; how a list or a rate is compared on the device is not documented."""


# claim: switch.rollback.find-where, switch.rollback.unknown-word
def script(changes: Iterable[RowChange], release: Release = OLDEST) -> str:
    """One line a change, the last change first; a line that fails does not keep the others from running."""
    groups = _group_alike(reversed(tuple(changes)))
    lines = [line for group in groups for line in _inverse_commands(group, release)]
    return "\n".join(
        f':do {{ {line} }} on-error={{ :log error "sparkrack: line {number} of the undo failed" }}'
        for number, line in enumerate(lines, start=1)
    )


def quote(text: str) -> str:
    """Quote a text as a RouterOS string."""
    escapes = {"\\": "\\\\", '"': '\\"', "$": "\\$", "?": "\\?", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + "".join(escapes.get(letter, _escape_byte(letter)) for letter in text) + '"'


def _escape_byte(letter: str) -> str:
    """Return a byte that is not UTF-8 as its hexadecimal number in capitals (MikroTik manual, 'Scripting')."""
    return f"\\{ord(letter) - 0xDC00:02X}" if "\udc80" <= letter <= "\udcff" else letter


def _group_alike(changes: Iterable[RowChange]) -> Iterator[list[RowChange]]:
    """Neighbours that had the same values are put back in one command: each write to a lane restarts its
    cage, and each change of l2mtu takes all ports down."""
    group: list[RowChange] = []
    for change in changes:
        fits = group and not (change.adds or change.removes) and change.menu is group[0].menu
        if group and not (fits and change.fields == group[0].fields):
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _inverse_commands(group: list[RowChange], release: Release) -> Iterator[str]:
    change, menu = group[0], group[0].menu
    rows = [_row_condition(menu, each.key) for each in group]
    named = rows[0] if len(rows) == 1 else f"({' or '.join(f'({row})' for row in rows)})"
    if change.adds:
        yield f"{menu.path} remove [find where {named}]"
    elif change.removes:
        # Not all menus refuse a second row of the same name.
        yield f":if ([:len [{menu.path} find where {named}]] = 0) do={{ {_add_command(change, release)} }}"
    else:
        yield from _set_command(change, named, release)


def _set_command(change: RowChange, named: str, release: Release) -> Iterator[str]:
    menu = change.menu
    old = {field.name: _old_value(menu, field) for field in change.fields}
    known = {name: value for name, value in old.items() if value is not None}
    words = " ".join(f"{menu.spelled(name, release)}={quote(value)}" for name, value in known.items())
    if menu.single:
        yield f"{menu.path} set {words}"
        return
    if known:
        yield f"{menu.path} set [find where {named}{_differs_condition(menu, known, release)}] {words}"


def _differs_condition(menu: Menu, old: Mapping[str, str], release: Release) -> str:
    """A condition for "not as it was"; none where a field cannot be compared."""
    if any(menu.fields[name].kind not in _COMPARABLE for name in old):
        return ""
    tests = (
        f"{menu.spelled(name, release)}!={_condition_literal(menu.fields[name].kind, value)}"
        for name, value in old.items()
    )
    return f" and ({' or '.join(tests)})"


def _old_value(menu: Menu, field: FieldChange) -> str | None:
    """Return the old value of a field; a field that was not printed had its default. None for a field without a
    default: no command removes a field from a row.
    """
    if field.old is not None:
        return _written_value(menu.fields[field.name].kind, field.old)
    default = menu.fields[field.name].default
    return "" if default is None and menu.single else default


def _add_command(change: RowChange, release: Release) -> str:
    menu, row = change.menu, dict(change.before)
    if any(spec.secret for spec in menu.fields.values()):
        row["disabled"] = "yes"  # a restored user without a password must not be usable
    writable = (name for name, spec in menu.fields.items() if not spec.read_only and name in row)
    words = (
        f"{menu.spelled(name, release)}={quote(_written_value(menu.fields[name].kind, row[name]))}" for name in writable
    )
    return " ".join((f"{menu.path} add", *words))


def _written_value(kind: ValueKind, text: str) -> str:
    """A value as it is written: flags are printed as true and false, and written as yes and no."""
    return canonical(kind, text) if kind is ValueKind.FLAG else text


def _row_condition(menu: Menu, key: Key) -> str:
    """A condition for one row. Rows that are left out of every reading are left out here, too: from 7.23 on each open
    connection is a row of /ip/service with the name of its service, and one command that also meant such a row would
    fail as a whole."""
    tests = [
        f"{name}={_condition_literal(menu.fields[name].kind, text)}" for name, text in zip(menu.key, key, strict=True)
    ]
    if menu.hidden:
        name, value = menu.hidden
        tests.append(f"{name}!={value}")
    return " and ".join(tests)


def _condition_literal(kind: ValueKind, text: str) -> str:
    """A value in a condition, where RouterOS compares types: 1500 and yes are not strings (manual, 'Scripting')."""
    return canonical(kind, text) if kind in (ValueKind.FLAG, ValueKind.COUNT) else quote(text)
