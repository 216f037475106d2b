"""Hand the events of operations to what drives the run: a plan, a drift report, a journal.

pyinfra itself keeps only whether an operation changes something. Without a listener, as under plain pyinfra, events are
printed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from core.model.role import roles
from core.ops.run_context import run_value
from core.util.event import Event

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State


Listener = Callable[["Host", Event], None]


@dataclass
class _RunEvents:
    """The listener of a run, and the operations whose changes are not known yet: host and hash of the operation."""

    listener: Listener | None = None
    open: set[tuple[str, str]] = field(default_factory=set)


def subscribe(state: State, listener: Listener) -> None:
    """Hand the events of the operations of this run to `listener` from now on, instead of printing them."""
    run_value(state, _RunEvents).listener = listener


def emit(host: Host, *entries: Event) -> tuple[Event, ...]:
    """Hand events on, each with the role of the operation in progress. Returns those that no listener took, for the
    caller to print."""
    role = operation_title(host.state, host.current_op_hash)[0] if host.current_op_hash else ""
    entries = tuple(entry if entry.role else replace(entry, role=role) for entry in entries)
    listener = run_value(host.state, _RunEvents).listener
    if listener is None:
        return entries
    for entry in entries:
        listener(host, entry)
    return ()


def operation_title(state: State, op_hash: str) -> tuple[str, str]:
    """The role of an operation, and its sentence."""
    role, _, sentence = min(state.get_op_meta(op_hash).names).partition(" | ")
    return _keys_by_title().get(role, role), sentence


@cache
def _keys_by_title() -> dict[str, str]:
    """The role of an operation, by the title that pyinfra puts before the operation's name."""
    return {role.title: role.key for role in roles()}


def opens(host: Host) -> None:
    """Note that the changes of the operation in progress on a host are not known yet: they depend on an earlier
    operation.

    Its events during execution need not have been shown in the preview.
    """
    run_value(host.state, _RunEvents).open.add((host.name, host.current_op_hash or ""))


def is_open(host: Host, op_hash: str) -> bool:
    """Whether that was noted of this operation."""
    return (host.name, op_hash) in run_value(host.state, _RunEvents).open
