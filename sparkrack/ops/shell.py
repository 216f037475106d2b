"""Commands on a node, as root."""

from __future__ import annotations

import shlex

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from sparkrack.ops.connector import SECONDS

ASK_SECONDS = 300
"""How long a question may take that names no limit: docker's answer on a disk that is busy takes minutes."""
LOCALE = "export LC_ALL=C"
"""sudo keeps the locale of the login user, in which tools translate what they say."""


def root(script: str, stdin: str | None = None, seconds: float = SECONDS) -> StringCommand:
    """A script as a pyinfra command that stops at its first failure. What must not stand in argv goes to stdin."""
    command = StringCommand(f"set -eu; {LOCALE}; {script}", _sudo=True, _timeout=int(seconds))
    if stdin is not None:
        command.connector_arguments["_stdin"] = stdin
    return command


def ask(host: Host, script: str, seconds: float = ASK_SECONDS) -> tuple[bool, list[str], list[str]]:
    """Run a script on the node now, as root: whether it ended well, its output, its complaints.

    `seconds`: how long it may take, from the first packet to the exit code. Raises OSError after that, and when the
    connection fails.
    """
    state = host.state
    fine, output = host.run_shell_command(
        StringCommand(script),
        print_output=state.print_fact_output,
        print_input=state.print_fact_input,
        _sudo=True,
        _timeout=seconds,
    )
    return fine, output.stdout_lines, output.stderr_lines


def quote(*words: str) -> str:
    """Words as a shell takes them, whatever is in them."""
    return shlex.join(words)
