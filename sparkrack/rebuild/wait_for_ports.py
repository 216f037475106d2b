"""Wait until hosts accept connections; nothing is sent."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

POLL_SECONDS = 1.0
"""Seconds between two tries."""
CONNECT = 5.0
HostPort = tuple[str, int]
"""An address and a TCP port."""


def answers(port: HostPort) -> bool:
    """Return whether the port accepts a connection. Nothing is sent."""
    try:
        with socket.create_connection(port, CONNECT):
            return True
    except OSError:
        return False


# claim: rebuild.duration
def wait(
    ports: Mapping[str, Sequence[HostPort]], timeout: float, say: Callable[[str], None], check: Callable[[], None]
) -> list[str]:
    """Try until one endpoint of each host answers, or `timeout` seconds have passed; return the missing hosts.

    `check` is called between tries and may raise.
    """
    begin = time.monotonic()
    missing = list(ports)
    reported: list[str] = []
    with ThreadPoolExecutor(max_workers=16) as pool:
        while True:
            check()
            flat = [(name, port) for name in missing for port in ports[name]]
            there = {
                name for (name, _), yes in zip(flat, pool.map(answers, (port for _, port in flat)), strict=True) if yes
            }
            for name in sorted(there, key=missing.index):
                say(f"{name}: answers after {time.monotonic() - begin:.0f} s")
            missing = [name for name in missing if name not in there]
            if not missing or time.monotonic() - begin > timeout:
                return missing
            if missing != reported:
                say(f"waiting for {', '.join(missing)}")
                reported = missing
            time.sleep(POLL_SECONDS)
