"""/interface/list, as far as the services that are limited to a list need it. The four built-in lists:
MikroTik manual, 'Interface lists'."""

from __future__ import annotations

from collections.abc import Iterator

from ..device import BRIDGE, ETHERNET, Device
from ..errors import failure
from ..kinds import Bool, Reference, Text
from ..menu import FULL, Field, Menu, Row, Values

LIST, MEMBER = "/interface/list", "/interface/list/member"
_BUILTIN = ("all", "none", "dynamic", "static")

LIST_FIELDS = (
    Field("name", Text(), required=True),
    Field("include", Reference((LIST,), many=True), ""),
    Field("exclude", Reference((LIST,), many=True), ""),
    Field("comment", Text(), clears=True),
)
MEMBER_FIELDS = (
    Field("list", Reference((LIST,)), required=True),
    Field("interface", Reference((BRIDGE, ETHERNET)), required=True),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
)


def _factory(_device: Device) -> Iterator[Values]:
    for name in _BUILTIN:
        yield {"name": name, "include": "", "exclude": ""}


def _builtin(row: Row) -> bool:
    return row.id <= len(_BUILTIN)


def _show(_device: Device, row: Row) -> Values:
    return {"builtin": "true" if _builtin(row) else "false", "dynamic": "false"}


def _keep(_device: Device, row: Row) -> None:
    if _builtin(row):
        raise failure("can not remove builtin list")


def _check(_device: Device, row: Row, old: Row | None) -> None:
    if old is not None and _builtin(old) and row.values["name"] != old.values["name"]:
        raise failure("can not change builtin list")


LISTS = Menu(
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
MEMBERS = Menu(
    MEMBER,
    MEMBER_FIELDS,
    verbs=FULL,
    unique=((("list", "interface"), "already have such list member"),),
    show=lambda _device, _row: {"dynamic": "false"},
)
