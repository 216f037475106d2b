"""A root shell on a node, as every later run gets it: by our own key."""

from __future__ import annotations

import secrets
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sparkrack.bootstrap.errors import AwayError, ContactError, last_line

SECONDS = 120.0
"""How long one script may take; RSA keys are made in a few."""
MOST = 4 * 1024 * 1024
"""Bytes of an answer."""
_FAULT_OF_SSH = 255
_FOR_GOOD = ("Permission denied", "Host key verification failed", "Too many authentication failures")
"""What ssh says when waiting would not help."""


@dataclass(frozen=True)
class Done:
    """How a script ended, and what it said."""

    code: int
    output: bytes
    complaints: bytes


class Root(Protocol):
    """Runs scripts as root. What a script needs is in its text; its standard input is empty."""

    who: str

    def run(self, script: str) -> Done:
        """Raises ContactError when there is no answer."""

    def close(self) -> None:
        """End it."""


def receiver(ready: str) -> str:
    """Shell text that says it is root now, then takes its script from standard input: so neither what a script holds
    nor a password is ever in an argument list."""
    return f'echo {ready}; script=$(cat); eval "$script" </dev/null'


class ByKey:
    """By OpenSSH, as every later run goes: one login for each script."""

    def __init__(self, node: str, user: str, config: Path) -> None:
        """`config`: an OpenSSH configuration that knows the node and the keys that it may show."""
        self.who = f"{user}, by key"
        self._node = node
        self._command = ["ssh", "-F", str(config), node]

    def refused(self) -> str | None:
        """Why there is no root shell to be had this way; None when there is. Raises ContactError when that cannot be
        told: nobody answers, or it is somebody else who does."""
        done = self._ask("true")
        return None if done.code == 0 else last_line(done.complaints) or f"exit {done.code}"

    def run(self, script: str) -> Done:
        """One script, as root. Raises AwayError when it has not even begun."""
        return self._ask(script)

    def close(self) -> None:
        """Nothing is kept open."""

    def _ask(self, script: str) -> Done:
        ready = secrets.token_hex(16)
        command = [*self._command, f"LC_ALL=C exec sudo -n sh -c {shlex.quote(receiver(ready))}"]
        try:
            done = subprocess.run(command, input=script.encode(), capture_output=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise ContactError(f"gives no answer within {SECONDS:g} s") from None
        except OSError as error:
            raise ContactError(f"ssh: {error.strerror}") from None
        _, found, output = done.stdout.partition(f"{ready}\n".encode())
        why = last_line(done.stderr)
        if not found and done.returncode == _FAULT_OF_SSH and not any(word in why for word in _FOR_GOOD):
            raise AwayError(f"cannot be reached by ssh: {why}")
        code = done.returncode if found else done.returncode or 1
        return Done(code, output[:MOST], done.stderr[:MOST])
