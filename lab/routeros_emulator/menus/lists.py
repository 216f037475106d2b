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


def _factory(_device: EmulatedDevice) -> Iterator[Values]:
    for name in _BUILTIN:
        yield {"name": name, "include": "", "exclude": ""}


def _builtin(row: EmulatedRow) -> bool:
    return row.id <= len(_BUILTIN)


def _show(_device: EmulatedDevice, row: EmulatedRow) -> Values:
    return {"builtin": "true" if _builtin(row) else "false", "dynamic": "false"}


def _keep(_device: EmulatedDevice, row: EmulatedRow) -> None:
    if _builtin(row):
        raise failure("can not remove builtin list")


def _check(_device: EmulatedDevice, row: EmulatedRow, old: EmulatedRow | None) -> None:
    if old is not None and _builtin(old) and row.values["name"] != old.values["name"]:
        raise failure("can not change builtin list")


LISTS = EmulatedMenu(
    LIST,
    LIST_FIELDS,
    verbs=FULL - {"enable", "disable"},
    named_by="name",
    unique=((("name",), "already have interface list with such name"),),
    factory=_factory,
    show=_show,
    check=_check,
    keep=_keep,
)
MEMBERS = EmulatedMenu(
    MEMBER,
    MEMBER_FIELDS,
    verbs=FULL,
    unique=((("list", "interface"), "already have such list member"),),
    show=lambda _device, _row: {"dynamic": "false"},
)
