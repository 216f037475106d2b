"""Look whether the nodes may be changed. Nothing here changes any."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from core.model import Node, Rack
from core.ops import announce, refusals, run_lock
from core.ops.operation import Changeset, operation_on_host
from core.ops.reconnect import run_on_new_connection
from core.util.event import Event, EventKind
from roles.preflight import ROLE, desired, fleet_comparison
from roles.preflight.facts import busy, fleet, look


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:
    """Check every gate before the first change of nodes or switch: the first role of a run.

    Does not protect from changes of a node later in the run.
    """
    check_gates(name="Look whether every node may be changed", rack=rack, node=node)


@deploy(ROLE.title)
def check_rack_lock(rack: Rack) -> None:
    """For a run of plain pyinfra that `--limit` keeps away from the head node: its first host looks at the lock there.

    Does not keep it: a run that begins a moment later is not refused.
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    state = host.state
    limited = [one for one in state.inventory if state.is_host_in_limit(one)]
    head = state.inventory.get_host(next(iter(rack.nodes)))
    if head is not None and head not in limited and limited[0] is host:
        check_lock_is_free(name="Look whether another run holds the rack", head=head.name)


@operation()
def check_lock_is_free(head: str) -> Generator[PyinfraCommand, None, None]:
    """Refuse this host while another run holds the rack, or report that the lock could not be read.

    + head: the node that keeps the lock
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        fine, lines = run_on_new_connection(
            host.state.inventory.get_host(head), f"( {run_lock.read_script()} ) || [ $? -eq {run_lock.GONE} ]"
        )
    except OSError as error:
        fine, lines = False, [str(error)]
    reported = "\n".join(lines)
    if not fine:
        why = lines[-1] if lines else "no answer"
        announce.announce_warning(host, f"the lock of the rack on {head} was not looked at: {why}")
    elif reported and not run_lock.expired(reported):
        busy = run_lock.describe_holder(reported).busy
        if host.state.is_executing:
            yield refusals.refuse(host, busy)
            return
        announce.announce_warning(host, busy)
    else:
        host.noop("no other run holds the rack")


@dataclass(frozen=True)
class GateFacts:
    """Facts of a node, and of all nodes of the run. `holder`: another run that holds the rack, by this node's lock
    file. `executing`: whether the changes follow at once, and a held lock therefore blocks.
    """

    rack: Rack
    node: Node
    machine: desired.MachineFacts
    nodes: Mapping[str, desired.MachineFacts]
    holder: run_lock.Holder | None
    executing: bool


def _gate_facts(host: Host, rack: Rack, node: Node) -> GateFacts:
    machine = look(host)
    holder = busy(host) if node.name == next(iter(rack.nodes)) else None
    return GateFacts(rack, node, machine, fleet(host), holder, host.state.is_executing)


@operation_on_host(_gate_facts)
def check_gates(facts: GateFacts) -> Changeset:
    """Refuse this node, one line for each failed gate, or report warnings and change nothing."""
    rack, name, machine = facts.rack, facts.node.name, facts.machine
    warnings, blockers = [], []
    if rack.leave:
        left = f"roles {', '.join(rack.leave)}, as leave in the rack file says"
        warnings.append(Event(EventKind.UNMANAGED, detail=left))
    warnings += [Event(EventKind.NOTE, detail=line) for line in fleet_comparison.warnings(rack, facts.node, machine)]
    warnings += [
        Event(EventKind.OUTLIER, detail=line) for line in fleet_comparison.differences(rack, name, facts.nodes)
    ]
    if facts.holder and facts.executing:
        blockers.append(facts.holder.busy)
    elif facts.holder:
        warnings.append(Event(EventKind.NOTE, detail=facts.holder.busy))
    blockers += [*desired.gates(rack, facts.node, machine), *fleet_comparison.refusals(rack, name, facts.nodes)]
    if blockers:
        return Changeset(warnings=tuple(warnings), blockers=tuple(blockers))
    reason = f"{machine.maker} {machine.product}, BIOS {machine.bios}: may be changed"
    return Changeset(warnings=tuple(warnings), in_sync_reason=reason)
