"""/ip/dns. Arguments: schema of RouterOS 7.23; defaults: published verbose exports of 7.x units. Nothing is
resolved here."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from ..device import Device
from ..errors import ARGUMENT_VALUE, TrapError
from ..kinds import Bool, Duration, Integer, Text
from ..menu import EDIT, Field, Menu, Values


@dataclass(frozen=True)
class Addresses:
    """A comma list of IPv4 or IPv6 addresses."""

    def parse(self, argument: str, text: str) -> str:
        try:
            return ",".join(str(ipaddress.ip_address(part)) for part in text.split(",") if part)
        except ValueError:
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE) from None


@dataclass(frozen=True)
class Kibibytes:
    """An amount of memory in KiB, with or without the unit; printed as a bare number (inferred)."""

    def parse(self, argument: str, text: str) -> str:
        return Integer(64).parse(argument, text.removesuffix("KiB"))


FIELDS = (
    Field("servers", Addresses(), ""),
    Field("use-doh-server", Text(), ""),
    Field("verify-doh-cert", Bool(), "false"),
    Field("doh-max-server-connections", Integer(), "5"),
    Field("doh-max-concurrent-queries", Integer(), "50"),
    Field("doh-timeout", Duration(), "5s"),
    Field("allow-remote-requests", Bool(), "false"),
    Field("max-udp-packet-size", Integer(50, 65507), "4096"),
    Field("query-server-timeout", Duration(), "2s"),
    Field("query-total-timeout", Duration(), "10s"),
    Field("max-concurrent-queries", Integer(), "100"),
    Field("max-concurrent-tcp-sessions", Integer(), "20"),
    Field("cache-size", Kibibytes(), "2048"),
    Field("cache-max-ttl", Duration(), "1w"),
    Field("address-list-extra-time", Duration(), "0s"),
    Field("mdns-repeat-ifaces", Text(), ""),
    Field("vrf", Text(), "main"),
)


def _factory(_device: Device) -> Iterator[Values]:
    yield {item.name: str(item.default) for item in FIELDS}


DNS = Menu(
    "/ip/dns",
    FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory,
    show=lambda _device, _row: {"dynamic-servers": "", "cache-used": "0"},
)
