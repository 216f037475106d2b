"""A root shell on a node, as every later run gets it: by our own key."""

from __future__ import annotations

import secrets
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from core.util.debug_log import timed
from sparkrack.node_login.errors import BootstrapError, NodeUnreachableError, last_line

SCRIPT_SECONDS = 120.0
"""Seconds for one script; RSA keys are generated in a few."""
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Maximum bytes of an answer."""
_FAULT_OF_SSH = 255
_FOR_GOOD = ("Permission denied", "Host key verification failed", "Too many authentication failures")
"""Messages of ssh after which waiting would not help."""


@dataclass(frozen=True)
class ShellResult:
    """Exit status and output of a script."""

    code: int
    output: bytes
    complaints: bytes


class RootShellProtocol(Protocol):
    """Runs scripts as root. What a script needs is in its text; its standard input is empty."""

    who: str

    def run(self, script: str) -> ShellResult:
        """Raises BootstrapError when there is no answer."""

    def close(self) -> None:
        """End the shell."""


def receiver(ready: str) -> str:
    """Return shell text that reports when it is root, then reads its script from standard input: so neither the content
    of a script nor a password is ever in an argument list.
    """
    return f'echo {ready}; script=$(cat); eval "$script" </dev/null'


class KeyShell:
    """By OpenSSH, as every later run goes: one login for each script."""

    def __init__(self, node: str, user: str, config: Path) -> None:
        """`config`: an OpenSSH configuration that knows the node and the keys that it may show."""
        self.who = f"{user}, by key"
        self._node = node
        self._command = ["ssh", "-F", str(config), node]

    def refused(self) -> str | None:
        """Return why there is no root shell this way; None when there is. Raises BootstrapError when that is unknown:
        no answer, or another machine answers.
        """
        done = self._run_script("true")
        return None if done.code == 0 else last_line(done.complaints) or f"exit {done.code}"

    def run(self, script: str) -> ShellResult:
        """One script, as root. Raises NodeUnreachableError when it has not even begun."""
        return self._run_script(script)

    def close(self) -> None:
        """Do nothing: no connection is kept open."""

    def _run_script(self, script: str) -> ShellResult:
        ready = secrets.token_hex(16)
        # The login shell may be a csh, which knows no `NAME=value COMMAND`.
        command = [*self._command, f"exec env LC_ALL=C sudo -n sh -c {shlex.quote(receiver(ready))}"]
        try:
            with timed(self._node, f"ssh by key: {script}") as exchange:
                done = subprocess.run(
                    command, input=script.encode(), capture_output=True, timeout=SCRIPT_SECONDS, check=False
                )
                exchange.result = f"exit {done.returncode}"
        except subprocess.TimeoutExpired:
            raise BootstrapError(f"gives no answer within {SCRIPT_SECONDS:g} s") from None
        except OSError as error:
            raise BootstrapError(f"ssh: {error.strerror}") from None
        _, found, output = done.stdout.partition(f"{ready}\n".encode())
        why = last_line(done.stderr)
        if not found and done.returncode == _FAULT_OF_SSH and not any(word in why for word in _FOR_GOOD):
            raise NodeUnreachableError(f"cannot be reached by ssh: {why}")
        code = done.returncode if found else done.returncode or 1
        return ShellResult(code, output[:MAX_ANSWER_BYTES], done.stderr[:MAX_ANSWER_BYTES])
