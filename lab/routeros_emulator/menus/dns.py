"""/ip/dns. Arguments: schema of RouterOS 7.23; defaults: published verbose exports of 7.x units. Nothing is
resolved here."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from lab.routeros_emulator.argument_types import Bool, Duration, Integer, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError
from lab.routeros_emulator.menu import EDIT, EmulatedField, EmulatedMenu, Values


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
    EmulatedField("servers", Addresses(), ""),
    EmulatedField("use-doh-server", Text(), ""),
    EmulatedField("verify-doh-cert", Bool(), "false"),
    EmulatedField("doh-max-server-connections", Integer(), "5"),
    EmulatedField("doh-max-concurrent-queries", Integer(), "50"),
    EmulatedField("doh-timeout", Duration(), "5s"),
    EmulatedField("allow-remote-requests", Bool(), "false"),
    EmulatedField("max-udp-packet-size", Integer(50, 65507), "4096"),
    EmulatedField("query-server-timeout", Duration(), "2s"),
    EmulatedField("query-total-timeout", Duration(), "10s"),
    EmulatedField("max-concurrent-queries", Integer(), "100"),
    EmulatedField("max-concurrent-tcp-sessions", Integer(), "20"),
    EmulatedField("cache-size", Kibibytes(), "2048"),
    EmulatedField("cache-max-ttl", Duration(), "1w"),
    EmulatedField("address-list-extra-time", Duration(), "0s"),
    EmulatedField("mdns-repeat-ifaces", Text(), ""),
    EmulatedField("vrf", Text(), "main"),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    yield {item.name: str(item.default) for item in FIELDS}


DNS = EmulatedMenu(
    "/ip/dns",
    FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=_factory_rows,
    show=lambda _device, _row: {"dynamic-servers": "", "cache-used": "0"},
)
