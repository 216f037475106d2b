"""Run a check over a new SSH connection. An open connection may keep working after the network broke, so it proves
nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Any

import gevent
from paramiko import SSHClient, SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from core.ops.patch_ssh_connector import DeadlineError

RECONNECT_SECONDS = 45
"""Seconds for the login and the script: less than the time after which a node reverts a pending change."""


PEER_SECONDS = 3
"""Seconds for a connection to another node."""


def run_on_new_connection(
    host: Host, script: str, seconds: float = RECONNECT_SECONDS, peers: Iterable[tuple[str, int]] = ()
) -> tuple[bool, list[str]]:
    """Log in again and run a script as root: whether it ended well, and what it printed.

    `peers`: addresses and ports of other hosts. A connection to the machine of this process does not leave it, and
    proves nothing of its network: then one of the peers must accept a connection as well.

    Raises OSError when no new connection can be made, or no answer comes within `seconds`.
    """
    connector = type(host.connector)(host.state, host)
    try:
        with gevent.Timeout(seconds, DeadlineError(f"no answer within {seconds:g} s")):
            connector.connect()
            fine, output = connector.run_shell_command(
                StringCommand(script), print_output=False, print_input=host.state.print_input, _sudo=True
            )
        others = list(peers) if fine and _stays_here(connector) else []
    except (ConnectError, SSHException, EOFError, OSError) as error:
        raise OSError(f"a new connection to {host.name} fails: {error}") from None
    finally:
        connector.disconnect()
        client = getattr(connector, "client", None)  # pyinfra leaves it open
        if client is not None:
            client.close()
    if others and not any(map(_accepts_connection, others)):
        return False, [f"this machine is {host.name}, and reaches none of {', '.join(name for name, _ in others)}"]
    return fine, [*output.stdout_lines, *output.stderr_lines]


def _stays_here(connector: object) -> bool:
    """Return whether both ends of the connection have the same address."""
    client = getattr(connector, "client", None)
    transport = client.get_transport() if isinstance(client, SSHClient) else None
    sock: Any = transport.sock if transport else None
    try:
        return sock is not None and sock.getsockname()[0] == sock.getpeername()[0]
    except (OSError, AttributeError):  # a proxy's socket has no address
        return False


def _accepts_connection(peer: tuple[str, int]) -> bool:
    try:
        socket.create_connection(peer, PEER_SECONDS).close()
    except OSError:
        return False
    return True
