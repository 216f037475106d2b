"""How pyinfra reaches the nodes."""

from __future__ import annotations

import socket
from typing import Any

import paramiko

from sparkrack.fleet import Rack


def without_delay(sock: Any, **arguments: Any) -> paramiko.Transport:
    """A paramiko transport whose small packets are sent at once.

    paramiko leaves Nagle's algorithm on, which with delayed acknowledgements costs about 45 ms for every command
    (measured: 47 ms, 2.6 ms without). A channel through a jump host is no socket and has no such option.
    """
    if hasattr(sock, "setsockopt"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return paramiko.Transport(sock, **arguments)


def ssh_data(rack: Rack, node: str) -> dict[str, Any]:
    """pyinfra's host data for one node. An unknown or changed host key stops the connection."""
    return {
        "ssh_hostname": str(rack.nodes[node].address),
        "ssh_port": rack.access.port,
        "ssh_user": rack.access.user,
        "ssh_key": str(rack.access.key),
        "ssh_allow_agent": False,
        "ssh_look_for_keys": False,
        "ssh_config_file": "/dev/null",
        "ssh_known_hosts_file": str(rack.access.known_hosts),
        "ssh_strict_host_key_checking": "yes",
        "ssh_paramiko_connect_kwargs": {"transport_factory": without_delay},
    }
