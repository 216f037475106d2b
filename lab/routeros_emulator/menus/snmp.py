"""/snmp and its communities: kept and printed; no agent answers.

Arguments: schema of RouterOS 7.23; defaults: published verbose exports of 7.x units. The passwords are printed to
users with the policy ``sensitive``, as a published REST dump of a real unit shows; that others get rows without these
fields is inferred.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Enum, Prefixes, Reference, Text, Words
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure
from lab.routeros_emulator.menu import EDIT, FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.ntp import Host

PATH, COMMUNITIES = "/snmp", "/snmp/community"
_GENERATORS = ("interfaces", "start-trap", "temp-exception")

FIELDS = (
    EmulatedField("enabled", Bool(), "false"),
    EmulatedField("contact", Text(), ""),
    EmulatedField("location", Text(), ""),
    EmulatedField("engine-id-suffix", Text(), ""),
    EmulatedField("src-address", Host(), "::"),
    EmulatedField("trap-community", Reference((COMMUNITIES,)), "public"),
    EmulatedField("trap-generators", Words(_GENERATORS), "temp-exception"),
    EmulatedField("trap-interfaces", Text(), ""),
    EmulatedField("trap-target", Text(), ""),
    EmulatedField("trap-version", Enum(("1", "2", "3")), "1"),
    EmulatedField("vrf", Text(), "main"),
)
COMMUNITY_FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("addresses", Prefixes(), "::/0"),
    EmulatedField("security", Enum(("none", "authorized", "private")), "none"),
    EmulatedField("read-access", Bool(), "true"),
    EmulatedField("write-access", Bool(), "false"),
    EmulatedField("authentication-protocol", Enum(("MD5", "SHA1")), "MD5"),
    EmulatedField("encryption-protocol", Enum(("DES", "AES")), "DES"),
    EmulatedField("authentication-password", Text(), "", sensitive=True),
    EmulatedField("encryption-password", Text(), "", sensitive=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    yield {item.name: str(item.default) for item in FIELDS}


def _factory_communities(_device: EmulatedDevice) -> Iterator[Values]:
    yield {"name": "public"} | {item.name: item.default for item in COMMUNITY_FIELDS if item.default is not None}


def _show_row(_device: EmulatedDevice, row: EmulatedRow) -> Values:
    return {"default": "true" if row.id == 1 else "false"}


def _refuse_removal(_device: EmulatedDevice, row: EmulatedRow) -> None:
    if row.id == 1:
        raise failure("can not remove default community")


SNMP = EmulatedMenu(
    PATH,
    FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory_rows,
    show=lambda _device, _row: {"engine-id": "80003a8c04"},
)
COMMUNITY = EmulatedMenu(
    COMMUNITIES,
    COMMUNITY_FIELDS,
    verbs=FULL,
    named_by="name",
    unique=((("name",), "community with the same name already exists"),),
    factory=_factory_communities,
    show=_show_row,
    keep=_refuse_removal,
)
