"""Evaluate every operation on every host, to its last command, without sending any: the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import gevent
from pyinfra.api.host import Host
from pyinfra.context import ctx_host

from core.ops import events
from core.ops.refusals import is_refusal
from core.util.debug_log import LOG
from core.util.event import Event, EventKind
from core.util.provenance import revision
from sparkrack.engine.plan import CHANGES, HostPlan, HostState, Message, OperationPlan, Plan
from sparkrack.engine.session import RunSession, machine

SENDS = Event(EventKind.CHANGE, detail="sends commands that it does not describe")
"""Stands for the changes of an operation that reports none."""


def evaluate(session: RunSession, file: Path) -> Plan:
    """The plan of a session that is connected and prepared. What an operation sends is counted and dropped."""
    emitted: dict[tuple[Host, str], list[Event]] = defaultdict(list)

    def listen(host: Host, entry: Event) -> None:
        emitted[host, host.current_op_hash or ""].append(entry)

    events.subscribe(session.state, listen)
    session.progress.phase("plan", map(machine, session.active))
    counts: dict[tuple[Host, str], int] = {}
    jobs = [session.state.pool.spawn(_drain_host, session, host, counts, emitted) for host in session.active]
    gevent.joinall(jobs, raise_error=True)
    return Plan(
        rack=session.rack.rack,
        file=str(file),
        revision=revision(file),
        made=datetime.now(UTC),
        roles=tuple(sorted(session.selection.roles)),
        hosts=tuple(_make_host_plan(session, name, counts, emitted) for name in session.selection.machines),
    )


def _drain_host(
    session: RunSession, host: Host, counts: dict[tuple[Host, str], int], emitted: dict[tuple[Host, str], list[Event]]
) -> None:
    with ctx_host.use(host):
        for number, op_hash in enumerate(host.op_hash_order, 1):
            role, _ = events.operation_title(session.state, op_hash)
            # The first operation reads the facts of all roles, which takes most of the time.
            activity = f"{role}: reads the facts" if number == 1 else role
            session.progress.step(machine(host), activity, number, len(host.op_hash_order))
            operation = session.state.get_op_data_for_host(host, op_hash)
            try:
                counts[host, op_hash] = sum(not is_refusal(one) for one in operation.command_generator())
            except Exception as error:
                LOG.exception("%s: %s: cannot be evaluated", machine(host), op_hash)
                emitted[host, op_hash].append(Event(EventKind.UNKNOWN, detail=f"cannot be evaluated: {error!r}"))
                counts[host, op_hash] = 0
    session.progress.finish(machine(host))


def _make_host_plan(
    session: RunSession, name: str, counts: dict[tuple[Host, str], int], emitted: dict[tuple[Host, str], list[Event]]
) -> HostPlan:
    kind = "node" if name in session.rack.nodes else "switch"
    if name in session.unreachable:
        return HostPlan(name=name, kind=kind, state=HostState.UNREACHABLE, reason=session.unreachable[name])
    host = session.hosts[name]
    steps, known = [], set[Event]()
    for op_hash in host.op_hash_order:
        entries = [entry for entry in emitted[host, op_hash] if not _is_repeated(entry, known)]
        step = _operation_plan(session, counts[host, op_hash], entries, op_hash)
        if step.events:
            steps.append(step)
    return HostPlan(name=machine(host), kind=kind, state=_state_of_steps(steps), operations=tuple(steps))


def _is_repeated(entry: Event, known: set[Event]) -> bool:
    """Whether another operation has reported that before: what stands in the way of all is reported by each."""
    if entry.kind not in (EventKind.UNKNOWN, EventKind.REFUSED):
        return False
    about = replace(entry, role="")
    if about in known:
        return True
    known.add(about)
    return False


def _operation_plan(session: RunSession, commands: int, entries: list[Event], op_hash: str) -> OperationPlan:
    role, sentence = events.operation_title(session.state, op_hash)
    if commands and not any(entry.kind in CHANGES for entry in entries):
        # A change that no event describes is still one.
        entries = [*entries, SENDS]
    return OperationPlan(role=role, title=sentence, commands=commands, events=tuple(map(Message.of, entries)))


def _state_of_steps(steps: Iterable[OperationPlan]) -> HostState:
    kinds = {one.kind for step in steps for one in step.events}
    if EventKind.UNKNOWN in kinds:
        return HostState.UNKNOWN
    if EventKind.REFUSED in kinds:
        return HostState.REFUSED
    return HostState.CHANGES if any(step.commands for step in steps) else HostState.IN_SYNC
