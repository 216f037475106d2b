"""What operations say of a host, for whoever drives the run: a plan, a drift report, a journal.

pyinfra itself keeps only whether an operation changes something. Here each says what, in its own words and with what
kind of thing it is. Without a listener, as under plain pyinfra, everything is printed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State


class Sort(StrEnum):
    """What kind of thing is said. The values stand in JSON reports and never change their meaning."""

    CHANGE = "change"
    """A declared value that differs; a run would change it."""
    FILE = "file"
    """A file that a run would write or remove, with its differences."""
    RESTART = "restart"
    """Something that a run would start, restart or reload, with the reason."""
    EFFECT = "effect"
    """Whom a change on the switch disturbs."""
    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    FAULT = "fault"
    """Configured as declared, and does not work. No run mends it."""
    FLEET = "fleet"
    """A node is unlike the others."""
    UNMANAGED = "unmanaged"
    """There, and not declared. A run leaves it alone."""
    REFUSED = "refused"
    """Known, and in the way: a run changes nothing of this host."""
    UNKNOWN = "unknown"
    """Could not be told, which is never "in sync": a run changes nothing of this host."""


@dataclass(frozen=True)
class Entry:
    """One thing that was said. `diff`: lines of a unified diff; a file's path is its `text`."""

    sort: Sort
    text: str
    diff: tuple[str, ...] = ()


Listener = Callable[["Host", Entry], None]

_listeners: WeakKeyDictionary[State, Listener] = WeakKeyDictionary()


def listen(state: State, listener: Listener) -> None:
    """Hand what operations of this run say to `listener` from now on, instead of printing it."""
    _listeners[state] = listener


def heard(host: Host, *entries: Entry) -> bool:
    """Hand entries on; whether anybody listens. If nobody does, the caller prints."""
    listener = _listeners.get(host.state)
    if listener is None:
        return False
    for entry in entries:
        listener(host, entry)
    return True


_open: WeakKeyDictionary[State, set[tuple[str, str]]] = WeakKeyDictionary()


def opens(host: Host) -> None:
    """Note that what the operation at hand will do on a host cannot be told yet: it hangs on an operation before it.

    What it says when it is carried out need not have been shown then.
    """
    _open.setdefault(host.state, set()).add((host.name, host.current_op_hash or ""))


def is_open(host: Host, op_hash: str) -> bool:
    """Whether that was noted of this operation."""
    return (host.name, op_hash) in _open.get(host.state, set())
