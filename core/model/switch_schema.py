"""A switch as typed, frozen data: how it is reached, how its cages are split, and how it is kept."""

from __future__ import annotations

from contextvars import ContextVar
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
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from core.hardware import registry
from core.hardware.breakout_hints import suggest_breakout
from core.hardware.fec import FecMode
from core.hardware.switch_model import SwitchModel
from core.model.fields import (
    PLAIN_API_PORT,
    TLS_API_PORT,
    Address,
    Fingerprint,
    Frozen,
    HostName,
    Management,
    Model,
    Mtu,
    Name,
    NonEmptyList,
    NotEmpty,
    RouterOsRelease,
    Section,
    Serial,
    Syslog,
    TcpPort,
    invalid,
)
from core.model.secrets import SecretRef
from core.model.timezones import TimeZone


class Tls(Section):
    """The pinned certificate of the switch, by the SHA-256 fingerprint of its DER form."""

    @model_validator(mode="before")
    @classmethod
    def _which_certificate(cls, value: object) -> object:
        if not isinstance(value, dict | Tls):
            raise invalid(
                "{value} does not name a certificate",
                'write {sha256: "<64 hex digits>"}, or false for the plain API',
            )
        return value

    sha256: Fingerprint = Field(examples=['"<64 hex digits>"'])


class Reader(Section):
    """A read-only user of the switch, for verification over REST.

    `port` is that of the www-ssl service, which presents the same certificate as the API.
    """

    user: Name = Field(default="sparkrack-reader", examples=["sparkrack-reader"])
    password: SecretRef = Field(examples=["{env: CRS812_READER_PASSWORD}"])
    port: TcpPort = 443


class Snmp(Section):
    """Read access by SNMP version 3, authenticated and encrypted; weaker versions are not supported."""

    @model_validator(mode="before")
    @classmethod
    def _who_may_read(cls, value: object) -> object:
        if not isinstance(value, dict | Snmp):
            raise invalid(
                "{value} does not name the user that reads", "write user, authentication and encryption, or false"
            )
        return value

    user: Name = Field(examples=["monitor"])
    authentication: SecretRef = Field(examples=["{env: SNMP_AUTHENTICATION}"])
    encryption: SecretRef = Field(examples=["{env: SNMP_ENCRYPTION}"])


_MODEL: ContextVar[SwitchModel | None] = ContextVar("the model whose cages are judged", default=registry.DEFAULT)
"""Pydantic gives a section no access to the one around it. None: the model itself is invalid, so no cage is checked."""


def _known_model(text: str) -> str:
    if registry.find(text) is None:
        raise invalid("{value} is not a model that is known", f"write one of {registry.choices()}")
    return text


KnownModel = Annotated[Model, AfterValidator(_known_model)]


def _check_cage_name(name: str) -> str:
    model = _MODEL.get()
    if model is not None and name not in model.cages:
        cage = name.rpartition("-")[0]
        if cage in model.cages:
            raise invalid("is one lane, not a cage", f"write {cage}")
        raise invalid(f"a {model.title} has no such cage", f"its cages are {', '.join(model.cages)}")
    return name


CageName = Annotated[StrictStr, AfterValidator(_check_cage_name)]


class CageSpec(Section):
    """The breakout of a cage of the switch, whether its cables are copper or optic, and the speed and FEC of its legs.

    `speed` is forced, or negotiated with the other end of each cable. Without `fec`, forced legs have the FEC that
    their speed needs on that medium, and negotiated ones `auto`.
    """

    name: CageName
    split: StrictStr = Field(examples=["4x100G"])
    medium: Literal["copper", "optic"] = "copper"
    speed: Literal["forced", "negotiated"] = "forced"
    fec: Annotated[FecMode | None, NotEmpty] = None

    @field_validator("split")
    @classmethod
    def _split_of_this_cage(cls, split: str, info: ValidationInfo) -> str:
        model, cage = _MODEL.get(), info.data.get("name")
        # Without a name the cage itself is at fault, and that is reported.
        if model is not None and cage is not None and split not in model.cages[cage].breakouts:
            raise invalid(*suggest_breakout(model, cage, split))
        return split


