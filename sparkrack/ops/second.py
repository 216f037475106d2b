"""Look at a node through a connection of its own: what the open one still does proves nothing about the next."""

from __future__ import annotations

import gevent
from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host

from sparkrack.ops.connector import LateError

SECONDS = 45
"""How long the login and the script may take: within the time after which a node takes back a change on trial."""


def ask_anew(host: Host, script: str, seconds: float = SECONDS) -> tuple[bool, list[str]]:
    """Log in again and run a script as root: whether it ended well, and what it printed.

    Raises OSError when no new connection can be made, or no answer comes within `seconds`.
    """
    connector = type(host.connector)(host.state, host)
    try:
        with gevent.Timeout(seconds, LateError(f"no answer within {seconds:g} s")):
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
