"""Whether a plan would cut the path by which its own run talks to the switch. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from sparkrack.fleet.splits import CAGES

from .diff import Change
from .lanes import units
from .menus import ACTIVE, ARP, BRIDGE_HOST, BRIDGE_PORT, ETHERNET, SERVICE, USER
from .reading import Reading

if TYPE_CHECKING:
    from sparkrack.fleet import Switch


def cuts(switch: Switch, reading: Reading, changes: tuple[Change, ...]) -> tuple[str, ...]:
    """Every way in which `changes` would shut us out; () = none that can be told from here."""
    return (
        *_by_address(switch, reading, changes),
        *_by_service(switch, reading, changes),
        *_by_cable(switch, reading, changes),
        *_by_user(switch, changes),
    )


def _by_address(switch: Switch, reading: Reading, changes: tuple[Change, ...]) -> Iterator[str]:
    """Logging in from outside of `management` would be over with the first write to the services."""
    if switch.management is None or not any(change.menu is SERVICE for change in changes):
        return
    for address in _ours(switch, reading):
        if not any(address in subnet for subnet in switch.management):
            subnets = ", ".join(map(str, switch.management))
            yield (
                f"{switch.user} is logged in from {address}, which is outside of management ({subnets}): services "
                "limited to it would shut this run out; add the subnet of this machine"
            )


def _by_service(switch: Switch, reading: Reading, changes: tuple[Change, ...]) -> Iterator[str]:
    """The service that we come in by must go on letting our address in. What `management` does is judged above."""
    for change in changes:
        if change.menu is not SERVICE or change.key != (own_service(switch),):
            continue
        subnets = next((str(field.new) for field in change.fields if field.name == "address"), "")
        if not subnets or subnets == ",".join(map(str, switch.management or ())):
            continue
        for address in _ours(switch, reading):
            if not any(address in ip_network(subnet, strict=False) for subnet in subnets.split(",")):
                yield (
                    f"{switch.user} is logged in from {address}, and the plan limits {change.row} to {subnets}: that "
                    "would shut this run out"
                )


def own_service(switch: Switch) -> str:
    """The service that a run comes in by."""
    return "api-ssl" if switch.tls else "api"


def _ours(switch: Switch, reading: Reading) -> Iterator[IPv4Address | IPv6Address]:
    """Where our user is logged in from over the API."""
    for row in reading.rows(ACTIVE):
        if row.get("name") == switch.user and row.get("via", "").startswith("api"):
            # A session over a MAC address or a serial line has no address to compare.
            with suppress(ValueError):
                yield ip_address(row.get("address", ""))


def _by_cable(switch: Switch, reading: Reading, changes: tuple[Change, ...]) -> Iterator[str]:
    """A lane that our own packets come in by must not be taken down, nor leave its bridge."""
    touched = {change.row for change in changes if change.menu is ETHERNET}
    restarted = [unit for unit, lanes in units(reading).items() if touched & set(lanes)]
    ports = {change.row for change in changes if change.menu is BRIDGE_PORT}
    ours = {row.get("address") for row in reading.rows(ACTIVE) if row.get("name") == switch.user}
    macs = {row.get("mac-address") for row in reading.rows(ARP) if row.get("address") in ours}
    for host in reading.rows(BRIDGE_HOST):
        name = host.get("on-interface", "")
        if host.get("mac-address") not in macs:
            continue
        unit = next((unit for unit in restarted if name in _names(unit, reading)), None)
        if unit or name in ports:
            yield (
                f"this machine reaches the switch through its port {name}, which the plan takes down"
                f"{f' with cage {unit}' if unit in CAGES else ''}; connect it to "
                f"{'another port' if name.startswith('ether') else 'ether1 or ether2'}"
            )


def _names(unit: str, reading: Reading) -> set[str]:
    lanes = (reading.ethernet.get(lane, {}) for lane in units(reading)[unit])
    return {lane["name"] for lane in lanes if "name" in lane}


def _by_user(switch: Switch, changes: tuple[Change, ...]) -> Iterator[str]:
    for change in changes:
        if change.menu is USER and change.key == (switch.user,):
            yield f"the plan changes user {switch.user}, whom this run is logged in as"
