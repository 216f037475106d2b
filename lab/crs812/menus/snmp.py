"""/snmp and its communities: kept and printed; no agent answers.

Arguments: schema of RouterOS 7.23; defaults: published verbose exports of 7.x units. The passwords are kept
as digests and never printed; a real unit shows them to users with the policy ``sensitive``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..device import Device
from ..errors import failure
from ..kinds import Bool, Enum, Prefixes, Reference, Text, Words
from ..menu import EDIT, FULL, Field, Menu, Row, Values
from .ntp import Host

PATH, COMMUNITIES = "/snmp", "/snmp/community"
_GENERATORS = ("interfaces", "start-trap", "temp-exception")

FIELDS = (
    Field("enabled", Bool(), "false"),
    Field("contact", Text(), ""),
    Field("location", Text(), ""),
    Field("engine-id-suffix", Text(), ""),
    Field("src-address", Host(), "::"),
    Field("trap-community", Reference((COMMUNITIES,)), "public"),
    Field("trap-generators", Words(_GENERATORS), "temp-exception"),
    Field("trap-interfaces", Text(), ""),
    Field("trap-target", Text(), ""),
    Field("trap-version", Enum(("1", "2", "3")), "1"),
    Field("vrf", Text(), "main"),
)
COMMUNITY_FIELDS = (
    Field("name", Text(), required=True),
    Field("addresses", Prefixes(), "::/0"),
    Field("security", Enum(("none", "authorized", "private")), "none"),
    Field("read-access", Bool(), "true"),
    Field("write-access", Bool(), "false"),
    Field("authentication-protocol", Enum(("MD5", "SHA1")), "MD5"),
    Field("encryption-protocol", Enum(("DES", "AES")), "DES"),
    Field("authentication-password", Text(), secret=True),
    Field("encryption-password", Text(), secret=True),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
)


def _factory(_device: Device) -> Iterator[Values]:
    yield {item.name: str(item.default) for item in FIELDS}


def _communities(_device: Device) -> Iterator[Values]:
    yield {"name": "public"} | {item.name: item.default for item in COMMUNITY_FIELDS if item.default is not None}


def _show(_device: Device, row: Row) -> Values:
    return {"default": "true" if row.id == 1 else "false"}


def _keep(_device: Device, row: Row) -> None:
    if row.id == 1:
        raise failure("can not remove default community")


SNMP = Menu(
    PATH,
    FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory,
    show=lambda _device, _row: {"engine-id": "80003a8c04"},
)
COMMUNITY = Menu(
    COMMUNITIES,
    COMMUNITY_FIELDS,
    verbs=FULL,
    named_by="name",
    unique=((("name",), "community with the same name already exists"),),
    factory=_communities,
    show=_show,
    keep=_keep,
)