Purgeable = Literal["bridge-ports", "bridge-vlans", "users", "scripts"]


class Switch(Section):
    """A switch of a known model. `tls` False is the plain API, for first contact and the lab; other cages are left
    alone.

    `release`: the RouterOS that it runs, which `sparkrack upgrade switch` installs; None: any that is supported.

    What is None is not managed: `management` (subnets that may reach the services of the switch), `reader`,
    `time_zone`, `ntp`, `dns`, `lldp`, `syslog` and `snmp`. Rows that the file does not declare are left, but for
    the menus named in `purge`. `backups`: how many are kept on the operator's machine,
    beside the first.
    """

    name: HostName
    address: Address = Field(examples=["10.77.0.2"])
    port: TcpPort = TLS_API_PORT
    tls: Annotated[
        Annotated[Tls, Tag("pinned")] | Annotated[Literal[False], Tag("plain")],
        Discriminator(lambda value: "plain" if value is False else "pinned"),
    ] = Field(examples=['{sha256: "<64 hex digits>"}'])
    user: Name = Field(examples=["sparkrack"])
    password: SecretRef = Field(examples=["{env: CRS812_PASSWORD}"])
    model: KnownModel = registry.DEFAULT.name
    serial: Annotated[Serial | None, NotEmpty] = None
    release: Annotated[RouterOsRelease | None, NotEmpty] = Field(default=None, examples=['"7.24.6"'])
    identity: Annotated[Name | None, NotEmpty] = None
    cages: Frozen[str, CageSpec] = Field(examples=["{qsfp56-dd-1: {split: 4x100G}}"])
    mtu: Mtu = 9000
    l2mtu: Mtu = 9500
    bridge: Name = "bridge"
    lossless: Literal["none", "pause", "ecn", "roce", "leave"] = "none"
    management: Annotated[Annotated[tuple[Management, ...], NonEmptyList] | None, NotEmpty] = Field(
        default=None, examples=["[10.77.0.0/24]"]
    )
    reader: Annotated[Reader | None, NotEmpty] = Field(
        default=None, examples=["{password: {env: CRS812_READER_PASSWORD}}"]
    )
    time_zone: Annotated[TimeZone | None, NotEmpty] = Field(default=None, examples=["Europe/Berlin"])
    ntp: Annotated[Annotated[tuple[Address, ...], NonEmptyList] | None, NotEmpty] = Field(
        default=None, examples=["[10.77.0.1]"]
    )
    dns: Annotated[Annotated[tuple[Address, ...], NonEmptyList] | None, NotEmpty] = Field(
        default=None, examples=["[10.77.0.1]"]
    )
    lldp: Annotated[StrictBool | None, NotEmpty] = None
    syslog: Annotated[Syslog | None, NotEmpty] = Field(default=None, examples=["head"])
    snmp: Annotated[
        Annotated[
            Annotated[Snmp, Tag("v3")] | Annotated[Literal[False], Tag("off")],
            Discriminator(lambda value: "off" if value is False else "v3"),
        ]
        | None,
        NotEmpty,
    ] = Field(default=None, examples=["false"])
    purge: tuple[Purgeable, ...] = Field(default=(), examples=["[users]"])
    backups: Annotated[StrictInt, Field(ge=1, le=1000)] = 10

    @property
    def hardware(self) -> SwitchModel:
        """The model: its cages, their breakouts, its other ports and its limits."""
        return registry.get(self.model)

    @field_validator("cages", mode="wrap")
    @classmethod
    def _cages_of_its_model(cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        """Judge each cage by the model, which stands above `cages` in this class and so is read before them."""
        model = info.data.get("model")
        token = _MODEL.set(registry.find(model) if model else None)
        try:
            return handler(value)
        finally:
            _MODEL.reset(token)

    @model_validator(mode="before")
    @classmethod
    def _plain_port(cls, value: Any) -> Any:
        """Without TLS and without a port, the port is that of the plain API."""
        if isinstance(value, dict) and value.get("tls") is False and "port" not in value:
            return {**value, "port": PLAIN_API_PORT}
        return value
