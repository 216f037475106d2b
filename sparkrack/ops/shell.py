"""Commands on a node, as root."""

from __future__ import annotations

import shlex

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host


def root(script: str, stdin: str | None = None) -> StringCommand:
    """A script as a pyinfra command that stops at its first failure. What must not stand in argv goes to stdin."""
    command = StringCommand(f"set -eu; {script}", _sudo=True)
    if stdin is not None:
        command.connector_arguments["_stdin"] = stdin
    return command


def ask(host: Host, script: str, seconds: int | None = None) -> tuple[bool, list[str], list[str]]:
    """Run a script on the node now, as root: whether it ended well, its output, its complaints.

    `seconds`: how long it may take; None for as long as it likes. Raises TimeoutError after that, and another OSError
    when the connection fails, as pyinfra's connectors do.
    """
    state = host.state
    fine, output = host.run_shell_command(
        StringCommand(script),
        print_output=state.print_fact_output,
        print_input=state.print_fact_input,
        _sudo=True,
        **({} if seconds is None else {"_timeout": seconds}),
    )
    return fine, output.stdout_lines, output.stderr_lines


def quote(*words: str) -> str:
    """Words as a shell takes them, whatever is in them."""
    return shlex.join(words)
