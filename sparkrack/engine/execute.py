"""Execute the operations of deploy.py one after the other, and stop at the first failure."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, cast

import gevent
from paramiko import SSHException
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_host

from core.model.role import roles
from core.ops import events
from core.ops.events import operation_title
from core.ops.record import keep_record
from core.ops.refusals import is_refusal
from core.ops.shell import sudo_script
from core.util.debug_log import LOG
from core.util.event import Event, EventKind
from sparkrack.engine.journal import Result
from sparkrack.engine.plan import Message, Plan
from sparkrack.engine.session import RunSession, machine

RISKY = frozenset(role.key for role in roles() if role.risky)
"""Roles that can cut a machine off or end what runs there: of each of their operations the first machine that it
changes goes alone."""
CUT_SECONDS = 30
"""Seconds for an interrupted operation to revert what it can."""


@dataclass(frozen=True)
class OperationResult:
    """One operation on one machine, and what came of it. `number` of `total` operations; `seconds` it took."""

    machine: str
    role: str
    title: str
    number: int
    total: int
    result: Result
    seconds: float


class RunObserver(Protocol):
    """Interface for observers of a run."""

    def begins(self, role: str, sentence: str, number: int, total: int) -> None:
        """An operation begins, on whichever machines have it."""

    def ended(self, step: OperationResult) -> None:
        """Called when an operation has ended on one host."""

    def message(self, machine: str, entry: Event) -> None:
        """Called for an event of an operation on a host."""

    def broke(self, machine: str, why: str) -> None:
        """Called when an operation ended abnormally: its connection was lost, or the program has an internal error."""


class UnplannedChangeError(Exception):
    """An operation would make a change that was not shown. The text names it."""


class LockLostError(Exception):
    """Another run may change the rack now. The text has the reason."""


class ShownPlan:
    """The changes that a plan shows, by machine and operation."""

    _KINDS = (EventKind.CHANGE, EventKind.FILE, EventKind.EFFECT)
    """Event kinds that are compared with the plan, without restarts: a restart follows from the changes, and its reason
    may have changed.
    """

    def __init__(self, plan: Plan) -> None:
        self._switches = {one.name for one in plan.hosts if one.kind == "switch"}
        self._known = {
            (one.name, step.role, step.title, self._required_as_shown(one.name, message))
            for one in plan.hosts
            for step, message in one.events(*self._KINDS)
        }

    def has(self, name: str, role: str, title: str, entry: Event) -> bool:
        """Return whether the plan shows this event of a host."""
        return (
            entry.kind not in self._KINDS
            or (name, role, title, self._required_as_shown(name, Message.of(entry))) in self._known
        )

    def _required_as_shown(self, name: str, message: Message) -> Message:
        """What must be as shown: of a switch all, since one operation changes it. Of a node no old value, which an
        earlier operation may have changed; of a file its path, since one may have made it."""
        if name in self._switches:
            return message
        if message.kind is EventKind.FILE:
            return Message(kind=message.kind, path=message.path, message="")
        fields = tuple(replace(field, old=None) for field in message.fields)
        # The sentence holds the old values; its other content is in the other fields.
        return replace(message, old=None, fields=fields, message="")


@dataclass
class Executor:
    """An active run. `stopping` returns whether it must end after the current operation, for example on request of the
    operator. `shown`: the plan that is executed; a host on which anything else would be changed is left unchanged then.
    `lost`: why nothing may be sent any more, if so. `records`: whether the state of a node is recorded before its first
    change.
    """

    session: RunSession
    watcher: RunObserver
    stopping: Callable[[], bool] = lambda: False
    shown: ShownPlan | None = None
    lost: Callable[[], str] = lambda: ""
    failed: dict[str, str] = field(default_factory=dict)
    """The machines on which an operation failed, with its sentence."""
    in_progress: dict[str, str] = field(default_factory=dict)
    """The machines that are in the middle of an operation, with its sentence."""
    records: bool = False
    recorded: set[Host] = field(default_factory=set)
    """The nodes of which the former state is recorded."""
    left: set[Host] = field(default_factory=set)
    """Nodes that have a change which was not shown: they are left alone from then on."""

    def run(self) -> bool:
        """Whether everything was carried out. Ctrl-C ends it at once and leaves `in_progress` as it was."""
        state = self.session.state
        events.subscribe(state, self._record_event)
        state.set_stage(StateStage.Execute)
        state.is_executing = True
        order = state.get_op_order()  # type: ignore[no-untyped-call]
        for number, op_hash in enumerate(order, 1):
            self.watcher.begins(*operation_title(state, op_hash), number, len(order))
            for wave in self._host_waves(op_hash):
                if self.stopping() or self.lost():
                    return False
                self._run_in_parallel(wave, op_hash, number, len(order))
                if self.failed.keys() - {machine(host) for host in self.left}:
                    return False
        return not self.failed

    def _record_event(self, host: Host, entry: Event) -> None:
        op_hash = host.current_op_hash or ""
        if self.shown and not events.is_open(host, op_hash):
            role, sentence = operation_title(self.session.state, op_hash)
            if not self.shown.has(machine(host), role, sentence, entry):
                raise UnplannedChangeError(entry.message)
        self.watcher.message(machine(host), entry)

    def _host_waves(self, op_hash: str) -> Iterator[list[Host]]:
        """The hosts that have this operation, as they go through it together, in the order of the rack. One on which
        there was nothing to do has tried nothing."""
        state = self.session.state
        hosts = [host for host in self.session.active if op_hash in state.ops[host] and host not in self.left]
        if state.get_op_meta(op_hash).global_arguments["_serial"]:
            yield from ([host] for host in hosts)
            return
        if operation_title(state, op_hash)[0] in RISKY:
            tried = False
            while hosts and not tried:
                first = hosts.pop(0)
                yield [first]
                tried = first not in self.left and self._has_changed_host(first, op_hash)
        if hosts:
            yield hosts

    def _has_changed_host(self, host: Host, op_hash: str) -> bool:
        return bool(self.session.state.get_op_data_for_host(host, op_hash).operation_meta.did_change())

    def _run_in_parallel(self, hosts: list[Host], op_hash: str, number: int, total: int) -> None:
        jobs = [gevent.spawn(self._run_on_host, host, op_hash, number, total) for host in hosts]
        try:
            gevent.joinall(jobs)
        except BaseException:
            # Interrupted at once by the operator: the operation reverts what it can when it sees its end.
            with suppress(gevent.Timeout):
                gevent.killall(jobs, block=True, timeout=CUT_SECONDS)
            raise
        for job in jobs:
            job.get()

    def _run_on_host(self, host: Host, op_hash: str, number: int, total: int) -> None:
        state, name = self.session.state, machine(host)
        role, sentence = operation_title(state, op_hash)
        began, result = time.monotonic(), "interrupted"
        self.in_progress[name] = f"{role}: {sentence}"
        try:
            with ctx_host.use(host):
                self._hold_up(host, op_hash)
                fine = run_host_op(state, host, op_hash)
            result = "failed" if not fine else "changed" if self._has_changed_host(host, op_hash) else "no change"
        except UnplannedChangeError as change:
            # The order demands the switch before the nodes; nodes do not wait for one another.
            if host.data.get("switch") is None:
                self.left.add(host)
            why = f"{change}: is not in the plan that was shown; nothing of this was sent; plan again"
            self.watcher.message(name, Event(EventKind.REFUSED, role, detail=why))
            result = "failed"
        except LockLostError as why:
            self.watcher.broke(name, f"{why}; nothing more was sent")
            result = "failed"
        except (OSError, EOFError, SSHException) as error:
            LOG.exception("%s: %s: the connection was lost", name, sentence)
            self.watcher.broke(name, f"the connection was lost: {str(error) or type(error).__name__}")
            result = "failed"
        except Exception as error:
            LOG.exception("%s: %s: unexpected error", name, sentence)
            self.watcher.broke(name, f"a fault of this program, please report it: {_unexpected_error(error)}")
            result = "failed"
        finally:
            if result != "interrupted":
                where = self.in_progress.pop(name)
                if result == "failed":
                    self.failed[name] = where
            took = round(time.monotonic() - began, 3)
            LOG.debug("%s: %s: %s: %s, %.3f s", name, role, sentence, result, took)
            self.watcher.ended(OperationResult(name, role, sentence, number, total, result, took))  # type: ignore[arg-type]

    def _hold_up(self, host: Host, op_hash: str) -> None:
        """Let no command of the operation be sent once the lock is lost, nor before the node's state is recorded."""
        operation = self.session.state.get_op_data_for_host(host, op_hash)
        commands = operation.command_generator
        records = self.records and host.data.get("node") is not None

        def sure() -> Iterator[PyinfraCommand]:
            with closing(cast("Generator[PyinfraCommand, None, None]", commands())) as going:
                for command in going:
                    if why := self.lost():
                        raise LockLostError(why)
                    if records and host not in self.recorded and not is_refusal(command):
                        # Before the first change of a node: what `sparkrack remove` brings back.
                        self.recorded.add(host)
                        yield sudo_script(keep_record())
                    yield command

        operation.command_generator = sure


def _unexpected_error(error: Exception) -> str:
    """Describe an unexpected error, with the place where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
