"""Stop one host, because going on would be a guess."""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from sparkrack.fleet.errors import printable
from sparkrack.ops.account import Entry, Sort, heard

_said: WeakKeyDictionary[Host, set[tuple[bool, str]]] = WeakKeyDictionary()
"""What was printed of a host in each stage: a node that cannot be read stops each operation for one reason, which is
printed once."""
_ROLE = re.compile(r"^[a-z]+: |; nothing was changed$")
"""What operations add to a reason."""


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
    said = _said.setdefault(host, set())
    for reason in reasons:
        told = (host.state.is_executing, _ROLE.sub("", reason))
        if not heard(host, Entry(sort, reason)) and told not in said:
            said.add(told)
            host.log_styled(printable(reason), fg="red", log_func=logger.error)
    if not host.state.is_executing:
        host.state.failed_hosts.add(host)
    return FunctionCommand(_fail, (), {})


def _fail(state: State, host: Host) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    return False
