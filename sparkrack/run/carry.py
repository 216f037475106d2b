"""Carry out what deploy.py says, one operation after the other, and stop at the first that fails."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import gevent
from paramiko import SSHException
from pyinfra.api.command import PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_host

from sparkrack.ops import account
from sparkrack.ops.account import Entry, Sort
from sparkrack.run.journal import Result
from sparkrack.run.plan import Plan
from sparkrack.run.session import Session, machine, title

RISKY = frozenset({"switch", "access", "driver", "memory", "docker", "lossless", "fabric"})
"""Roles that can cut a machine off or end what runs there: of each of their operations the first machine that it
changes goes alone."""
CUT_SECONDS = 30
"""How long what is cut off may take to take back what it can."""


@dataclass(frozen=True)
class Step:
    """One operation on one machine, and what came of it. `number` of `total` operations; `seconds` it took."""

    machine: str
    role: str
    title: str
    number: int
    total: int
    result: Result
    seconds: float


class Watcher(Protocol):
    """Whoever wants to know how a run goes on."""

    def begins(self, role: str, sentence: str, number: int, total: int) -> None:
        """An operation begins, on whichever machines have it."""

    def ended(self, step: Step) -> None:
        """It has ended on one machine."""

    def said(self, machine: str, entry: Entry) -> None:
        """An operation says something of a machine."""

    def broke(self, machine: str, why: str) -> None:
        """An operation ended as none should: its connection was lost, or the program has a fault."""


class UnshownError(Exception):
    """An operation would make a change that nobody has seen. The text says which."""


class LockLostError(Exception):
    """Another run may change the rack now. The text says why."""


class Shown:
    """The changes that a plan shows, by machine and operation."""

    _SORTS = (Sort.CHANGE, Sort.FILE, Sort.EFFECT)
    """Not restarts: what is restarted follows from what is changed, and its reason may have become another."""

    def __init__(self, plan: Plan) -> None:
        self._switches = {one.name for one in plan.machines if one.kind == "switch"}
        self._known = {
            (one.name, step.role, step.title, said.sort, self._heart(one.name, said.sort, said.text))
            for one in plan.machines
            for step, said in one.said(*self._SORTS)
        }

    def has(self, name: str, role: str, title: str, entry: Entry) -> bool:
        """Whether it shows what an operation says of a machine."""
        if entry.sort not in self._SORTS:
            return True
        return (name, role, title, entry.sort, self._heart(name, entry.sort, entry.text)) in self._known

    def _heart(self, name: str, sort: Sort, text: str) -> str:
        """What must be as shown: of a switch all, since one operation changes it. Of a node's `name: old -> new` not
        the old value, which an earlier operation may have changed; of a file its path, since one may have made it."""
        if name in self._switches:
            return text
        if sort is Sort.FILE:
            return text.partition(" ")[2]
        left, _, new = text.rpartition(" -> ")
        about = left.rpartition(": ")[0]
        return f"{about}: {new}" if about else text


@dataclass
class Carrying:
    """A run while it goes on. `stopping` says whether it shall end after what is at hand: a person wants that, say.
    `shown`: the plan that is carried out; a machine on which anything else would be changed is left as it is then.
    `lost`: why nothing may be sent any more, if so."""

    session: Session
    watcher: Watcher
    stopping: Callable[[], bool] = lambda: False
    shown: Shown | None = None
    lost: Callable[[], str] = lambda: ""
    failed: dict[str, str] = field(default_factory=dict)
    """The machines on which an operation failed, with its sentence."""
    at_hand: dict[str, str] = field(default_factory=dict)
    """The machines that are in the middle of an operation, with its sentence."""
    left: set[Host] = field(default_factory=set)
    """Nodes that have a change which was not shown: they are left alone from then on."""

    def run(self) -> bool:
        """Whether everything was carried out. Ctrl-C ends it at once and leaves `at_hand` as it was."""
        state = self.session.state
        account.listen(state, self._hear)
        state.set_stage(StateStage.Execute)
        state.is_executing = True
        order = state.get_op_order()  # type: ignore[no-untyped-call]
        for number, op_hash in enumerate(order, 1):
            self.watcher.begins(*title(state, op_hash), number, len(order))
            for wave in self._waves(op_hash):
                if self.stopping() or self.lost():
                    return False
                self._together(wave, op_hash, number, len(order))
                if self.failed.keys() - {machine(host) for host in self.left}:
                    return False
        return not self.failed

    def _hear(self, host: Host, entry: Entry) -> None:
        op_hash = host.current_op_hash or ""
        if self.shown and not account.is_open(host, op_hash):
            role, sentence = title(self.session.state, op_hash)
            if not self.shown.has(machine(host), role, sentence, entry):
                raise UnshownError(entry.text)
        self.watcher.said(machine(host), entry)

    def _waves(self, op_hash: str) -> Iterator[list[Host]]:
        """The hosts that have this operation, as they go through it together, in the order of the rack. One on which
        there was nothing to do has tried nothing."""
        state = self.session.state
        hosts = [host for host in self.session.active if op_hash in state.ops[host] and host not in self.left]
        if state.get_op_meta(op_hash).global_arguments["_serial"]:
            yield from ([host] for host in hosts)
            return
        if title(state, op_hash)[0] in RISKY:
            tried = False
            while hosts and not tried:
                first = hosts.pop(0)
                yield [first]
                tried = first not in self.left and self._changed(first, op_hash)
        if hosts:
            yield hosts

    def _changed(self, host: Host, op_hash: str) -> bool:
        return bool(self.session.state.get_op_data_for_host(host, op_hash).operation_meta.did_change())

    def _together(self, hosts: list[Host], op_hash: str, number: int, total: int) -> None:
        jobs = [gevent.spawn(self._one, host, op_hash, number, total) for host in hosts]
        try:
            gevent.joinall(jobs)
        except BaseException:
            # Ended at once by a person: what can be taken back is, where the operation sees its end.
            with suppress(gevent.Timeout):
                gevent.killall(jobs, block=True, timeout=CUT_SECONDS)
            raise
        for job in jobs:
            job.get()

    def _one(self, host: Host, op_hash: str, number: int, total: int) -> None:
        state, name = self.session.state, machine(host)
        role, sentence = title(state, op_hash)
        began, result = time.monotonic(), "cut off"
        self.at_hand[name] = f"{role}: {sentence}"
        try:
            with ctx_host.use(host):
                self._hold_up(host, op_hash)
                fine = run_host_op(state, host, op_hash)
            result = "failed" if not fine else "changed" if self._changed(host, op_hash) else "no change"
        except UnshownError as change:
            # The order demands the switch before the nodes; nodes do not wait for one another.
            if host.data.get("switch") is None:
                self.left.add(host)
            why = f"{change}: is not in the plan that was shown; nothing of this was sent; plan again"
            self.watcher.said(name, Entry(Sort.REFUSED, why))
            result = "failed"
        except LockLostError as why:
            self.watcher.broke(name, f"{why}; nothing more was sent")
            result = "failed"
        except (OSError, EOFError, SSHException) as error:
            self.watcher.broke(name, f"the connection was lost: {str(error) or type(error).__name__}")
            result = "failed"
        except Exception as error:
            self.watcher.broke(name, f"a fault of this program, please report it: {_words(error)}")
            result = "failed"
        finally:
            if result != "cut off":
                where = self.at_hand.pop(name)
                if result == "failed":
                    self.failed[name] = where
            took = round(time.monotonic() - began, 3)
            self.watcher.ended(Step(name, role, sentence, number, total, result, took))  # type: ignore[arg-type]

    def _hold_up(self, host: Host, op_hash: str) -> None:
        """Let no command of the operation be sent once the lock is lost."""
        operation = self.session.state.get_op_data_for_host(host, op_hash)
        commands = operation.command_generator

        def sure() -> Iterator[PyinfraCommand]:
            with closing(cast("Generator[PyinfraCommand, None, None]", commands())) as going:
                for command in going:
                    if why := self.lost():
                        raise LockLostError(why)
                    yield command

        operation.command_generator = sure


def _words(error: Exception) -> str:
    """An error that nobody foresaw, with the place where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
