"""Comparison of one menu of a switch with a backup: the changes that restore it, and what cannot be restored. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.model.secrets import SecretRef
from core.routeros.diff import DesiredRow, RowChange, Value, diff, index, same_key, surplus
from core.routeros.menus import COMMUNITY, GROUP, SERVICE, USER, Key, Menu, Row
from core.routeros.reading import SwitchReading
from core.routeros.values import ValueKind, canonical
from switch.lockout_risks import own_service

if TYPE_CHECKING:
    from core.model import Switch

WITHOUT_PASSWORD = ("", "none")
"""Values of a community's `security` with which no password belongs to it."""

OF_OUR_GATEWAY = ("port", "certificate", "disabled")
"""Fields of the service of our session that no plan changes: rack.yaml declares where and how it is reached."""

_YES_NO = {"true": "yes", "false": "no"}


@dataclass(frozen=True)
class RestoreDiff:
    """The changes of one menu, rows that are set or added before rows that are removed; and notices about the rest."""

    changes: tuple[RowChange, ...] = ()
    notices: tuple[str, ...] = ()


def restore_diff(switch: Switch, menu: Menu, now: SwitchReading, kept: SwitchReading) -> RestoreDiff:
    """Return the changes that restore a menu to its kept state. Raises UnreadableError for rows no switch
    could have.
    """
    if menu.path in now.absent or menu.path in kept.absent:
        return RestoreDiff()
    notices: list[str] = []
    twice = _duplicate_keys(menu, now) | _duplicate_keys(menu, kept)
    notices += [f"left alone: {menu.path} {' '.join(key)} is there twice" for key in sorted(twice)]
    there = tuple(_reported_row(menu, row) for row in now.rows(menu) if _row_key(menu, row) not in twice)
    then = tuple(_reported_row(menu, row) for row in kept.rows(menu) if _row_key(menu, row) not in twice)
    index(menu, then)  # a row without its key would match another
    rows = {_row_key(menu, row): row for row in there}
    wanted = []
    for row in then:
        key = _row_key(menu, row)
        if reason := _why_lost(switch, menu, row, rows.get(key)):
            notices.append(reason)
            continue
        fields = dict(_desired_fields(menu, row, rows.get(key), kept))
        notices += _notices_of(menu, row, fields)
        known = {name: value for name, value in fields.items() if value is not None}
        if key not in rows:
            known |= _row_secrets(switch, menu, menu.key_of(row))
        wanted.append(DesiredRow(menu.key_of(row), known))
    changes = diff(menu, wanted, there)
    gone = () if menu.fixed or menu.single else surplus(menu, [menu.key_of(row) for row in then], there)
    return _without_ours(switch, menu, (*changes, *gone), now, notices)


def _row_key(menu: Menu, row: Row) -> Key:
    return () if menu.single else same_key(menu, menu.key_of(row))


def _reported_row(menu: Menu, row: Row) -> Row:
    """Return a row without fields that are printed empty but cannot be empty: they count as not printed."""
    return {name: value for name, value in row.items() if value or name not in menu.fields or _may_be_empty(menu, name)}


def _may_be_empty(menu: Menu, name: str) -> bool:
    try:
        canonical(menu.fields[name].kind, "")
    except ValueError:
        return False
    return True


def _duplicate_keys(menu: Menu, reading: SwitchReading) -> set[Key]:
    if menu.single:
        return set()
    counted = Counter(_row_key(menu, row) for row in reading.rows(menu))
    return {key for key, count in counted.items() if count > 1}


def _desired_fields(menu: Menu, row: Row, there: Row | None, kept: SwitchReading) -> Iterator[tuple[str, Value | None]]:
    """Yield the desired fields of a row: the kept value, or the default for a field that was not printed; None for a
    field that exists now and had neither.
    """
    for name, spec in menu.fields.items():
        if spec.read_only or spec.volatile or spec.secret or spec.since > kept.release or not menu.counts(name, row):
            continue
        value = row.get(name, spec.default)
        if value is not None and there is not None and there.get(name) == value:
            continue  # nothing to do, even if it is a spelling that is not known here
        if value is not None:
            yield name, _YES_NO.get(value, value) if spec.kind is ValueKind.FLAG else value
        elif there is not None and name in there:
            yield name, None


def _notices_of(menu: Menu, row: Row, fields: Mapping[str, Value | None]) -> Iterator[str]:
    named = f"{menu.path} {' '.join(menu.key_of(row))}".rstrip()
    yield from (f"not put back: {name} of {named}, which had no value" for name in fields if fields[name] is None)


def _why_lost(switch: Switch, menu: Menu, row: Row, there: Row | None) -> str | None:
    """Return why a missing row cannot come back; None when it can, or is not missing."""
    name = row.get("name", "")
    if there is not None or menu.single:
        return None
    if menu.fixed:
        return f"not put back: {menu.path} {' '.join(menu.key_of(row))}, which is gone and cannot be added"
    if menu not in (USER, COMMUNITY) or _row_secrets(switch, menu, (name,)):
        return None
    if menu is COMMUNITY and row.get("security", "none") in WITHOUT_PASSWORD:
        return None
    what = "user" if menu is USER else "SNMP community"
    return f"not put back: {what} {name}, whose password no backup holds"


def _row_secrets(switch: Switch, menu: Menu, key: Key) -> Mapping[str, SecretRef]:
    """Return the secrets of a row, where rack.yaml has references to them."""
    if menu is USER and switch.reader and key == (switch.reader.user,):
        return {"password": switch.reader.password}
    if menu is COMMUNITY and switch.snmp and key == (switch.snmp.user,):
        return {
            "authentication-password": switch.snmp.authentication,
            "encryption-password": switch.snmp.encryption,
        }
    return {}


def _without_ours(
    switch: Switch, menu: Menu, changes: tuple[RowChange, ...], now: SwitchReading, notices: list[str]
) -> RestoreDiff:
    """Exclude changes that would remove our own access."""
    ours = {USER: switch.user, GROUP: _own_group(switch, now), SERVICE: own_service(switch)}.get(menu)
    left = []
    for change in changes:
        if ours is None or change.key != (ours,):
            left.append(change)
        elif menu is not SERVICE:
            notices.append(f"not put back, since this run needs it: {change}")
        else:
            own = tuple(field for field in change.fields if field.name not in OF_OUR_GATEWAY)
            notices += [
                f"not put back, since this run needs it: {menu.path} {ours}: {field}"
                for field in change.fields
                if field.name in OF_OUR_GATEWAY
            ]
            if own:
                left.append(RowChange(menu, change.key, change.id, own, before=change.before))
    return RestoreDiff(tuple(left), tuple(notices))


def _own_group(switch: Switch, now: SwitchReading) -> str | None:
    rows = now.tables.get(USER.path, ())
    return next((row.get("group") for row in rows if row.get("name") == switch.user), None)
