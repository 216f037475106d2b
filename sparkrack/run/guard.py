"""The lock of a rack, taken and given back over the head node's connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paramiko import SSHException
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host

from sparkrack.ops import lock
from sparkrack.ops.lock import Holder, LockError
from sparkrack.ops.second import ask_anew
from sparkrack.run.session import Session

LOST = 255
"""In place of an exit code: the node gave none."""


@contextmanager
def locked(session: Session, mine: Holder) -> Iterator[list[str]]:
    """Hold the lock meanwhile. Yields a list that says afterwards what was wrong with it at the end, if anything.

    Raises LockError when it cannot be taken, also because the head node cannot be reached: it need not be one of the
    machines that are selected.
    """
    name = next(iter(session.rack.nodes))
    with _reached(session, name) as head:
        try:
            fault = lock.not_taken(name, mine, *_run(head, *lock.take(mine)))
        except BaseException:
            _give_back(head, name, mine)  # cut off by a person: it may have been taken
            raise
        if fault:
            raise LockError(fault)
        lock.hold(session.state, mine.id)
        left: list[str] = []
        try:
            yield left
        finally:
            fault = _give_back(head, name, mine)
            left += [fault] if fault else []


@contextmanager
def _reached(session: Session, name: str) -> Iterator[Host]:
    """The head node, connected for this long if it was not."""
    head = session.hosts[name]
    if head.connected:
        yield head
        return
    head.connect(show_errors=False)
    if not head.connected:
        why = session.unreachable.get(name, "no connection")
        raise LockError(f"{name} keeps the lock of the rack and cannot be reached: {why}; nothing was changed")
    try:
        yield head
    finally:
        head.disconnect()


def _give_back(head: Host, name: str, mine: Holder) -> str | None:
    """What is wrong with the lock now, if anything. The run itself may have cost the connection: then over another."""
    script = lock.release(mine.text.encode())
    try:
        code, said = _run(head, script)
        if code == LOST:
            code, said = _understood(*ask_anew(head, _counted(script)))
    except KeyboardInterrupt:
        code, said = LOST, "cut off"
    except OSError as error:
        code, said = LOST, str(error)
    return lock.not_given_back(name, mine, code, said)


def _run(head: Host, script: str, stdin: str | None = None) -> tuple[int, str]:
    """How a script ended, and what it printed."""
    extra = {} if stdin is None else {"_stdin": stdin}
    try:
        fine, output = head.run_shell_command(
            StringCommand(_counted(script)),
            print_output=False,
            print_input=head.state.print_input,
            _sudo=True,
            **extra,
        )
    except (OSError, EOFError, SSHException) as error:
        return LOST, str(error) or "the connection ended"
    return _understood(fine, [*output.stdout_lines, *([] if fine else output.stderr_lines)])


def _counted(script: str) -> str:
    """The script with its exit code on a last line: pyinfra drops it."""
    return f"o=$({{ {script}; }} 2>&1); printf '%s\\n%d\\n' \"$o\" $?"


def _understood(fine: bool, lines: list[str]) -> tuple[int, str]:
    *said, code = lines or [""]
    if fine and code.isdigit():
        return int(code), "\n".join(said).strip()
    return LOST, "\n".join(lines).strip()
