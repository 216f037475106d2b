"""Evaluate every operation on every host, to its last command, without sending any: the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import gevent
from pyinfra.api.host import Host
from pyinfra.context import ctx_host

from sparkrack.ops import account
from sparkrack.ops.account import Entry, Sort
from sparkrack.ops.refusal import is_refusal
from sparkrack.proof.origin import revision
from sparkrack.run.plan import CHANGES, Machine, Plan, Said, Standing, Step
from sparkrack.run.session import Session, machine, title

SENDS = "sends commands that it does not tell in words"


def evaluate(session: Session, file: Path) -> Plan:
    """The plan of a session that is connected and prepared. What an operation sends is counted and dropped."""
    said: dict[tuple[Host, str], list[Entry]] = defaultdict(list)

    def listen(host: Host, entry: Entry) -> None:
        said[host, host.current_op_hash or ""].append(entry)

    account.listen(session.state, listen)
    counts: dict[tuple[Host, str], int] = {}
    jobs = [session.state.pool.spawn(_drain, session, host, counts, said) for host in session.active]
    gevent.joinall(jobs, raise_error=True)
    return Plan(
        rack=session.rack.rack,
        file=str(file),
        revision=revision(file),
        made=datetime.now(UTC),
        roles=tuple(sorted(session.selection.roles)),
        machines=tuple(_machine(session, name, counts, said) for name in session.selection.machines),
    )


def _drain(
    session: Session, host: Host, counts: dict[tuple[Host, str], int], said: dict[tuple[Host, str], list[Entry]]
) -> None:
    with ctx_host.use(host):
        for op_hash in host.op_hash_order:
            operation = session.state.get_op_data_for_host(host, op_hash)
            try:
                counts[host, op_hash] = sum(not is_refusal(one) for one in operation.command_generator())
            except Exception as error:
                said[host, op_hash].append(Entry(Sort.UNKNOWN, f"cannot be evaluated: {error!r}"))
                counts[host, op_hash] = 0


def _machine(
    session: Session, name: str, counts: dict[tuple[Host, str], int], said: dict[tuple[Host, str], list[Entry]]
) -> Machine:
    kind = "node" if name in session.rack.nodes else "switch"
    if name in session.unreachable:
        return Machine(name=name, kind=kind, standing=Standing.UNREACHABLE, why=session.unreachable[name])
    host = session.hosts[name]
    steps, known = [], set[tuple[Sort, str]]()
    for op_hash in host.op_hash_order:
        entries = [entry for entry in said[host, op_hash] if not _again(entry, known)]
        step = _step(session, counts[host, op_hash], entries, op_hash)
        if step.said:
            steps.append(step)
    return Machine(name=machine(host), kind=kind, standing=_standing(steps), steps=tuple(steps))


def _again(entry: Entry, known: set[tuple[Sort, str]]) -> bool:
    """Whether another operation has said that before: what stands in the way of all is told by each."""
    if entry.sort not in (Sort.UNKNOWN, Sort.REFUSED):
        return False
    about = (entry.sort, entry.text.split(": ", 1)[-1])
    if about in known:
        return True
    known.add(about)
    return False


def _step(session: Session, commands: int, entries: list[Entry], op_hash: str) -> Step:
    role, sentence = title(session.state, op_hash)
    told = tuple(Said(sort=entry.sort, text=entry.text, diff=entry.diff) for entry in entries)
    if commands and not any(one.sort in CHANGES for one in told):
        # A change that nobody put into words is still one.
        told = (*told, Said(sort=Sort.CHANGE, text=SENDS))
    return Step(role=role, title=sentence, commands=commands, said=told)


def _standing(steps: Iterable[Step]) -> Standing:
    sorts = {one.sort for step in steps for one in step.said}
    if Sort.UNKNOWN in sorts:
        return Standing.UNKNOWN
    if Sort.REFUSED in sorts:
        return Standing.REFUSED
    return Standing.CHANGES if any(step.commands for step in steps) else Standing.IN_SYNC
