"""/user and /user/active."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Duration, Enum, Prefixes, Reference, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.login import USER as PATH
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.group import USER_NEEDS
from lab.routeros_emulator.passwords import digest
from lab.routeros_emulator.permissions import GROUP, of_group

FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("group", Reference((GROUP,)), required=True),
    EmulatedField("password", Text(), secret=True),
    EmulatedField("address", Prefixes(), ""),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("inactivity-policy", Enum(("lockscreen", "logout", "none")), "none"),
    EmulatedField("inactivity-timeout", Duration(60, 86400), "10m"),
)


def _factory_rows(device: EmulatedDevice) -> Iterator[Values]:
    """Yield the configured users; ``admin`` always exists, with an unknown password unless it is configured (a real
    unit has it on a sticker).
    """
    defaults = {f.name: f.default for f in FIELDS if f.default is not None}
    if all(user.name != "admin" for user in device.config.users):
        yield {"name": "admin", "group": "full", "password": digest(secrets.token_hex(16))} | defaults
    for user in device.config.users:
        password = user.password_file.read_text().removesuffix("\n")
        yield {"name": user.name, "group": user.group, "password": digest(password)} | defaults


def _check_row(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    row.values.setdefault("password", digest(""))
    if not row.values["name"]:
        raise failure("user name can not be empty")
    if not _can_administer(device, row):
        _require_other_administrator(device, row)
    if row.values["disabled"] == "true":
        _keep_full(device, row)


def _keep_full(device: EmulatedDevice, row: EmulatedRow) -> None:
    """Keep a user with full access, as the manual says ('User'); whether that means the group full, and disabling it,
    is not documented.
    """
    full = [other for other in device.store.rows(PATH) if other.values["group"] == "full"]
    left = [other for other in full if other.id != row.id and other.values["disabled"] == "false"]
    if device.config.keeps_full_user and row.values["group"] == "full" and not left:
        raise failure("can not disable last user with full rights")


def _require_other_administrator(device: EmulatedDevice, row: EmulatedRow) -> None:
    """Keep a user who can administer the unit. The wording is inferred."""
    if not any(_can_administer(device, other) for other in device.store.rows(PATH) if other.id != row.id):
        raise failure("can not remove last user with full rights")


def _can_administer(device: EmulatedDevice, row: EmulatedRow) -> bool:
    return row.values["disabled"] == "false" and {"write", "policy"} <= of_group(device, row.values["group"])


def _list_active(device: EmulatedDevice) -> Iterator[Values]:
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


USER = EmulatedMenu(
    PATH,
    FIELDS,
    verbs=FULL,
    named_by="name",
    unique=((("name",), "user with the same name already exists"),),
    factory=_factory_rows,
    show=lambda _device, _row: {"expired": "false"},
    check=_check_row,
    keep=_require_other_administrator,
    needs=USER_NEEDS,
)
ACTIVE = EmulatedMenu("/user/active", rows=_list_active)
