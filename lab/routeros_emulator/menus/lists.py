"""/interface/list, as far as the services that are limited to a list need it. The four built-in lists:
MikroTik manual, 'Interface lists'."""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Reference, Text
from lab.routeros_emulator.device import BONDING, BRIDGE, ETHERNET, EmulatedDevice
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values

LIST, MEMBER = "/interface/list", "/interface/list/member"
_BUILTIN = ("all", "none", "dynamic", "static")

LIST_FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("include", Reference((LIST,), many=True), ""),
    EmulatedField("exclude", Reference((LIST,), many=True), ""),
    EmulatedField("comment", Text(), clears=True),
)
MEMBER_FIELDS = (
    EmulatedField("list", Reference((LIST,)), required=True),
    EmulatedField("interface", Reference((BRIDGE, ETHERNET, BONDING)), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    for name in _BUILTIN:
        yield {"name": name, "include": "", "exclude": ""}


def _is_builtin(row: EmulatedRow) -> bool:
    return row.id <= len(_BUILTIN)


def _show_row(_device: EmulatedDevice, row: EmulatedRow) -> Values:
    return {"builtin": "true" if _is_builtin(row) else "false", "dynamic": "false"}


def _refuse_removal(_device: EmulatedDevice, row: EmulatedRow) -> None:
    if _is_builtin(row):
        raise failure("can not remove builtin list")


def _check_row(_device: EmulatedDevice, row: EmulatedRow, old: EmulatedRow | None) -> None:
    if old is not None and _is_builtin(old) and row.values["name"] != old.values["name"]:
        raise failure("can not change builtin list")


LISTS = EmulatedMenu(
    LIST,
    LIST_FIELDS,
    verbs=FULL - {"enable", "disable"},
    named_by="name",
    unique=((("name",), "already have interface list with such name"),),
    factory=_factory_rows,
    show=_show_row,
    check=_check_row,
    keep=_refuse_removal,
)
MEMBERS = EmulatedMenu(
    MEMBER,
    MEMBER_FIELDS,
    verbs=FULL,
    unique=((("list", "interface"), "already have such list member"),),
    show=lambda _device, _row: {"dynamic": "false"},
)
