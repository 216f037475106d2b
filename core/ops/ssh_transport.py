"""SSH transport of pyinfra to the nodes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from core.model import Rack
from core.model.errors import truncate

DEAD_AFTER = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 6, "TCP_USER_TIMEOUT": 45_000}
"""A node that has been silent for 15 s is probed every 5 s, and is given up after 45 s without any answer (the last one
in milliseconds). A network that reconnects, as NetworkManager's does for a second, is within that.
"""


def _is_outdated_algorithm(name: str) -> bool:
    """Return whether an algorithm depends on SHA-1, MD5 or a cipher in CBC mode."""
    return name.startswith("ssh-rsa") or name.endswith("-cbc") or "sha1" in name or "md5" in name


class _Modern(paramiko.Transport):
    """Transport that negotiates no algorithm that OpenSSH has removed from its defaults by 8.8, and accepts no such
    signature.

    paramiko 4.0.0 verifies an RSA signature by the hash that the signature itself names, regardless of the negotiation
    (CVE-2026-44405), so the name is checked here.
    """

    def _filter_algorithm(self, type_: str) -> tuple[str, ...]:
        names: tuple[str, ...] = super()._filter_algorithm(type_)  # type: ignore[misc]
        if type_ == "keys":
            # A client with a known RSA key requests it by this name only, which also means SHA-1.
            names = tuple(dict.fromkeys(new for name in names for new in _RSA.get(name, (name,))))
        return tuple(name for name in names if not _is_outdated_algorithm(name))

    def _verify_key(self, host_key: bytes, sig: bytes) -> None:
        algorithm = paramiko.Message(sig).get_text()
        if _is_outdated_algorithm(algorithm):
            raise paramiko.SSHException(f"its host key signs with {truncate(algorithm)}, which is outdated; {_UPDATE}")
        super()._verify_key(host_key, sig)  # type: ignore[misc]

    def start_client(self, event: Any = None, timeout: float | None = None) -> None:
        """Start as paramiko does, with a clear error for a server that offers only outdated algorithms."""
        try:
            super().start_client(event, timeout)
        except IncompatiblePeer as fault:
            lacking = str(fault).partition("(")[2].rstrip(")") or str(fault)
            raise paramiko.SSHException(f"offers only outdated algorithms: {lacking}; {_UPDATE}") from None


_RSA = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
_UPDATE = "update OpenSSH there, or allow newer ones in its sshd_config"


def nodelay_transport(sock: Any, **arguments: Any) -> paramiko.Transport:
    """A paramiko transport whose small packets are sent at once.

    paramiko leaves Nagle's algorithm on, which with delayed acknowledgements costs about 45 ms for every command
    (measured: 47 ms, 2.6 ms without). It leaves keepalive off as well, so a run would wait for ever for a node that
    lost its power in the middle. A channel through a jump host is not a socket and has no such options.
    """
    if hasattr(sock, "setsockopt"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in DEAD_AFTER.items():
            if hasattr(socket, name):  # they have other names, or do not exist, outside Linux
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    transport = _Modern(sock, **arguments)
    options = transport.get_security_options()
    # OpenSSL checks what it decrypts with GCM; of the others paramiko compares each packet's MAC itself, in Python.
    options.ciphers = sorted(options.ciphers, key=lambda name: "gcm" not in name)
    return transport


def failing_transport(reason: str) -> Callable[..., paramiko.Transport]:
    """Return a transport that always fails: pyinfra shows the reason as that host's connection error. Without it a
    missing key would be reported once a host, with a traceback.
    """

    def refuse(*_: Any, **__: Any) -> paramiko.Transport:
        raise paramiko.SSHException(reason)

    return refuse


def ssh_data(rack: Rack, node: str) -> dict[str, Any]:
    """pyinfra's host data for one node; what all nodes have in common is in group_data/nodes.py.

    Every inventory calls this before it connects, so it guards pyinfra's prompts and output as well.
    """
    from core.ops.terminal import guard  # here, since `bootstrap` uses the transport without pyinfra

    guard()
    access = rack.access
    missing = [f"access.{name}: {path} is not there" for name, path in _ssh_files(rack).items() if not path.is_file()]
    return {
        "ssh_hostname": str(rack.nodes[node].address),
        "ssh_port": access.port,
        "ssh_user": access.user,
        **(
            {
                "ssh_paramiko_connect_kwargs": {
                    "transport_factory": failing_transport(f"{rack.source}: {'; '.join(missing)}")
                }
            }
            if missing
            else {"ssh_key": str(access.key), "ssh_known_hosts_file": str(access.known_hosts)}
        ),
    }


def _ssh_files(rack: Rack) -> dict[str, Path]:
    return {"key": rack.access.key, "known_hosts": rack.access.known_hosts}
