"""Commands on a node, as root."""

from __future__ import annotations

import shlex

from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from core.ops.patch_ssh_connector import COMMAND_SECONDS
from core.probes.protocol import LOCALE

ASK_SECONDS = 300
"""Seconds for a probe without its own limit: docker's answer on a busy disk takes minutes."""


class RootScript(StringCommand):
    """A script that root runs on a node. `limited`: it has its own limit of time. `parts`: the scripts of which it was
    joined, if it was."""

    def __init__(self, script: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> None:
        super().__init__(f"set -eu; {LOCALE}; {script}", _sudo=True, _timeout=int(seconds))
        if stdin is not None:
            self.connector_arguments["_stdin"] = stdin
        self.script, self.stdin, self.limited = script, stdin, seconds != COMMAND_SECONDS
        self.parts: tuple[RootScript, ...] = ()


class QuickScript(RootScript):
    """A script that takes a fraction of a second and starts nothing: what follows may be sent with it."""


def sudo_script(script: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS) -> RootScript:
    """A script as a pyinfra command that stops at its first failure. What must not stand in argv goes to stdin."""
    return RootScript(script, stdin, seconds)


def quick_script(script: str, stdin: str | None = None) -> QuickScript:
    """The same for a script that takes a fraction of a second and starts nothing, as one that writes a file."""
    return QuickScript(script, stdin)


def run_script(
    host: Host, script: str, seconds: float = ASK_SECONDS, stdin: str | None = None
) -> tuple[bool, list[str], list[str]]:
    """Run a script on the node now, as root: whether it ended well, its output, its complaints.

    `seconds`: how long it may take, from the first packet to the exit code. `stdin`: what must not stand in argv.
    Raises OSError after that, and when the connection fails.
    """
    try:
        return _run_as_root(host, script, seconds, stdin)
    except BrokenPipeError:
        # A sudo that refuses ends before it has read its input, and pyinfra's local connector drops what it said.
        fine, output, complaints = _run_as_root(host, "true", seconds, None)
        if fine:
            raise
        return fine, output, complaints


def _run_as_root(host: Host, script: str, seconds: float, stdin: str | None) -> tuple[bool, list[str], list[str]]:
    state = host.state
    fine, output = host.run_shell_command(
        StringCommand(script),
        print_output=state.print_fact_output,
        print_input=state.print_fact_input,
        _sudo=True,
        _timeout=seconds,
        **({} if stdin is None else {"_stdin": stdin}),
    )
    return fine, output.stdout_lines, output.stderr_lines


def quote(*words: str) -> str:
    """Quote words for a shell."""
    return shlex.join(words)
