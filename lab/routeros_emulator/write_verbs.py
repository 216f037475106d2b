"""add, set, unset, enable, disable and remove: one action of the store per command, all or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from lab.routeros_emulator.argument_types import Reference
from lab.routeros_emulator.errors import failure, missing, no_match, no_such_item, unknown_parameter
from lab.routeros_emulator.menu import EmulatedField, EmulatedRow, Values, spell_id
from lab.routeros_emulator.passwords import digest
from lab.routeros_emulator.request import Call, Reply
from lab.routeros_emulator.store import StoreAction, StoreChange, parts

#: In place of the id of a row that is only about to be added. 0 is a real id.
_NO_ID = -1

Written = dict[tuple[str, int], frozenset[str]]


def add(call: Call) -> Reply:
    """Add a row and give its id."""
    menu = call.menu
    given = {name: value for name, value in call.sentence.attributes.items() if name != "copy-from"}
    values = {item.name: item.default for item in menu.fields if item.default is not None}
    if source := call.sentence.attributes.get("copy-from"):
        values = dict(_select_rows(call, source)[0].values)
    values |= menu.stamp(call)
    values = _merge_values(call, values, given)
    for item in menu.fields:
        if item.required and item.name not in values:
            raise missing(item.name)
    _check_row(call, EmulatedRow(_NO_ID, values), None)
    row = EmulatedRow(call.device.store.new_id(menu), values)
    along = [StoreChange(path, other.id, None, other.values) for path, other in menu.along(call.device, row)]
    _commit_action(call, "added", [StoreChange(menu.path, row.id, None, values), *along], {})
    return Reply(ret=spell_id(row.id))


def change(call: Call) -> Reply:
    """Carry out set: write fields of the rows that ``.id`` or ``numbers`` name."""
    given = {name: value for name, value in call.sentence.attributes.items() if name not in (".id", "numbers")}
    return _write_rows(call, given, "changed")


def unset(call: Call) -> Reply:
    """Bring a field back to its default; one without a default becomes absent. Only the words that the command tree
    completes are taken."""
    name = call.sentence.attributes.get("value-name")
    if not name:
        raise missing("value-name")
    item = call.menu.field(name, call.device.version)
    if item is None or (call.menu.unsets is not None and name not in call.menu.unsets):
        raise no_match("value-name")
    changes, written = [], {}
    for row in _select_targets(call):
        values = {key: value for key, value in row.values.items() if key != item.name}
        if item.default is not None:
            values[item.name] = item.default
        _check_row(call, EmulatedRow(row.id, values), row)
        changes.append(StoreChange(call.menu.path, row.id, row.values, values))
        written[call.menu.path, row.id] = frozenset({item.name})
    _commit_action(call, "changed", changes, written)
    return Reply()


def enable(call: Call) -> Reply:
    """Set disabled=no."""
    return _set_disabled(call, "no")


def disable(call: Call) -> Reply:
    """Set disabled=yes."""
    return _set_disabled(call, "yes")


def remove(call: Call) -> Reply:
    """Remove rows; what refers to them by name afterwards shows their id."""
    changes: list[StoreChange] = []
    for row in _select_targets(call):
        call.menu.keep(call.device, row)
        changes += call.device.store.followers(call.menu, row, None)
        along = call.menu.along(call.device, row)
        changes += [StoreChange(path, other.id, other.values, None) for path, other in along]
        changes.append(StoreChange(call.menu.path, row.id, row.values, None))
    _commit_action(call, "removed", changes, {})
    return Reply()


def _set_disabled(call: Call, value: str) -> Reply:
    for name in call.sentence.attributes:
        if name not in (".id", "numbers"):
            raise unknown_parameter(name)
    return _write_rows(call, {"disabled": value}, "changed")


def _write_rows(call: Call, given: Values, text: str) -> Reply:
    menu = call.menu
    changes: list[StoreChange] = []
    written: Written = {}
    for row in _select_targets(call):
        values = _merge_values(call, dict(row.values), given)
        _check_row(call, EmulatedRow(row.id, values), row, changes)
        changes += call.device.store.followers(menu, row, values)
        changes.append(StoreChange(menu.path, row.id, row.values, values))
        written[menu.path, row.id] = frozenset(given)
    _commit_action(call, text, changes, written)
    return Reply()


def _commit_action(call: Call, verb: str, changes: list[StoreChange], written: Written) -> None:
    text = f"{call.menu.path.strip('/').replace('/', ' ')} {verb}"
    now = call.device.clock.stamp()
    call.device.store.apply(StoreAction(text, call.client.owner, now, tuple(changes), written))


def _select_targets(call: Call) -> list[EmulatedRow]:
    if call.menu.singleton:
        return list(call.device.store.rows(call.menu.path))
    given = call.sentence.attributes
    numbers = given.get(".id") or given.get("numbers")
    if not numbers:
        raise missing(".id")
    return _select_rows(call, numbers)


def _select_rows(call: Call, numbers: str) -> list[EmulatedRow]:
    rows: dict[int, EmulatedRow] = {}
    for name in filter(None, numbers.split(",")):
        row = call.device.store.find(call.menu.path, name)
        if row is None:
            raise no_such_item()
        rows[row.id] = row
    return list(rows.values())


def _merge_values(call: Call, values: Values, given: Values) -> Values:
    for name, text in given.items():
        item = call.menu.field(name, call.device.version)
        if item is None:
            raise unknown_parameter(name)
        if text == "" and item.clears:
            values.pop(item.name, None)
        elif item.secret:
            values[item.name] = digest(text)
        else:
            values[item.name] = item.kind.parse(name, text)
    return values


def _current_name(call: Call, item: EmulatedField, name: str) -> str:
    """The present name of the row that a reference means."""
    found = call.device.store.find_any(item.kind.menus, name) if isinstance(item.kind, Reference) else None
    if found is None:
        raise no_match(item.name)
    return found.values.get("name", name)


def _check_row(call: Call, row: EmulatedRow, old: EmulatedRow | None, pending: Sequence[StoreChange] = ()) -> None:
    """Refuse a row that breaks a rule; ``pending`` are the rows that the same command has yet to store."""
    menu, store = call.menu, call.device.store
    for item in menu.references:
        name = row.values.get(item.name)
        if name is not None and (old is None or name != old.values.get(item.name)):
            row.values[item.name] = ",".join(_current_name(call, item, part) for part in parts(item, name))
    others = {other.id: other.values for other in store.rows(menu.path)}
    others |= {item.id: item.after for item in pending if item.path == menu.path and item.after is not None}
    others.pop(row.id, None)
    for fields, what in menu.unique:
        mine = [row.values.get(name) for name in fields]
        if any([values.get(name) for name in fields] == mine for values in others.values()):
            raise failure(what)
    if menu.pool is not None and menu.named_by is not None:
        kin = [other.path for other in store.menus.values() if other.pool == menu.pool and other is not menu]
        if store.find_any(kin, row.values[menu.named_by]) is not None:
            raise failure(f"already have {menu.pool} with such name")
    menu.check(call.device, row, old)
