"""Time servers and time zone of the nodes: the section `time` of rack.yaml."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, StrictStr, TypeAdapter, ValidationError

from core.model.fields import Address, HostName, NonEmptyList, NotEmpty, Section, invalid
from core.model.timezones import TimeZone

MOST_SERVERS = 4
_RIGHT = "write an IPv4 address like 10.77.0.1 or a host name like ntp.example.org"
_ADDRESS, _NAME = TypeAdapter(Address), TypeAdapter(HostName)


def _time_server(value: object) -> object:
    # Digits and dots are an address, so that the reason of the refusal is that of an address.
    if isinstance(value, str) and value.strip("0123456789."):
        try:
            return _NAME.validate_python(value)
        except ValidationError:
            raise invalid("{value} is neither an IPv4 address nor a host name", _RIGHT) from None
    try:
        return _ADDRESS.validate_python(value)
    except ValidationError:
        raise invalid("{value} is not the address of one machine", _RIGHT) from None


def _distinct_servers(servers: tuple[object, ...]) -> tuple[object, ...]:
    if len(servers) > MOST_SERVERS:
        raise invalid(f"lists {len(servers)} servers", f"write at most {MOST_SERVERS}")
    for place, server in enumerate(servers):
        if server in servers[:place]:
            raise invalid(f"lists {server} twice", "list every server once")
    return servers


TimeServer = Annotated[IPv4Address | StrictStr, BeforeValidator(_time_server)]
"""The IPv4 address or the host name of a time server."""


_SERVER: TypeAdapter[IPv4Address | str] = TypeAdapter(TimeServer)


def is_time_server(text: str) -> bool:
    """Return whether `time.ntp` takes this server."""
    try:
        _SERVER.validate_python(text)
    except ValidationError:
        return False
    return True


class TimeOptions(Section):
    """Where the nodes get their time, and their time zone; `time_zone` None leaves the zone alone.

    The keys are those of a switch, which takes addresses only.
    """

    ntp: Annotated[tuple[TimeServer, ...], NonEmptyList, AfterValidator(_distinct_servers)] = Field(
        examples=["[10.77.0.1]"]
    )
    time_zone: Annotated[TimeZone | None, NotEmpty] = Field(default=None, examples=["Europe/Berlin"])
