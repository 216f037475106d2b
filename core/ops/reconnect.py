"""Run a check over a new SSH connection. An open connection may keep working after the network broke, so it proves
nothing.
"""

from __future__ import annotations

import gevent
from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from core.ops.patch_ssh_connector import DeadlineError

RECONNECT_SECONDS = 45
"""Seconds for the login and the script: less than the time after which a node reverts a pending change."""


def run_on_new_connection(host: Host, script: str, seconds: float = RECONNECT_SECONDS) -> tuple[bool, list[str]]:
    """Log in again and run a script as root: whether it ended well, and what it printed.

    Raises OSError when no new connection can be made, or no answer comes within `seconds`.
    """
    connector = type(host.connector)(host.state, host)
    try:
        with gevent.Timeout(seconds, DeadlineError(f"no answer within {seconds:g} s")):
            connector.connect()
            fine, output = connector.run_shell_command(
                StringCommand(script), print_output=False, print_input=host.state.print_input, _sudo=True
            )
    except (ConnectError, SSHException, EOFError, OSError) as error:
        raise OSError(f"a new connection to {host.name} fails: {error}") from None
    finally:
        connector.disconnect()
        client = getattr(connector, "client", None)  # pyinfra leaves it open
        if client is not None:
            client.close()
    return fine, [*output.stdout_lines, *output.stderr_lines]
