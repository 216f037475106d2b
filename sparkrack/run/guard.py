"""The lock of a rack, taken and given back over the head node's connection."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from sparkrack.ops import lock
from sparkrack.ops.lock import Holder
from sparkrack.run.session import Session


class LockError(Exception):
    """Somebody else changes the rack, or the lock could not be taken. The text says who, since when and what."""


def me(what: str) -> Holder:
    """A new run of whoever calls this."""
    now = datetime.now(UTC)
    try:
        user = getpass.getuser()
    except OSError:  # a user without a name, as in a container
        user = str(os.getuid())
    run = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    return Holder(run, f"{user}@{socket.gethostname()}", now.isoformat(timespec="seconds"), what)


@contextmanager
def locked(session: Session, holder: Holder) -> Iterator[list[str]]:
    """Hold the lock meanwhile. Yields a list that says afterwards why the lock could not be given back, if so.

    Raises LockError when it cannot be taken, also because the head node cannot be reached: it need not be one of the
    machines that are selected.
    """
    name = next(iter(session.rack.nodes))
    head = session.hosts[name]
    if not head.connected:
        head.connect(show_errors=False)
    if not head.connected:
        raise LockError(f"{name} keeps the lock of the rack and cannot be reached; nothing was changed")
    script, content = lock.take(holder)
    code, said = _run(head, script, content)
    if code == lock.HELD:
        other = lock.holder(said)
        raise LockError(f"{other} changes the rack; when that run is gone: sparkrack unlock {other.id}")
    if code:
        raise LockError(f"{name}: the lock of the rack cannot be taken: {said or f'exit {code}'}; nothing was changed")
    lock.hold(session.state, holder.id)
    left: list[str] = []
    try:
        yield left
    finally:
        code, said = _run(head, lock.release(holder.id))
        if code:
            left.append(f"{name}: the lock could not be given back ({said}); sparkrack unlock {holder.id}")


def _run(head: Host, script: str, stdin: str | None = None) -> tuple[int, str]:
    """How a script ended, and what it printed. The exit code is printed by the script: pyinfra drops it."""
    text = f"o=$({{ {script}; }} 2>&1); printf '%s\\n%d\\n' \"$o\" $?"
    extra = {} if stdin is None else {"_stdin": stdin}
    try:
        fine, output = head.run_shell_command(
            StringCommand(text), print_output=False, print_input=head.state.print_input, _sudo=True, **extra
        )
    except (OSError, EOFError, SSHException) as error:
        return 255, str(error) or "the connection ended"
    *said, code = output.stdout_lines or ["255"]
    return (int(code) if fine and code.isdigit() else 255), "\n".join(said or output.stderr_lines).strip()
