"""How pyinfra reaches the nodes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko

from sparkrack.fleet import Rack

DEAD_AFTER = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 45_000}
"""A node that has said nothing for 15 s is asked every 5 s, and is given up after 45 s without any answer (the last
one in milliseconds). A network that reconnects, as NetworkManager's does for a second, is within that."""


def without_delay(sock: Any, **arguments: Any) -> paramiko.Transport:
    """A paramiko transport whose small packets are sent at once.

    paramiko leaves Nagle's algorithm on, which with delayed acknowledgements costs about 45 ms for every command
    (measured: 47 ms, 2.6 ms without). It leaves keepalive off as well, so a run would wait for ever for a node that
    lost its power in the middle. A channel through a jump host is no socket and has no such options.
    """
    if hasattr(sock, "setsockopt"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in DEAD_AFTER.items():
            if hasattr(socket, name):  # they are called otherwise, or not there, outside Linux
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    transport = paramiko.Transport(sock, **arguments)
    options = transport.get_security_options()
    # OpenSSL checks what it decrypts with GCM; of the others paramiko compares each packet's MAC itself, in Python.
    options.ciphers = sorted(options.ciphers, key=lambda name: "gcm" not in name)
    return transport


def refusing(reason: str) -> Callable[..., paramiko.Transport]:
    """A transport that is none: pyinfra shows the reason as that host's connection error. Without it a key that is
    not there is told once a host, with a traceback."""

    def refuse(*_: Any, **__: Any) -> paramiko.Transport:
        raise paramiko.SSHException(reason)

    return refuse


def ssh_data(rack: Rack, node: str) -> dict[str, Any]:
    """pyinfra's host data for one node; what all nodes have in common is in group_data/nodes.py."""
    access = rack.access
    missing = [f"access.{name}: {path} is not there" for name, path in _files(rack).items() if not path.is_file()]
    return {
        "ssh_hostname": str(rack.nodes[node].address),
        "ssh_port": access.port,
        "ssh_user": access.user,
        **(
            {"ssh_paramiko_connect_kwargs": {"transport_factory": refusing(f"{rack.source}: {'; '.join(missing)}")}}
            if missing
            else {"ssh_key": str(access.key), "ssh_known_hosts_file": str(access.known_hosts)}
        ),
    }


def _files(rack: Rack) -> dict[str, Path]:
    return {"key": rack.access.key, "known_hosts": rack.access.known_hosts}
