"""Carry out what deploy.py says, one operation after the other, and stop at the first that fails."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import gevent
from paramiko import SSHException
from pyinfra.api.host import Host
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_host

from sparkrack.ops import account
from sparkrack.ops.account import Entry
from sparkrack.run.journal import Result
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


@dataclass
class Carrying:
    """A run while it goes on. `stopping` says whether it shall end after what is at hand: a person wants that, say."""

    session: Session
    watcher: Watcher
    stopping: Callable[[], bool] = lambda: False
    failed: dict[str, str] = field(default_factory=dict)
    """The machines on which an operation failed, with its sentence."""
    at_hand: dict[str, str] = field(default_factory=dict)
    """The machines that are in the middle of an operation, with its sentence."""

    def run(self) -> bool:
        """Whether everything was carried out. Ctrl-C ends it at once and leaves `at_hand` as it was."""
        state = self.session.state
        account.listen(state, lambda host, entry: self.watcher.said(machine(host), entry))
        state.set_stage(StateStage.Execute)
        state.is_executing = True
        order = state.get_op_order()  # type: ignore[no-untyped-call]
        for number, op_hash in enumerate(order, 1):
            self.watcher.begins(*title(state, op_hash), number, len(order))
            for wave in self._waves(op_hash):
                if self.stopping():
                    return False
                self._together(wave, op_hash, number, len(order))
                if self.failed:
                    return False
        return True

    def _waves(self, op_hash: str) -> Iterator[list[Host]]:
        """The hosts that have this operation, as they go through it together, in the order of the rack. One on which
        there was nothing to do has tried nothing."""
        state = self.session.state
        hosts = [host for host in self.session.active if op_hash in state.ops[host]]
        if state.get_op_meta(op_hash).global_arguments["_serial"]:
            yield from ([host] for host in hosts)
            return
        if title(state, op_hash)[0] in RISKY:
            tried = False
            while hosts and not tried:
                first = hosts.pop(0)
                yield [first]
                tried = self._changed(first, op_hash)
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
                fine = run_host_op(state, host, op_hash)
            result = "failed" if not fine else "changed" if self._changed(host, op_hash) else "no change"
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


def _words(error: Exception) -> str:
    """An error that nobody foresaw, with the place where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
