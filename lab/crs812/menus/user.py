"""/user and /user/active."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from ..device import Device
from ..errors import failure
from ..kinds import Bool, Duration, Enum, Prefixes, Reference, Text
from ..login import USER as PATH
from ..menu import FULL, Field, Menu, Row, Values
from ..passwords import digest
from ..permissions import GROUP, of_group
from .group import USER_NEEDS

FIELDS = (
    Field("name", Text(), required=True),
    Field("group", Reference((GROUP,)), required=True),
    Field("password", Text(), secret=True),
    Field("address", Prefixes(), ""),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
    Field("inactivity-policy", Enum(("lockscreen", "logout", "none")), "none"),
    Field("inactivity-timeout", Duration(60, 86400), "10m"),
)


def _factory(device: Device) -> Iterator[Values]:
    """The configured users; ``admin`` always exists, with a password that nobody knows unless it is
    configured (a real unit has it on a sticker)."""
    defaults = {f.name: f.default for f in FIELDS if f.default is not None}
    if all(user.name != "admin" for user in device.config.users):
        yield {"name": "admin", "group": "full", "password": digest(secrets.token_hex(16))} | defaults
    for user in device.config.users:
        password = user.password_file.read_text().removesuffix("\n")
        yield {"name": user.name, "group": user.group, "password": digest(password)} | defaults


def _check(device: Device, row: Row, _old: Row | None) -> None:
    row.values.setdefault("password", digest(""))
    if not row.values["name"]:
        raise failure("user name can not be empty")
    if not _rules(device, row):
        _keep(device, row)
    if row.values["disabled"] == "true":
        _keep_full(device, row)


def _keep_full(device: Device, row: Row) -> None:
    """The manual says that a user with full access must stay ('User'); whether that means the group full, and
    disabling it, is not documented."""
    full = [other for other in device.store.rows(PATH) if other.values["group"] == "full"]
    left = [other for other in full if other.id != row.id and other.values["disabled"] == "false"]
    if device.config.keeps_full_user and row.values["group"] == "full" and not left:
        raise failure("can not disable last user with full rights")


def _keep(device: Device, row: Row) -> None:
    """Somebody must be left who can administer the unit. The wording is inferred."""
    if not any(_rules(device, other) for other in device.store.rows(PATH) if other.id != row.id):
        raise failure("can not remove last user with full rights")


def _rules(device: Device, row: Row) -> bool:
    return row.values["disabled"] == "false" and {"write", "policy"} <= of_group(device, row.values["group"])


def _active(device: Device) -> Iterator[Values]:
    for client in device.clients.values():
        yield {
            ".id": f"*{client.number:X}",
            "when": client.since,
            "name": client.user,
            "address": client.address,
            "via": client.via,
            "group": client.group,
            "radius": "false",
        }


USER = Menu(
    PATH,
    FIELDS,
    verbs=FULL,
    named_by="name",
    unique=((("name",), "user with the same name already exists"),),
    factory=_factory,
    show=lambda _device, _row: {"expired": "false"},
    check=_check,
    keep=_keep,
    needs=USER_NEEDS,
)
ACTIVE = Menu("/user/active", rows=_active)
