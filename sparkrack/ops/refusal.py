"""Stop one host, because going on would be a guess."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State


def refuse(host: Host, *reasons: str) -> PyinfraCommand:
    """Say why, and give the command that an operation yields instead of its changes: it fails this host.

    Works in every kind of run: a dry run executes no command, so there the host is marked as failed at once for
    the exit code to say so. `State.fail_hosts` would do more, stop the other hosts or ask a question that nobody
    may be there to answer; an exception would end the run for all.
    """
    for reason in reasons:
        host.log_styled(reason, fg="red", log_func=logger.error)
    if not host.state.is_executing:
        host.state.failed_hosts.add(host)
    return FunctionCommand(_fail, (), {})


def unseen(host: Host) -> bool:
    """Whether the preview of this host was refused, so that nobody has seen what would now be done."""
    return host.state.is_executing and host in host.state.failed_hosts


def _fail(state: State, host: Host) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    return False
