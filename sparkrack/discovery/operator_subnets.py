"""The subnets of this machine from which it reaches the hosts of a rack."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, ip_address

from core.probes.links import parse_ip_rows
from core.routeros.menus import ACTIVE
from sparkrack.discovery.switch_facts import SwitchFacts

_SECONDS = 10
_DISCARD = 9
"""A UDP port: a UDP socket that is only connected sends nothing."""


def operator_subnets(hosts: Iterable[str], session: IPv4Address | None) -> tuple[list[str], str]:
    """Return the subnets that a switch has to accept so that this machine can reach it, or why they are unknown.

    `hosts`: the IPv4 addresses of the switch and the nodes. `session`: the address of this machine as the switch sees
    it, if that is known; behind NAT it is in no subnet of this machine, and is added alone.
    """
    try:
        own = list(_own_interfaces())
        sources = [_source_address(host) for host in hosts]
    except FileNotFoundError:
        return [], "the subnets of this machine are unknown: it has no program `ip` (iproute2 of Linux)"
    except (OSError, ValueError, subprocess.TimeoutExpired) as fault:
        return [], f"the route from this machine to the rack is unknown: {fault}"
    found: list[IPv4Network] = []
    for source in [*sources, *([session] if session else [])]:
        if not any(source in subnet for subnet in found):
            found.append(_source_subnet(source, own))
    return [str(subnet) for subnet in found], ""


def session_address(facts: SwitchFacts, user: str) -> IPv4Address | None:
    """Return the address from which the switch sees the API session of `user`; None when it does not report it."""
    for row in facts.reading.rows(ACTIVE):
        if row.get("name") == user and row.get("via", "").startswith("api"):
            try:
                address = ip_address(row.get("address", ""))
            except ValueError:
                continue
            if isinstance(address, IPv4Address):
                return address
    return None


def _own_interfaces() -> Iterator[IPv4Interface]:
    done = subprocess.run(
        ["ip", "-j", "-4", "address", "show"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    for row in parse_ip_rows(done.stdout.decode(errors="replace")):
        for one in row.get("addr_info", ()):
            yield IPv4Interface(f"{one.get('local')}/{one.get('prefixlen')}")


def _source_address(host: str) -> IPv4Address:
    """The address of this machine from which it reaches a host, by its routes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, _DISCARD))
        return IPv4Address(probe.getsockname()[0])


def _source_subnet(source: IPv4Address, own: Iterable[IPv4Interface]) -> IPv4Network:
    for interface in own:
        if interface.ip == source or (source.is_loopback and source in interface.network):
            return interface.network
    return IPv4Network(source)
