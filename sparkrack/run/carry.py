"""Carry out what deploy.py says, one operation after the other, and stop at the first that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

import gevent
from pyinfra.api.host import Host
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_host

from sparkrack.ops import account
from sparkrack.ops.account import Entry
from sparkrack.run.session import Session, machine, title

RISKY = frozenset({"access", "driver", "memory", "docker", "lossless", "fabric"})
"""Roles that can cut a node off or end what runs there: the first node goes through each of their operations alone."""

Result = Literal["changed", "no change", "failed", "cut off"]


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


@dataclass
class Carrying:
    """A run while it goes on. `stopping` says whether a person wants it to end after the operation at hand."""

    session: Session
    watcher: Watcher
    stopping: Callable[[], bool] = lambda: False
    failed: list[str] = field(default_factory=list)
    at_hand: dict[str, str] = field(default_factory=dict)
    """The machines that are in the middle of an operation, with its sentence."""

    def run(self) -> bool:
        """Whether everything was carried out. Whatever else is raised leaves `at_hand` as it was."""
        state = self.session.state
        account.listen(state, lambda host, entry: self.watcher.said(machine(host), entry))
        state.set_stage(StateStage.Execute)
        state.is_executing = True
        order = state.get_op_order()  # type: ignore[no-untyped-call]
        for number, op_hash in enumerate(order, 1):
            if self.stopping():
                return False
            self.watcher.begins(*title(state, op_hash), number, len(order))
            for wave in self._waves(op_hash):
                self._together(wave, op_hash, number, len(order))
                if self.failed:
                    return False
        return True

    def _waves(self, op_hash: str) -> Iterator[list[Host]]:
        """The hosts that have this operation, as they go through it: in the order of the rack, so the head node is the
        first to be tried."""
        state = self.session.state
        hosts = [host for host in self.session.active if op_hash in state.ops[host]]
        if state.get_op_meta(op_hash).global_arguments["_serial"]:
            yield from ([host] for host in hosts)
        elif title(state, op_hash)[0] in RISKY:
            yield hosts[:1]
            yield hosts[1:]
        else:
            yield hosts

    def _together(self, hosts: list[Host], op_hash: str, number: int, total: int) -> None:
        jobs = [gevent.spawn(self._one, host, op_hash, number, total) for host in hosts]
        try:
            gevent.joinall(jobs, raise_error=True)
        except BaseException:
            # Ended at once by a person: what can be taken back is, where the operation sees its end.
            gevent.killall(jobs, block=True, timeout=30)
            raise

    def _one(self, host: Host, op_hash: str, number: int, total: int) -> None:
        state, name = self.session.state, machine(host)
        role, sentence = title(state, op_hash)
        began, result = time.monotonic(), "cut off"
        self.at_hand[name] = f"{role}: {sentence}"
        try:
            with ctx_host.use(host):
                fine = run_host_op(state, host, op_hash)
            changed = state.get_op_data_for_host(host, op_hash).operation_meta.did_change()
            result = ("changed" if changed else "no change") if fine else "failed"
            del self.at_hand[name]
        finally:
            if result not in ("changed", "no change"):
                self.failed.append(name)
            took = round(time.monotonic() - began, 3)
            self.watcher.ended(Step(name, role, sentence, number, total, result, took))  # type: ignore[arg-type]
