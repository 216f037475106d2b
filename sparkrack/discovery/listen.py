"""Asking this machine who is near: avahi, lldpd, and units that answer MikroTik's own protocol."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import suppress

from sparkrack.discovery import near
from sparkrack.discovery.near import Near

SECONDS = 5.0
"""How long each way is listened to."""


def nodes() -> tuple[tuple[Near, ...], str]:
    """Who offers ssh here, and why nobody could be asked, if so."""
    if not shutil.which("avahi-browse"):
        return (), "avahi-browse is not installed (package avahi-utils), so nodes are not looked for"
    output, why = _said(["avahi-browse", "-rpt", "_ssh._tcp"])
    return near.avahi(output), why


def switches(host: str = "", port: int = near.MNDP_PORT, seconds: float = SECONDS) -> tuple[Near, ...]:
    """MikroTik units that are near, by LLDP if this machine has lldpd, and by their own protocol. `host`: the address
    of this machine to listen on; all of them by default."""
    found: dict[str, Near] = {}
    if shutil.which("lldpcli"):
        output, _ = _said(["lldpcli", "-f", "keyvalue", "show", "neighbors"])
        found |= {one.address: one for one in near.lldp(output)}
    found |= {one.address: one for one in _answering(host, port, seconds)}
    return tuple(found.values())


def _answering(host: str, port: int, seconds: float) -> list[Near]:
    found: list[Near] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try:
            listening.bind((host, port))
        except OSError:
            return found  # somebody else listens to it here
        with suppress(OSError):  # a machine without a network of its own
            listening.sendto(near.MNDP_REQUEST, ("255.255.255.255", port))
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            listening.settimeout(left)
            try:
                packet, (sender, _) = listening.recvfrom(2048)
            except OSError:
                break
            one = near.mndp(packet, sender)
            if one and one not in found:
                found.append(one)
    return found


def _said(command: list[str]) -> tuple[str, str]:
    """What a program prints, or why it prints nothing."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=2 * SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "", f"{command[0]} does not answer"
    if done.returncode:
        return "", f"{command[0]} ended with {done.returncode}"
    return done.stdout.decode(errors="replace"), ""
