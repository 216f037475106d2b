"""/export: the configuration as a script, without what every unit of this kind has anyway.

The form is the published one of 7.x exports, but that lines are not broken at 80 columns and menus come in
the order of their paths. Passwords of users are never in it, those of SNMP with ``show-sensitive`` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lab.routeros_emulator.errors import unknown_parameter
from lab.routeros_emulator.menu import EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.permissions import held, not_permitted
from lab.routeros_emulator.request import Call, Reply

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice

_FLAGS = frozenset({"compact", "hide-sensitive", "show-sensitive", "terse", "verbose"})
#: Not in an export of everything (MikroTik manual, 'Configuration management': no users, no certificates).
_APART = ("/user", "/certificate")
_BARE = re.compile(r"[A-Za-z0-9_.,:/*!+@-]+")
_TRUTH = {"true": "yes", "false": "no"}


def export(call: Call) -> Reply:
    """Export a menu and those below it; with ``file`` into a file, else to a console that the API has not."""
    given = call.sentence.attributes
    for name in given:
        if name not in _FLAGS | {"file"}:
            raise unknown_parameter(name)
    wanted = {"sensitive"} if "show-sensitive" in given else set()
    wanted |= {"ftp"} if given.get("file") else set()
    if not wanted <= held(call.device, call.client):
        raise not_permitted()
    if file := given.get("file"):
        content = text(call.device, call.sentence.menu, verbose="verbose" in given, sensitive="show-sensitive" in given)
        call.device.write_file(f"{file.removesuffix('.rsc')}.rsc", content.encode("utf-8", "surrogateescape"))
    return Reply()


def text(device: EmulatedDevice, within: str = "", *, verbose: bool = False, sensitive: bool = False) -> str:
    """Give the script. Its first line holds the time and so differs each time."""
    config = device.config
    version = config.version.split()[0]
    lines = [
        f"# {device.clock.stamp()} by RouterOS {version}",
        "# software id = ",
        "#",
        f"# model = {config.model}",
        f"# serial number = {config.serial}",
    ]
    for path in sorted(device.menus):
        if not f"{path}/".startswith(f"{within}/") or (not within and path.startswith(_APART)):
            continue
        commands = list(_list_commands(device, device.menus[path], verbose, sensitive))
        if commands:
            lines += [path.replace("/", " ").replace(" ", "/", 1), *commands]
    return "\n".join(lines) + "\n"


def _list_commands(device: EmulatedDevice, menu: EmulatedMenu, verbose: bool, sensitive: bool) -> Iterator[str]:
    if menu.rows is not None:
        return
    factory = list(menu.factory(device)) if menu.factory is not None else []
    for number, row in enumerate(device.store.rows(menu.path)):
        shown = menu.show(device, row)
        if shown.get("dynamic") == "true":
            continue
        added = "add" in menu.verbs and shown.get("default", shown.get("builtin")) != "true"
        usual = _default_values(menu) | (_factory_row(menu, factory, row) if not added else {})
        shown_fields = [item for item in menu.fields if sensitive or not item.sensitive]
        values = list(_list_written_fields(device, shown_fields, row, {} if verbose else usual))
        if added:
            yield " ".join(["add", *values])
        elif values:
            yield " ".join(["set", *_name_row(menu, row, number), *values])


def _default_values(menu: EmulatedMenu) -> Values:
    return {item.name: item.default for item in menu.fields if item.default is not None}


def _factory_row(menu: EmulatedMenu, factory: list[Values], row: EmulatedRow) -> Values:
    """Return the factory values of a row that cannot be added: found by a name that does not change."""
    if menu.singleton:
        return factory[0] if factory else {}
    for key in ("default-name", menu.named_by):
        if key is not None and key in row.values:
            return next((values for values in factory if values.get(key) == row.values[key]), {})
    place = row.id - menu.first_id
    return factory[place] if place < len(factory) else {}


def _name_row(menu: EmulatedMenu, row: EmulatedRow, number: int) -> list[str]:
    if menu.singleton:
        return []
    if "default-name" in row.values:
        return ["[", "find", f"default-name={row.values['default-name']}", "]"]
    return [_quote_value(row.values[menu.named_by]) if menu.named_by in row.values else str(number)]


def _list_written_fields(
    device: EmulatedDevice, fields: list[EmulatedField], row: EmulatedRow, usual: Values
) -> Iterator[str]:
    for item in sorted(fields, key=lambda item: item.name):
        name, value = item.spelling(device.version), row.values.get(item.name)
        if name is None or item.fixed or item.secret or value is None or value == usual.get(item.name):
            continue
        yield f"{name}={_quote_value(_TRUTH.get(value, value))}"


def _quote_value(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("$", "\\$"), ("\r", "\\r"), ("\n", "\\n"), ("\t", "\\t")):
        value = value.replace(plain, escaped)
    return f'"{value}"'
