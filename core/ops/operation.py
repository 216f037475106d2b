"""The skeleton of an operation: read the facts, compute a changeset, then refuse, do nothing, or announce and send."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from pyinfra.api.arguments_typed import PyinfraOperation
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

import core.ops.patch_operation_order as _order  # noqa: F401 - cheaper than pyinfra's own
from core.ops import announce, events, host_facts, refusals
from core.ops.joined_scripts import join_scripts
from core.ops.rollout import Rollout, rollout
from core.ops.shell import sudo_script
from core.probes.protocol import UnknownError
from core.util.event import Event

P = ParamSpec("P")
F = TypeVar("F")


class ChangesetError(RuntimeError):
    """A changeset contradicts itself: a fault of the program, never of a node."""


@dataclass(frozen=True)
class Changeset:
    """What an operation does to a host, computed from facts: one of blockers, changes, or a reason to do nothing.

    blockers: why the host is refused. warnings: reported in any case. events and commands: what is announced, and then
    sent. in_sync_reason: why nothing is to be done. provisional: the change depends on an operation before it, so that
    its commands may not be known while a plan is made. Raises ChangesetError for events without commands, commands
    without events, and any other combination that an operation cannot carry out.
    """

    blockers: tuple[str, ...] = ()
    warnings: tuple[Event, ...] = ()
    events: tuple[Event, ...] = ()
    commands: tuple[PyinfraCommand, ...] = ()
    in_sync_reason: str = ""
    provisional: bool = False

    def __post_init__(self) -> None:
        if self.commands and not self.events:
            raise ChangesetError("internal error: commands that no event announces")
        if self.events and not self.commands and not self.provisional:
            raise ChangesetError("internal error: events without a command")
        if sum((bool(self.blockers), bool(self.events), bool(self.in_sync_reason))) != 1:
            raise ChangesetError("internal error: a changeset is one of blockers, changes, or a reason to do nothing")


class ManagedOperation(PyinfraOperation[P], Protocol[P, F]):
    """An operation of pyinfra, and the pure function behind it."""

    changeset: Callable[[F], Changeset]


def managed_operation(
    role: str,
    facts: Callable[Concatenate[host_facts.HostReading, P], F],
    *,
    one_at_a_time: bool = False,
) -> Callable[[Callable[[F], Changeset]], ManagedOperation[P, F]]:
    """Make an operation of a pure function from facts to a changeset.

    role: whose facts are read. facts: what takes the reading, and the options of the operation.
    one_at_a_time: no node is changed after one whose change has failed.
    """

    def read(host: Host, /, *options: P.args, **named: P.kwargs) -> F:
        return facts(host_facts.read(host, role), *options, **named)

    return _make_operation(read, role if one_at_a_time else "")


def operation_on_host(
    read: Callable[Concatenate[Host, P], F],
) -> Callable[[Callable[[F], Changeset]], ManagedOperation[P, F]]:
    """The same for facts that are more than the reading of one role from the host itself.

    read: returns the facts; raises UnknownError or ValueError for unknown ones.
    """
    return _make_operation(read, "")


def _make_operation(
    read: Callable[Concatenate[Host, P], F], serial: str
) -> Callable[[Callable[[F], Changeset]], ManagedOperation[P, F]]:
    def decorate(changeset: Callable[[F], Changeset]) -> ManagedOperation[P, F]:
        def send(*options: P.args, **named: P.kwargs) -> Generator[PyinfraCommand, None, None]:
            host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
            try:
                made = changeset(read(host, *options, **named))
            except (UnknownError, ValueError) as unknown:
                yield refusals.fail_unknown(host, unknown)
                return
            yield from _perform_changes(host, made, rollout(host, serial) if serial else None)

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(send, name, getattr(changeset, name))
        made: Any = operation()(send)
        made.changeset = changeset
        return cast("ManagedOperation[P, F]", made)

    return decorate


def _perform_changes(host: Host, changes: Changeset, progress: Rollout | None) -> Generator[PyinfraCommand, None, None]:
    for warning in changes.warnings:
        announce.announce_warning(host, warning)
    if changes.blockers:
        yield refusals.refuse(host, *changes.blockers)
        return
    if changes.in_sync_reason:
        host.noop(changes.in_sync_reason)
        return
    if progress and progress.blockers:
        yield refusals.refuse(host, *progress.blockers)
        return
    host_facts.invalidate(host)
    if changes.provisional:
        events.opens(host)
    announce.announce_change(host, changes.events)
    with progress.step(host, host.data.node.name) if progress else nullcontext():
        yield from join_scripts(changes.commands)
        if not changes.commands and not host.state.is_executing:
            # pyinfra counts an operation as a change by its first command.
            yield sudo_script(":")
