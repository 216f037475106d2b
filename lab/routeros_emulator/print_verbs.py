"""print, getall and get: rows as the API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from lab.routeros_emulator.errors import TrapError, missing, no_such_item, unknown_parameter
from lab.routeros_emulator.menu import EmulatedMenu, EmulatedRow, Values, spell_id
from lab.routeros_emulator.permissions import held
from lab.routeros_emulator.query import matches
from lab.routeros_emulator.request import Call, Reply, RequestClient

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice

#: Arguments of print that shape a console's output and change nothing over the API (schema).
_COSMETIC = """
    as-value brief comments detail show-ids stats stats-detail terse timestamp value-list without-paging
"""
_PRINT = {*_COSMETIC.split(), "proplist", ".proplist", "count-only", "from", ".id", "numbers"}


def view(device: EmulatedDevice, menu: EmulatedMenu, row: EmulatedRow, *, sensitive: bool = False) -> Values:
    """Give one stored row as it is printed: id, settable fields that are set, read-only fields. `sensitive`: to a
    client that has the policy of that name.
    """
    shown = {} if menu.singleton else {".id": spell_id(row.id)}
    shown |= menu.printed(row.values, device.version, sensitive=sensitive)
    return shown | menu.show(device, row)


def listing(device: EmulatedDevice, menu: EmulatedMenu, client: RequestClient | None = None) -> Iterator[Values]:
    """Give all rows of a menu as they are printed to a client, in print order."""
    if menu.rows is not None:
        yield from menu.rows(device)
        return
    rows = list(device.store.rows(menu.path))
    if menu.sort is not None:
        rows.sort(key=menu.sort)  # type: ignore[arg-type]
    sensitive = client is not None and "sensitive" in held(device, client)
    for row in rows:
        yield view(device, menu, row, sensitive=sensitive)
    if menu.dynamic is not None:
        yield from menu.dynamic(device)


def pick(rows: Iterable[Values], numbers: str, key: str | None) -> list[Values]:
    """Give the printed rows that a comma list of ids or names means, each once."""
    known = list(rows)
    picked: list[Values] = []
    for name in filter(None, numbers.split(",")):
        found = next((row for row in known if row.get(".id") == name or (key and row.get(key) == name)), None)
        if found is None:
            raise no_such_item()
        if found not in picked:
            picked.append(found)
    return picked


def print_rows(call: Call) -> Reply:
    """Carry out print: selection, query, ``.proplist``, ``count-only``."""
    given = call.sentence.attributes
    for name in given:
        if name not in _PRINT:
            raise unknown_parameter(name)
    rows: Iterable[Values] = listing(call.device, call.menu, call.client)
    for selector in ("from", ".id", "numbers"):
        if selector in given:
            rows = pick(rows, given[selector], call.menu.named_by)
    rows = [row for row in rows if matches(row, call.sentence.queries)]
    if "count-only" in given:
        return Reply(ret=str(len(rows)))
    return Reply(rows=[narrow(row, given) for row in rows], listing=True)


def narrow(row: Mapping[str, str], given: Mapping[str, str]) -> Values:
    """Keep the fields that a proplist names; a row that has none of them stays, empty."""
    text = given.get(".proplist") or given.get("proplist")
    if not text:
        return dict(row)
    return {name: row[name] for name in text.split(",") if name in row}


def get_value(call: Call) -> Reply:
    """Carry out get: one row, or with ``value-name`` one value, as ``=ret=``."""
    given = call.sentence.attributes
    for name in given:
        if name not in ("number", "numbers", ".id", "value-name", "as-string", "as-string-value"):
            raise unknown_parameter(name)
    rows = list(listing(call.device, call.menu, call.client))
    if not call.menu.singleton:
        wanted = given.get("number") or given.get("numbers") or given.get(".id")
        if not wanted:
            raise missing("number")
        rows = pick(rows, wanted, call.menu.named_by)
    if not rows:
        raise no_such_item()
    value_name = given.get("value-name")
    if not value_name:
        return Reply(ret=";".join(f"{key}={value}" for key, value in rows[0].items()))
    if value_name not in rows[0] and call.menu.field(value_name, call.device.version) is None:
        raise TrapError("unknown value name")
    return Reply(ret=rows[0].get(value_name, ""))
