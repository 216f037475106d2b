"""Check whether a plan would cut the connection of its own run to the switch. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from core.routeros.diff import RowChange
from core.routeros.menus import ACTIVE, ARP, BRIDGE_HOST, BRIDGE_PORT, ETHERNET, SERVICE, USER
from core.routeros.reading import SwitchReading
from switch.port_changes import units

if TYPE_CHECKING:
    from core.model import Switch


def lockout_risks(switch: Switch, reading: SwitchReading, changes: tuple[RowChange, ...]) -> tuple[str, ...]:
    """Return every way in which `changes` would lock us out; () = none is known."""
    return (
        *_by_address(switch, reading, changes),
        *_by_service(switch, reading, changes),
        *_by_cable(switch, reading, changes),
        *_by_user(switch, changes),
    )


def _by_address(switch: Switch, reading: SwitchReading, changes: tuple[RowChange, ...]) -> Iterator[str]:
    """Logging in from outside of `management` would be over with the first write to the services."""
    if switch.management is None or not any(change.menu is SERVICE for change in changes):
        return
    for address in _our_addresses(switch, reading):
        if not any(address in subnet for subnet in switch.management):
            subnets = ", ".join(map(str, switch.management))
            yield (
                f"{switch.user} is logged in from {address}, which is outside of management ({subnets}): services "
                "limited to it would shut this run out; add the subnet of this machine"
            )


def _by_service(switch: Switch, reading: SwitchReading, changes: tuple[RowChange, ...]) -> Iterator[str]:
    """Check that the service of our session still accepts our address. The effect of `management` is checked above."""
    for change in changes:
        if change.menu is not SERVICE or change.key != (own_service(switch),):
            continue
        subnets = next((str(field.new) for field in change.fields if field.name == "address"), "")
        if not subnets or subnets == ",".join(map(str, switch.management or ())):
            continue
        for address in _our_addresses(switch, reading):
            if not any(address in ip_network(subnet, strict=False) for subnet in subnets.split(",")):
                yield (
                    f"{switch.user} is logged in from {address}, and the plan limits {change.row} to {subnets}: that "
                    "would shut this run out"
                )


def own_service(switch: Switch) -> str:
    """The service that a run comes in by."""
    return "api-ssl" if switch.tls else "api"


def _our_addresses(switch: Switch, reading: SwitchReading) -> Iterator[IPv4Address | IPv6Address]:
    """Return the addresses that our user is logged in from over the API."""
    for row in reading.rows(ACTIVE):
        if row.get("name") == switch.user and row.get("via", "").startswith("api"):
            # A session over a MAC address or a serial line has no address to compare.
            with suppress(ValueError):
                yield ip_address(row.get("address", ""))


def _by_cable(switch: Switch, reading: SwitchReading, changes: tuple[RowChange, ...]) -> Iterator[str]:
    """A lane that our own packets come in by must not be taken down, nor leave its bridge."""
    hardware = switch.hardware
    management = hardware.management_ports
    factory = {row.get("name"): name for name, row in reading.ethernet.items()}
    touched = {change.row for change in changes if change.menu is ETHERNET}
    restarted = {unit: lanes for unit, lanes in units(hardware, reading).items() if touched & set(lanes)}
    ports = {change.row for change in changes if change.menu is BRIDGE_PORT}
    ours = {row.get("address") for row in reading.rows(ACTIVE) if row.get("name") == switch.user}
    macs = {row.get("mac-address") for row in reading.rows(ARP) if row.get("address") in ours}
    for host in reading.rows(BRIDGE_HOST):
        name = host.get("on-interface", "")
        if host.get("mac-address") not in macs:
            continue
        unit = next((unit for unit, lanes in restarted.items() if factory.get(name) in lanes), None)
        if unit or name in ports:
            yield (
                f"this machine reaches the switch through its port {name}, which the plan takes down"
                f"{f' with cage {unit}' if unit in hardware.cages else ''}; connect it to "
                + ("another port" if factory.get(name) in management else " or ".join(management))
            )


def _by_user(switch: Switch, changes: tuple[RowChange, ...]) -> Iterator[str]:
    for change in changes:
        if change.menu is USER and change.key == (switch.user,):
            yield f"the plan changes user {switch.user}, whom this run is logged in as"
