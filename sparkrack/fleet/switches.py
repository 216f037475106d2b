"""A switch as typed, frozen data: how it is reached, how its cages are split, and how it is kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sparkrack.fleet import impossible
from sparkrack.fleet.scalars import (
    Address,
    Filled,
    Fingerprint,
    Given,
    HostName,
    Management,
    Model,
    Name,
    Serial,
    Syslog,
    refuse,
)
from sparkrack.fleet.secrets import SecretRef
from sparkrack.fleet.section import Frozen, Mtu, Section, TcpPort
from sparkrack.fleet.splits import CAGES, SPLITS, cage_kind
from sparkrack.fleet.timezones import TimeZone


class Tls(Section):
    """The certificate the switch must show, by the SHA-256 fingerprint of its DER form."""

    @model_validator(mode="before")
    @classmethod
    def _which_certificate(cls, value: object) -> object:
        if not isinstance(value, dict | Tls):
            raise refuse(
                "{value} does not say which certificate",
                'write {sha256: "<64 hex digits>"}, or false for the plain API',
            )
        return value

    sha256: Fingerprint = Field(examples=['"<64 hex digits>"'])


class Reader(Section):
    """A user of the switch that can only read, for verification over REST.

    `port` is that of the www-ssl service, which shows the same certificate as the API.
    """

    user: Name = Field(default="sparkrack-reader", examples=["sparkrack-reader"])
    password: SecretRef = Field(examples=["{env: CRS812_READER_PASSWORD}"])
    port: TcpPort = 443


class Snmp(Section):
    """Read access by SNMP version 3, authenticated and encrypted; there is no weaker kind."""

    @model_validator(mode="before")
    @classmethod
    def _who_may_read(cls, value: object) -> object:
        if not isinstance(value, dict | Snmp):
            raise refuse("{value} does not say who may read", "write user, authentication and encryption, or false")
        return value

    user: Name = Field(examples=["monitor"])
    authentication: SecretRef = Field(examples=["{env: SNMP_AUTHENTICATION}"])
    encryption: SecretRef = Field(examples=["{env: SNMP_ENCRYPTION}"])


def _cage(name: str) -> str:
    if name not in CAGES:
        cage = name.rpartition("-")[0]
        if cage in CAGES:
            raise refuse("is one lane, not a cage", f"write {cage}")
        raise refuse("a CRS812 has no such cage", f"its cages are {', '.join(CAGES)}")
    return name


CageName = Annotated[StrictStr, AfterValidator(_cage)]


class CageSpec(Section):
    """What a cage of the switch is split into, and whether its cables are copper or optic."""

    name: CageName
    split: StrictStr = Field(examples=["4x100G"])
    medium: Literal["copper", "optic"] = "copper"

    @field_validator("split")
    @classmethod
    def _split_of_this_cage(cls, split: str, info: ValidationInfo) -> str:
        if "name" in info.data:  # else the cage itself is at fault, and that is said
            cage = info.data["name"]
            if split not in SPLITS[cage_kind(cage)]:
                raise refuse(*impossible.refusal(cage, split))
        return split


Purgeable = Literal["bridge-ports", "bridge-vlans", "users", "scripts"]


class Switch(Section):
    """A CRS812. `tls` False is the plain API, for first contact and the lab; other cages are left alone.

    What is None is not managed: `management` (who may reach the services of the switch), `reader`, `time_zone`,
    `ntp`, `dns`, `lldp`, `syslog` and `snmp`. Rows that the file does not declare are left, but for the menus
    named in `purge`. `backups` is how many of them are kept on the operator's machine.
    """

    name: HostName
    address: Address = Field(examples=["10.77.0.2"])
    port: TcpPort = 8729
    tls: Annotated[
        Annotated[Tls, Tag("pinned")] | Annotated[Literal[False], Tag("plain")],
        Discriminator(lambda value: "plain" if value is False else "pinned"),
    ] = Field(examples=['{sha256: "<64 hex digits>"}'])
    user: Name = Field(examples=["sparkrack"])
    password: SecretRef = Field(examples=["{env: CRS812_PASSWORD}"])
    model: Model = Field(examples=["CRS812-8DS-2DQ-2DDQ"])
    serial: Annotated[Serial | None, Given] = None
    identity: Annotated[Name | None, Given] = None
    cages: Frozen[str, CageSpec] = Field(examples=["{qsfp56-dd-1: {split: 4x100G}}"])
    mtu: Mtu = 9000
    l2mtu: Mtu = 9500
    bridge: Name = "bridge"
    lossless: Literal["none", "pause", "roce"] = "none"
    management: Annotated[Annotated[tuple[Management, ...], Filled] | None, Given] = Field(
        default=None, examples=["[10.77.0.0/24]"]
    )
    reader: Annotated[Reader | None, Given] = Field(
        default=None, examples=["{password: {env: CRS812_READER_PASSWORD}}"]
    )
    time_zone: Annotated[TimeZone | None, Given] = Field(default=None, examples=["Europe/Berlin"])
    ntp: Annotated[Annotated[tuple[Address, ...], Filled] | None, Given] = Field(default=None, examples=["[10.77.0.1]"])
    dns: Annotated[Annotated[tuple[Address, ...], Filled] | None, Given] = Field(default=None, examples=["[10.77.0.1]"])
    lldp: Annotated[StrictBool | None, Given] = None
    syslog: Annotated[Syslog | None, Given] = Field(default=None, examples=["head"])
    snmp: Annotated[
        Annotated[
            Annotated[Snmp, Tag("v3")] | Annotated[Literal[False], Tag("off")],
            Discriminator(lambda value: "off" if value is False else "v3"),
        ]
        | None,
        Given,
    ] = Field(default=None, examples=["false"])
    purge: tuple[Purgeable, ...] = Field(default=(), examples=["[users]"])
    backups: Annotated[StrictInt, Field(ge=1, le=1000)] = 10

    @model_validator(mode="before")
    @classmethod
    def _plain_port(cls, value: Any) -> Any:
        """Without TLS and without a port, the port is that of the plain API."""
        if isinstance(value, dict) and value.get("tls") is False and "port" not in value:
            return {**value, "port": 8728}
        return value
