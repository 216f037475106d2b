"""Stop one host, because going on would be a guess."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from sparkrack.ops.account import Entry, Sort, heard


def refuse(host: Host, *reasons: str) -> PyinfraCommand:
    """Say what is in the way, and give the command that an operation yields instead of its changes: it fails this host.

    Works in every kind of run: a dry run executes no command, so there the host is marked as failed at once for
    the exit code to say so. `State.fail_hosts` would do more, stop the other hosts or ask a question that nobody
    may be there to answer; an exception would end the run for all.
    """
    return _stop(host, Sort.REFUSED, reasons)


def unknown(host: Host, *reasons: str) -> PyinfraCommand:
    """The same, because something could not be told."""
    return _stop(host, Sort.UNKNOWN, reasons)


def is_refusal(command: PyinfraCommand) -> bool:
    """Whether a command is what a refused operation yields instead of its changes."""
    return isinstance(command, FunctionCommand) and command.function is _fail


def unseen(host: Host) -> bool:
    """Whether the preview of this host was refused, so that nobody has seen what would now be done."""
    return host.state.is_executing and host in host.state.failed_hosts


def _stop(host: Host, sort: Sort, reasons: tuple[str, ...]) -> PyinfraCommand:
    for reason in reasons:
        if not heard(host, Entry(sort, reason)):
            host.log_styled(reason, fg="red", log_func=logger.error)
    if not host.state.is_executing:
        host.state.failed_hosts.add(host)
    return FunctionCommand(_fail, (), {})


def _fail(state: State, host: Host) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    return False
