"""/ip/address and /ip/service. Arguments: schema of RouterOS 7.23.

``disabled``, ``address``, ``max-sessions``, ``certificate`` and ``tls-version`` of api, api-ssl, www and www-ssl
act. ``port`` is kept but the emulator goes on listening where its configuration says; addresses decide where it is
reachable if the configuration says ``follow``, and do nothing else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from lab.routeros_emulator.argument_types import Bool, Enum, Integer, Interface4, Prefixes, Reference, Text
from lab.routeros_emulator.device import BONDING, BRIDGE, CERTIFICATE, ETHERNET, EmulatedDevice
from lab.routeros_emulator.errors import failure, no_match, unknown_parameter
from lab.routeros_emulator.menu import FULL, SWITCHABLE, EmulatedField, EmulatedMenu, EmulatedRow, Values

ADDRESS_FIELDS = (
    EmulatedField("address", Interface4(), required=True),
    EmulatedField("interface", Reference((BRIDGE, ETHERNET, BONDING)), required=True),
    EmulatedField("network", Text(), clears=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
)


class _Certificate(Reference):
    """The name of a certificate, or ``none``, which is kept as no name at all."""

    def parse(self, argument: str, text: str) -> str:
        if "," in text:
            raise no_match(argument)
        return "" if text == "none" else text


SERVICE_FIELDS = (
    EmulatedField("port", Integer(1, 65535)),
    EmulatedField("address", Prefixes(), "", renamed=((7, 24), "available-from")),
    EmulatedField("certificate", _Certificate((CERTIFICATE,), many=True)),
    EmulatedField("tls-version", Enum(("any", "only-1.2"))),
    EmulatedField("max-sessions", Integer(1, 1000), "20"),
    EmulatedField("vrf", Text(), "main"),
    EmulatedField("disabled", Bool(), "false"),
)

#: Name, port and whether it speaks TLS. A unit from the factory has them all on, but for www-ssl.
_SERVICES = (
    ("ftp", 21, False),
    ("ssh", 22, False),
    ("telnet", 23, False),
    ("www", 80, False),
    ("www-ssl", 443, True),
    ("winbox", 8291, False),
    ("api", 8728, False),
    ("api-ssl", 8729, True),
)


def _factory_addresses(device: EmulatedDevice) -> Iterator[Values]:
    yield {"address": device.config.management.with_prefixlen, "interface": "bridge", "disabled": "false"}


def _show_address(device: EmulatedDevice, row: EmulatedRow) -> Values:
    network = str(ipaddress.IPv4Interface(row.values["address"]).network.network_address)
    known = device.store.find_any((BRIDGE, ETHERNET, BONDING), row.values["interface"]) is not None
    shown = {} if "network" in row.values else {"network": network}
    flags = {"invalid": "false" if known else "true", "dynamic": "false", "slave": "false"}
    return shown | {"actual-interface": row.values["interface"], "vrf": "main"} | flags


def _check_address(device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    mine = ipaddress.IPv4Interface(row.values["address"])
    for other in device.store.rows("/ip/address"):
        same = ipaddress.IPv4Interface(other.values["address"]).ip == mine.ip
        if other.id != row.id and same and other.values["interface"] == row.values["interface"]:
            raise failure("already have such address")


def _factory_services(device: EmulatedDevice) -> Iterator[Values]:
    for name, port, tls in _SERVICES:
        values = {"name": name, "port": str(port), "address": "", "max-sessions": "20", "vrf": "main"}
        if tls:
            certified = name == "api-ssl" and device.config.tls_cert is not None
            values |= {"certificate": "api-ssl" if certified else "", "tls-version": "any"}
        yield values | {"disabled": "true" if name == "www-ssl" else "false"}


def _list_connections(device: EmulatedDevice) -> Iterator[Values]:
    """Since 7.23 the menu also shows a reverse proxy and the open connections, all of them dynamic.

    Their ids and exact fields are inferred.
    """
    flags = {"dynamic": "true", "invalid": "false", "disabled": "false", "proto": "tcp"}
    yield {".id": "*80000000", "name": "reverse-proxy", "port": "443", **flags}
    ports = {name: str(port) for name, port, _tls in _SERVICES}
    for client in device.clients.values():
        port = ports[client.service]
        remote = {
            "remote": f"{client.address}:{client.port}",
            "local": str(device.config.address),
            "connection": "true",
        }
        yield {
            ".id": f"*{0x80000000 + client.number:X}",
            "name": client.service,
            "port": port,
            **remote,
            **flags,
        }


def _show_service(_device: EmulatedDevice, row: EmulatedRow) -> Values:
    shown = {"proto": "tcp", "dynamic": "false", "invalid": "false"}
    return shown | ({"certificate": row.values["certificate"] or "none"} if "certificate" in row.values else {})


def _check_service(device: EmulatedDevice, row: EmulatedRow, old: EmulatedRow | None) -> None:
    """Reject a certificate without a private key for a service; that it is not a possible value is inferred."""
    before = old.values if old is not None else {}
    name = row.values.get("certificate")
    if name and name != before.get("certificate"):
        found = device.store.find(CERTIFICATE, name)
        if found is None or device.vault.get(found.id) is None:
            raise no_match("certificate")
    for field in ("certificate", "tls-version"):
        if field in row.values and field not in before:
            raise unknown_parameter(field)


ADDRESS = EmulatedMenu(
    "/ip/address",
    ADDRESS_FIELDS,
    verbs=FULL,
    factory=_factory_addresses,
    show=_show_address,
    check=_check_address,
)

SERVICE = EmulatedMenu(
    "/ip/service",
    SERVICE_FIELDS,
    verbs=SWITCHABLE,
    named_by="name",
    factory=_factory_services,
    dynamic=_list_connections,
    show=_show_service,
    check=_check_service,
)
