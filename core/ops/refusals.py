"""Stop one host, because going on would be a guess."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from core.model.errors import printable
from core.ops.events import emit
from core.ops.run_context import run_value
from core.util.event import Event, EventKind


class _Printed(set[tuple[bool, str]]):
    """Reasons printed for a host in each stage: a node that cannot be read stops each operation for the same reason,
    which is printed once.
    """


def refuse(host: Host, *reasons: str, untouched: str = "") -> PyinfraCommand:
    """Report what is in the way, and give the command that an operation yields instead of its changes: it fails the
    host.

    Works in every kind of run: a dry run executes no command, so there the host is marked as failed at once for
    the exit code to say so. `State.fail_hosts` would do more, stop the other hosts or ask a question when no
    operator may be there to answer; an exception would end the run for all.

    untouched: what the refusal left as it was, appended to each reason.
    """
    return _stop_host(host, EventKind.REFUSED, reasons, untouched)


def fail_unknown(host: Host, *reasons: object, untouched: str = "nothing was changed") -> PyinfraCommand:
    """The same, because something could not be read."""
    return _stop_host(host, EventKind.UNKNOWN, tuple(map(str, reasons)), untouched)


def is_refusal(command: PyinfraCommand) -> bool:
    """Return whether a command is the one that a refused operation yields instead of its changes."""
    return isinstance(command, FunctionCommand) and command.function is _fail_operation


def refused_in_preview(host: Host) -> bool:
    """Return whether the preview of this host was refused, so that its changes were never shown."""
    return host.state.is_executing and host in host.state.failed_hosts


def _stop_host(host: Host, kind: EventKind, reasons: tuple[str, ...], untouched: str) -> PyinfraCommand:
    printed = run_value(host, _Printed)
    for reason in reasons:
        reported = (host.state.is_executing, reason)
        for event in emit(host, Event(kind, detail=f"{reason}; {untouched}" if untouched else reason)):
            if reported not in printed:
                printed.add(reported)
                host.log_styled(printable(event.labelled), fg="red", log_func=logger.error)
    if not host.state.is_executing:
        host.state.failed_hosts.add(host)
    return FunctionCommand(_fail_operation, (), {})


def _fail_operation(state: State, host: Host) -> bool:  # noqa: ARG001 - pyinfra passes both or neither
    return False
