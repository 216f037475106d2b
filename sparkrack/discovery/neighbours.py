"""Machines on the networks of this one: by mDNS, from lldpd, and by MikroTik's own protocol."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from zeroconf import BadTypeInNameException, InterfaceChoice, IPVersion, ServiceStateChange
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from core.model.errors import printable_line
from sparkrack.discovery import advertisements
from sparkrack.discovery.advertisements import SSH_SERVICE, Advertised

LISTEN_SECONDS = 5.0
"""How long each way is listened to. Questions by mDNS go out three times in them."""
_RESOLVE_MS = 1000
"""How long, in milliseconds, an announcement that came without an address is asked for one."""


def nodes(interfaces: Sequence[str] = (), seconds: float = LISTEN_SECONDS) -> tuple[tuple[Advertised, ...], str]:
    """The machines that announce ssh by mDNS, and why they could not be looked for, if so.

    `interfaces`: the IPv4 addresses of this machine to listen on; all of them by default. `seconds`: for how long.
    """
    try:
        services = asyncio.run(_ssh_services(interfaces, seconds))
    except OSError as error:
        why = printable_line(error.strerror or str(error))
        return (), f"mDNS cannot be used here ({why}), so nodes are not looked for"
    found: dict[str, Advertised] = {}
    for one in services:
        for near in advertisements.mdns(one.name, one.server or "", one.parsed_addresses(IPVersion.V4Only)):
            found.setdefault(near.address, near)
    return tuple(found.values()), ""


async def _ssh_services(interfaces: Sequence[str], seconds: float) -> list[AsyncServiceInfo]:
    """The announcements of ssh that have an address. Raises OSError when mDNS cannot be listened to."""
    names: set[str] = set()

    def note(name: str, state_change: ServiceStateChange, **_: object) -> None:
        (names.discard if state_change is ServiceStateChange.Removed else names.add)(name)

    try:
        mdns = AsyncZeroconf(list(interfaces) or InterfaceChoice.All, ip_version=IPVersion.V4Only)
    except RuntimeError as error:  # no interface has an IPv4 address
        raise OSError(str(error)) from None
    async with mdns:
        async with AsyncServiceBrowser(mdns.zeroconf, SSH_SERVICE, handlers=[note]):
            await asyncio.sleep(seconds)
        asked = []
        for name in sorted(names):
            with suppress(BadTypeInNameException):  # it is announced under this type, and its name has another
                asked.append(AsyncServiceInfo(SSH_SERVICE, name))
        answered = await asyncio.gather(*(one.async_request(mdns.zeroconf, _RESOLVE_MS) for one in asked))
    return [one for one, there in zip(asked, answered, strict=True) if there]


def switches(
    host: str = "", port: int = advertisements.MNDP_PORT, seconds: float = LISTEN_SECONDS
) -> tuple[Advertised, ...]:
    """MikroTik units that are near, by LLDP if this machine has lldpd, and by their own protocol. `host`: the address
    of this machine to listen on; all of them by default."""
    found: dict[str, Advertised] = {}
    if shutil.which("lldpcli"):
        output, _ = _program_output(["lldpcli", "-f", "json0", "show", "neighbors"])
        found |= {one.address: one for one in advertisements.lldp(output)}
    found |= {one.address: one for one in _listen_for_mndp(host, port, seconds)}
    return tuple(found.values())


def _listen_for_mndp(host: str, port: int, seconds: float) -> list[Advertised]:
    found: list[Advertised] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            listening.bind((host, port))
        except OSError:
            return found  # another program listens to it here
        with suppress(OSError):  # a machine without a network of its own
            listening.sendto(advertisements.MNDP_REQUEST, ("255.255.255.255", port))
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            listening.settimeout(left)
            try:
                packet, (sender, _) = listening.recvfrom(2048)
            except OSError:
                break
            one = advertisements.mndp(packet, sender)
            if one and one not in found:
                found.append(one)
    return found


def _program_output(command: list[str]) -> tuple[str, str]:
    """Return the output of a program, or why there is none."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * LISTEN_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", f"{command[0]} does not answer"
    if done.returncode:
        return "", f"{command[0]} ended with {done.returncode}"
    return done.stdout.decode(errors="replace"), ""
